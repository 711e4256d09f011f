"""The policy `deadline` for plans: every deliverable has a due time and a worth.

Where rows are cheap, decoding plans go on: a row costs little beside the fixed part of a step, and
sharing a step saves one. Prompts are what delays others. So before each step the policy asks *how
many waiting plans join now*; the others join after this wave. The worth of each number is the sum
over all plans' next segments, and the best number is taken. Batched admission, urgent requests
first, deferral of plans that have time or have lost their worth, and running ahead all follow from
that sum.

Where rows are expensive, the policy also chooses which decoding plans take part, as if none had
begun: plans that lose most by waiting go first, in the number that is worth most (`select_batch`).
Some robot is idle then in any order, so all plans share the price of idleness, and none runs ahead.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from timely_llm.core.generation import Generation, PlanGeneration, by_kind
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Explains
from timely_llm.policies.deadline.plan_step import (
    LONGEST_SEGMENT,
    LOOK_AT,
    Deliverable,
    PlanStep,
    rows_are_expensive,
    select_batch,
    worth_of,
)
from timely_llm.policies.deadline.streams import PlanLoad, Streams, StreamSelection
from timely_llm.policies.lengths import SegmentLengths, mean
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime

_FIRST_GUESS = 8
_SAMPLE = 24
_TICK_S = 1e-6

# Numbers of joining plans that are valued: with few plans, each one matters.
_NUMBERS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24)


@dataclass(eq=False)
class Deadline(Explains):
    """Admits the number of waiting plans that is worth most, before every step.

    Attributes:
        streams: selects streams; by name, the policy takes its options as its own.
        kappa: price of an idle robot, per second, as a share of its request's worth.
        age_s: idle time after which the price has doubled, seconds. A request that is worth nothing
            queues as due this long after its zero point.
        gather_s: time that an engine at rest waits for the rest of a burst, so that its prompts
            share a step, seconds; ten times as long at most.
        ahead: largest fraction by which run-ahead plans may lengthen a contended step.
        lead_s: time before the robot's idle time at which a resting plan goes on, seconds;
            infinite: it runs ahead.
        defer: whether plans wait for a wave to pass; else all join at once, also where rows are
            expensive.
        batch: whether more than one plan joins at a time.
        learn: whether lengths of segments are learned.
        urgent_first: whether waiting plans join by latest start; else by arrival.
        feasible: whether plans that can no longer earn anything give way.

    `ahead`, `batch`, `urgent_first` and `feasible` are for plans where rows are cheap.
    """

    streams: Streams = field(default_factory=Streams)
    kappa: float = 1.7
    age_s: float = 10.0
    gather_s: float = 0.002
    ahead: float = 0.2
    lead_s: float = math.inf
    defer: bool = True
    batch: bool = True
    learn: bool = True
    urgent_first: bool = True
    feasible: bool = True
    whole_plans = False

    def __post_init__(self) -> None:
        self.lengths = SegmentLengths(_FIRST_GUESS, self.learn)

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the decoding plans, the joining plans that are worth most, and streams."""
        plans, streams = by_kind(generations)
        why: dict[str, Reason] | None = {} if self.explain else None
        waiting, pressing, ahead, wake_s = self._by_need(plans, now, step_time)
        if why is not None:
            why |= {g.key: Reason(Cause.NOT_DUE, g.due_s - now) for g in plans}
            why |= {g.key: Reason(Cause.NEEDED, g.due_s - now) for g in pressing}
            why |= {g.key: Reason(Cause.AHEAD_LIMIT, g.due_s - now) for g in ahead}
            why |= {g.key: Reason(Cause.BEHIND, LOOK_AT) for g in waiting}
        if waiting and not pressing and not ahead:
            gather_s = self._gathers_until_s(waiting)
            if now < gather_s - _TICK_S:
                if why is None:
                    return StepPlan(wake_s=min(gather_s, wake_s))
                why |= {g.key: Reason(Cause.GATHERS, gather_s - now) for g in (*waiting, *streams)}
                return StepPlan(wake_s=min(gather_s, wake_s), reasons=tuple(why.items()))
        needed_soon = len(pressing) + len(waiting)
        expensive = self.defer and rows_are_expensive(needed_soon, step_time)
        if needed_soon or streams:
            ahead = [] if expensive else ahead[: self._affordable(step_time)]
        if why is not None:
            why |= {g.key: Reason(Cause.AHEAD, g.due_s - now) for g in ahead}
        first = pressing
        if waiting or expensive:
            kappa = self.kappa / needed_soon if expensive else self.kappa
            rows = [self._deliverable(generation, kappa) for generation in pressing]
            queue = [self._deliverable(generation, kappa) for generation in waiting]
            step = PlanStep(now, rows, ahead, generations, step_time, capacity, why)
            if expensive:
                first, queue = select_batch(queue, step, step_time, capacity.max_rows, why)
            else:
                queue = self._in_order(queue, step)
                look = step.possible(queue)
                number = self._number(look, step)
                joining = [d.generation for d in look[:number]]
                if why is not None:
                    why |= worth_of(look, number, now, step.step_s)
                first = [*pressing, *joining]
            if not first and not ahead:
                first = step.alone(queue)
                wake_s = min(wake_s, step.next_start_s(queue))
                if why is not None:
                    why |= {g.key: Reason(Cause.ALONE) for g in first}
        if len(first) > capacity.max_rows:
            first.sort(key=lambda generation: generation.due_s)
        self.lengths.watch([*first, *ahead])
        batch: list[Generation] = [*first, *ahead]
        selection = StreamSelection()
        if not streams:
            self.streams.clear()
        else:
            plan_load = self._plan_load(
                now, first, ahead, [*pressing, *waiting], step_time, capacity
            )
            selection = self.streams.choose(now, streams, plan_load, step_time, why)
            batch += selection.streams
            tokens = sum(plan.to_compute for plan in (*first, *ahead)) + selection.tokens
            capacity = replace(capacity, max_step_tokens=min(tokens, capacity.max_step_tokens))
        plan = pack(batch, generations, capacity, why=why)
        if streams and not plan:
            # No chosen generation fits: take the streams with least to compute.
            plan = pack(sorted(streams, key=_tokens_to_compute), generations, capacity, why=why)
            if why is not None:
                why |= dict.fromkeys(plan.keys, Reason(Cause.ALONE))
                plan = replace(plan, reasons=tuple(why.items()))
        if batch and not plan:
            wake_s = math.inf  # the batch needs more than all memory: waiting does not help
        evictable = plan.evictable
        if evictable:
            last, spent = {g.key for g in pressing}, selection.evictable_first
            evictable = tuple(sorted(evictable, key=lambda key: (key in last, key not in spent)))
        return StepPlan(plan.entries, evictable, wake_s, plan.reasons)

    def _by_need(
        self, plans: Sequence[PlanGeneration], now: float, step_time: StepTime
    ) -> tuple[list[PlanGeneration], list[PlanGeneration], list[PlanGeneration], float]:
        """Return waiting plans, decoding plans due soon, run-ahead plans, and the next wake time.

        Run-ahead plans are in order of due time. A resting plan wakes `lead_s` before its robot is
        idle.
        """
        waiting, pressing, ahead, wake_s = [], [], [], math.inf
        soon_s = LONGEST_SEGMENT * step_time.predict_s(1)
        for generation in plans:
            spare_s = -math.inf if generation.first else generation.robot_free_s - now
            if generation.to_compute > 1:
                waiting.append(generation)
            elif spare_s <= soon_s:
                pressing.append(generation)
            elif spare_s <= self.lead_s:
                ahead.append(generation)
            else:
                wake_s = min(wake_s, generation.robot_free_s - self.lead_s)
        ahead.sort(key=lambda generation: generation.robot_free_s)
        return waiting, pressing, ahead, wake_s

    def _affordable(self, step_time: StepTime) -> int:
        """Return how many plans may run ahead in a contended step."""
        room_s = self.ahead * step_time.predict_s(1)
        return max(int(room_s / max(step_time.coefficients[1], 1e-9)), 1)

    def _plan_load(
        self,
        now: float,
        first: Sequence[PlanGeneration],
        ahead: Sequence[PlanGeneration],
        others: Sequence[PlanGeneration],
        step_time: StepTime,
        capacity: Capacity,
    ) -> PlanLoad:
        """Return the load of plans on a step, and the longest step that they can afford."""
        rows = [*first, *ahead]
        prompts = [plan.to_compute for plan in rows if plan.to_compute > 1]
        context = sum(plan.context_tokens for plan in rows)
        step_s = step_time.predict_s(len(rows), 0, context)
        joining = {plan.key for plan in first}
        longest_s, needs = math.inf, []
        for plan in (*first, *(plan for plan in others if plan.key not in joining)):
            tokens = mean(self.lengths.to_go(plan))
            own_s = max((plan.due_s - now) / tokens, step_s * (1.0 + self.ahead))
            needs.append(1.0 / own_s)
            if plan.key in joining:
                longest_s = min(longest_s, own_s)
        prompts_s = step_time.predict_s(len(rows), sum(prompts), context) - step_s
        return PlanLoad(
            len(rows), sum(prompts), context, longest_s + prompts_s, tuple(needs),
            capacity.free_tokens - sum(prompts) - len(rows) * LONGEST_SEGMENT, capacity.max_rows,
        )  # fmt: skip

    def _deliverable(self, generation: PlanGeneration, kappa: float) -> Deliverable:
        return Deliverable(generation, self.lengths.to_go(generation), kappa, self.age_s)

    def _in_order(self, queue: Sequence[Deliverable], step: PlanStep) -> list[Deliverable]:
        """Return waiting segments, the one with the earliest latest start first."""
        if not self.urgent_first:
            return sorted(queue, key=lambda d: d.generation.arrival_s)
        return sorted(queue, key=lambda d: d.latest_start_s(step.now, step.step_s, self.feasible))

    def _gathers_until_s(self, waiting: Sequence[PlanGeneration]) -> float:
        """Return when an engine at rest stops waiting for the rest of a burst."""
        arrivals_s = [generation.arrival_s for generation in waiting]
        return min(max(arrivals_s) + self.gather_s, min(arrivals_s) + 10 * self.gather_s)

    def _number(self, queue: Sequence[Deliverable], step: PlanStep) -> int:
        """Return how many segments of a queue join now.

        A wave has the decoding and the joining plans. Its prompts delay all of them; the rest of
        the queue begins together when the wave has passed.
        """
        total = len(queue) if self.batch else min(len(queue), 1)
        if not self.defer:
            return total
        now, step_s = step.now, step.step_s
        losing = [row for row in step.rows if step.loses(row)]
        wave = max((row.tokens_to_go for row in losing), default=1.0)
        # A sample stands for very many decoding plans.
        sample = losing[:: len(losing) // _SAMPLE + 1]
        share = len(losing) / max(len(sample), 1)
        costs_s = list(accumulate(map(step.cost_s, queue), initial=0.0))
        prompts = sum(candidate.generation.to_compute for candidate in queue)
        most_s = step.max_tokens * costs_s[-1] / max(prompts, 1)
        best, best_worth = total, -math.inf
        for number in (*(n for n in _NUMBERS if n < total), total):
            if not number and not step.running:
                continue
            cost_s = costs_s[number]
            worth = 0.0
            for row in sample:
                worth += share * row.expected(now, step_s, cost_s, most_s)
            for candidate in queue[:number]:
                worth += candidate.expected(now + cost_s, step_s)
                wave = max(wave, candidate.tokens_to_go)
            after_s = now + wave * step_s + costs_s[-1]
            for candidate in queue[number:]:
                worth += candidate.expected(after_s, step_s)
            if worth > best_worth:
                best, best_worth = number, worth
        return best


def _tokens_to_compute(generation: Generation) -> int:
    return generation.to_compute
