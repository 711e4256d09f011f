"""TimelyLLM's scheduler (paper 001 §4.2-4.4)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from timely_llm.core.generation import Generation, State
from timely_llm.policies.contract import Capacity, StepPlan
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime


@dataclass(frozen=True)
class Timely:
    """Priority queue by potential utility density, batch bounded by a worst-case check.

    A generation that reached a boundary goes back to the queue; before each step the queue's
    priorities are computed anew and the best one joins the running batch, if the most urgent
    running generation still makes its zero point then.

    Attributes:
        rows: most generations in the batch (8 in the paper's harness).
        admissions: most generations that join at one step (1 in the paper's harness).
        segment_tokens: the longest segment, for the worst case (10 in paper 001 §7.1).
        mean_segment_tokens: the mean one; with the time of a step it makes G, the time to
            generate a segment (at the paper's 21.8 ms a token, its 90 ms).
        least_slack_s: floor of L, the slack that divides the priority, seconds.
        lead_s: a suspended generation returns to the queue this long before its robot will be
            idle; infinite lets it run ahead whenever there is room.
    """

    rows: int = 8
    admissions: int = 1
    segment_tokens: int = 10
    mean_segment_tokens: float = 4.0
    least_slack_s: float = 0.01
    lead_s: float = math.inf
    whole_plans = False

    def priority(self, generation: Generation, now: float, segment_s: float) -> float:
        """Return Eq. 4: the utility it would earn if started now, over G times its slack L.

        A utility that is not positive is the priority itself: a negative one over a small slack
        must not come first. L is the time until the segment is due.

        Args:
            generation: one of the queue.
            now: the time, seconds.
            segment_s: G, seconds to generate a segment.
        """
        utility = generation.utility_at(now + segment_s)
        if utility <= 0:
            return utility
        slack = max(generation.due_s - now, self.least_slack_s)
        return utility / (segment_s * slack)

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the running batch and who may join it."""
        running = [g for g in generations if g.state is State.RUNNING]
        resting = [g for g in generations if g.state is not State.RUNNING]
        queue = [g for g in resting if self._resume_s(g) <= now]
        wake_s = min((self._resume_s(g) for g in resting if g not in queue), default=math.inf)
        segment_s = self.mean_segment_tokens * step_time.predict_s(rows=1)
        queue.sort(key=lambda g: self.priority(g, now, segment_s), reverse=True)
        room = capacity.free_tokens + sum(g.kv_tokens for g in resting)
        fitting = [g for g in queue if g.to_compute + g.kv_tokens <= room]
        for candidate in fitting[: self.admissions]:
            if len(running) < self.rows and self._may_join(candidate, running, now, step_time):
                running.append(candidate)
        plan = pack(running, generations, capacity, self.rows)
        return StepPlan(plan.entries, plan.evictable, wake_s)

    def _resume_s(self, generation: Generation) -> float:
        """Return from when on it is in the queue; a new request is at once."""
        return -math.inf if generation.first else generation.due_s - self.lead_s

    def _may_join(
        self,
        candidate: Generation,
        running: Sequence[Generation],
        now: float,
        step_time: StepTime,
    ) -> bool:
        """Return whether the most urgent running generation can afford the longer steps (§4.4).

        Its budget is the time to its zero point. Running generations that have passed theirs have
        nothing left to lose and protect nobody.
        """
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
