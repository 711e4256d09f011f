"""The policies as they were first written, plain and slow: what decisions are compared with."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from timely_llm.core.generation import Generation, PlanGeneration, State, by_kind
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import Edf, FcfsSegments, Timely


def plain_pack(
    order: Iterable[PlanGeneration],
    everyone: Collection[PlanGeneration],
    capacity: Capacity,
    rows: int | None = None,
) -> StepPlan:
    """All memory is added up and all victims are named, whether or not they are needed."""
    rows = capacity.max_rows if rows is None else min(rows, capacity.max_rows)
    resting = {g.key: g for g in everyone if g.kv_tokens > 0}
    free = capacity.free_tokens + sum(g.kv_tokens for g in resting.values())
    tokens_left = capacity.max_step_tokens
    entries: list[tuple[str, int]] = []
    for generation in order:
        if len(entries) == rows or tokens_left == 0:
            break
        tokens = min(generation.to_compute, tokens_left)
        needed = generation.to_compute + generation.kv_tokens
        if needed > free:
            continue
        entries.append((generation.key, tokens))
        resting.pop(generation.key, None)
        free -= needed
        tokens_left -= tokens
    victims = sorted(resting.values(), key=lambda g: g.due_s, reverse=True)
    return StepPlan(tuple(entries), tuple(g.key for g in victims))


class PlainFcfs:
    """`Fcfs` and `Stream`."""

    whole_plans = False

    def plan(
        self,
        now: float,
        generations: Collection[PlanGeneration],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        return plain_pack(sorted(generations, key=lambda g: g.arrival_s), generations, capacity)


class PlainTimely:
    """`Timely` with fixed G and without promises of memory: any resting plan can be evicted."""

    whole_plans = False

    def __init__(
        self,
        rows: int = 8,
        admissions: int = 1,
        segment_tokens: int = 10,
        mean_segment_tokens: float = 4.0,
        lead_s: float = math.inf,
    ) -> None:
        self.rows, self.admissions, self.lead_s = rows, admissions, lead_s
        self.segment_tokens, self.mean_segment_tokens = segment_tokens, mean_segment_tokens

    def priority(self, generation: PlanGeneration, now: float, segment_s: float) -> float:
        utility = generation.utility_at(now + segment_s)
        if utility <= 0:
            return utility
        return utility / (segment_s * max(generation.due_s - segment_s - now, 0.01))

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        plans, _ = by_kind(generations)
        running = [g for g in plans if g.state is State.RUNNING]
        resting = [g for g in plans if g.state is not State.RUNNING]
        queue = [g for g in resting if self._resume_s(g) <= now]
        wake_s = min((self._resume_s(g) for g in resting if g not in queue), default=math.inf)
        segment_s = self.mean_segment_tokens * step_time.predict_s(rows=1)
        queue.sort(key=lambda g: self.priority(g, now, segment_s), reverse=True)
        room = capacity.free_tokens + sum(g.kv_tokens for g in resting)
        fitting = [g for g in queue if g.to_compute + g.kv_tokens <= room]
        for candidate in fitting[: self.admissions]:
            if len(running) < self.rows and self._may_join(candidate, running, now, step_time):
                running.append(candidate)
        plan = plain_pack(running, plans, capacity, self.rows)
        return StepPlan(plan.entries, plan.evictable, wake_s)

    def _resume_s(self, generation: PlanGeneration) -> float:
        return -math.inf if generation.first else generation.due_s - self.lead_s

    def _may_join(
        self,
        candidate: PlanGeneration,
        running: Sequence[PlanGeneration],
        now: float,
        step_time: StepTime,
    ) -> bool:
        at_stake = [g for g in running if g.zero_s > now]
        if not at_stake:
            return True
        urgent = min(at_stake, key=lambda g: g.zero_s)
        batch = [*running, candidate]
        context = sum(g.context_tokens for g in batch)
        prefill = sum(g.to_compute for g in batch if g.to_compute > 1)
        left = max(self.segment_tokens - urgent.segment_tokens, 1)
        first_s = step_time.predict_s(len(batch), prefill, context)
        later_s = step_time.predict_s(len(batch), 0, context + prefill)
        return now + first_s + (left - 1) * later_s <= urgent.zero_s


class PlainFcfsSegments(PlainTimely):
    """`FcfsSegments`."""

    def priority(self, generation: PlanGeneration, now: float, segment_s: float) -> float:
        return -generation.arrival_s


class PlainEdf(PlainTimely):
    """`Edf`."""

    def priority(self, generation: PlanGeneration, now: float, segment_s: float) -> float:
        return -(generation.arrival_s + generation.request.time_utility.ert_s)


PLAIN: dict[type[Timely], type[PlainTimely]] = {
    Timely: PlainTimely,
    FcfsSegments: PlainFcfsSegments,
    Edf: PlainEdf,
}
"""Policies with segments, and how they were first written."""


class PlainStepTime(StepTime):
    """`StepTime` in information form: the inverse of the covariance, with arrays."""

    def __init__(self, *coefficients: float, forgetting: float = 0.995) -> None:
        super().__init__(*coefficients)
        self._scales = np.array([1.0, 8.0, 128.0, 4096.0])
        self._information = np.eye(4)
        self._plain = np.array(self.coefficients) * self._scales
        self._forget_by = forgetting

    def observe(
        self, seconds: float, rows: int, prefill_tokens: int = 0, context_tokens: int = 0
    ) -> None:
        x = np.array([1.0, rows, prefill_tokens, context_tokens]) / self._scales
        predicted_s = self.predict_s(rows, prefill_tokens, context_tokens)
        most_s = max(predicted_s, 1e-3)
        if self._has_jumped(seconds, predicted_s):
            self._information = np.eye(4)
            self._plain = self._plain * min(max(seconds / predicted_s, 0.01), 1.0)
        error = min(seconds - float(x @ self._plain), most_s)
        seen = self._forget_by * self._information + np.outer(x, x)
        self._plain = self._plain + np.linalg.solve(seen, x) * error
        seen[self.observations % 4, self.observations % 4] += 0.05
        self._information = seen
        self.observations += 1
        self._weights = self._without_negative(np.linalg.inv(seen))
        self.coefficients = self._weights

    def _without_negative(self, covariance: np.ndarray) -> tuple[float, float, float, float]:
        weights, left = self._plain, [0, 1, 2, 3]
        while left and weights[left].min() < 0.0:
            left.remove(min(left, key=lambda place: float(weights[place])))
            out = [place for place in range(4) if place not in left]
            given = covariance[:, out] @ np.linalg.inv(covariance[np.ix_(out, out)])
            weights = self._plain - given @ self._plain[out]
        kept = [float(w) if place in left else 0.0 for place, w in enumerate(weights)]
        base, row, prefill, context = (
            w / scale for w, scale in zip(kept, self._scales.tolist(), strict=True)
        )
        return base, row, prefill, context
