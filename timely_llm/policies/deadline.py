"""Our policy: every deliverable has a due time and a worth.

Where rows are cheap, who decodes goes on: beside the fixed part of a step, a row costs next to
nothing, and every step that is shared is a step saved. What delays others is prompts. So before
each step one question is asked: *how many of those who wait join now*, and the others after this
wave? Each answer is worth the sum of what everybody gets for the next segment; the best one is
taken. Batched admission, urgent requests first, deferral of those who have time or whose time has
passed, and running ahead when there is room all follow from that one sum.

Where rows are dear, who decodes is asked too, as if nobody had begun: those who lose most by
waiting go first, as many as are worth most together (`shared_step`). There somebody is idle
whoever goes first, so the price of that is shared by all, and nobody runs ahead.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from timely_llm.core.generation import Generation, PlanGeneration, by_kind
from timely_llm.policies.contract import Capacity, StepPlan
from timely_llm.policies.deliverable import Deliverable
from timely_llm.policies.lengths import Lengths, mean
from timely_llm.policies.packing import pack
from timely_llm.policies.plan_step import LONGEST_SEGMENT, PlanStep
from timely_llm.policies.shared_step import are_dear, sharing
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.stream_step import Beside
from timely_llm.policies.streams import Choice, StreamOptions, Streams

_FIRST_GUESS = 8
_SAMPLE = 24
_TICK_S = 1e-6

# Of those who wait, so many are tried: among few, one more or less matters.
_NUMBERS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24)


@dataclass(eq=False)
class Deadline(StreamOptions):
    """Every wave of newcomers is as large as it is worth most.

    Options that are not named here are for streams, see `StreamOptions`.

    Attributes:
        kappa: price of a robot that has nothing to do, a second, as a share of its request's worth.
        age_s: after so long the price has doubled; and so long after its worth is spent, a request
            stands in line like one that is due.
        gather_s: an engine at rest waits so long for the others of a burst, whose prompts then
            share a step; it waits ten times as long at most.
        ahead: by this share of a step those whose robots are busy may make it longer, while others
            have something to lose.
        lead_s: a plan rests until so long before its robot will be idle; infinite: it runs ahead.
        defer: whether anyone waits for a wave to pass; or everyone joins at once, also where rows
            are dear.
        batch: whether more than one joins at a time.
        learn: whether lengths of segments are learned.
        urgent_first: whether those who wait join in order of their latest start, or of arrival.
        feasible: whether those who can no longer earn anything give way.

    `ahead`, `batch`, `urgent_first` and `feasible` are for plans where rows are cheap.
    """

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
        self.lengths = Lengths(_FIRST_GUESS, self.learn)
        self.streams = Streams(self)

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return those who decode, and of those who wait the number that is worth most."""
        plans, streams = by_kind(generations)
        waiting, pressing, ahead, wake_s = self._by_need(plans, now, step_time)
        if waiting and not pressing and not ahead:
            gather_s = self._gathers_until_s(waiting)
            if now < gather_s - _TICK_S:
                return StepPlan(wake_s=min(gather_s, wake_s))
        needed_soon = len(pressing) + len(waiting)
        dear = self.defer and are_dear(needed_soon, step_time)
        if needed_soon or streams:
            ahead = [] if dear else ahead[: self._affordable(step_time)]
        first = pressing
        if waiting or dear:
            kappa = self.kappa / needed_soon if dear else self.kappa
            rows = [self._deliverable(generation, kappa) for generation in pressing]
            queue = [self._deliverable(generation, kappa) for generation in waiting]
            step = PlanStep(now, rows, ahead, generations, step_time, capacity)
            if dear:
                first, queue = sharing(queue, step, step_time, capacity.max_rows)
            else:
                queue = self._in_order(queue, step)
                look = step.possible(queue)
                joining = [d.generation for d in look[: self._number(look, step)]]
                first = [*pressing, *joining]
            if not first and not ahead:
                first = step.alone(queue)
                wake_s = min(wake_s, step.next_start_s(queue))
        if len(first) > capacity.max_rows:
            first.sort(key=lambda generation: generation.due_s)
        self.lengths.watch([*first, *ahead])
        batch: list[Generation] = [*first, *ahead]
        choice = Choice()
        if not streams:
            self.streams.rest()
        else:
            beside = self._beside(now, first, ahead, [*pressing, *waiting], step_time, capacity)
            choice = self.streams.choose(now, streams, beside, step_time)
            batch += choice.streams
            tokens = sum(plan.to_compute for plan in (*first, *ahead)) + choice.tokens
            capacity = replace(capacity, max_step_tokens=min(tokens, capacity.max_step_tokens))
        plan = pack(batch, generations, capacity)
        if streams and not plan:
            # Whoever was chosen does not fit: then those who need least.
            plan = pack(sorted(streams, key=_tokens_to_compute), generations, capacity)
        if batch and not plan:
            wake_s = math.inf  # it outgrew all the memory there is: time does not help
        evictable = plan.evictable
        if evictable:
            last, spent = {g.key for g in pressing}, choice.evictable_first
            evictable = tuple(sorted(evictable, key=lambda key: (key in last, key not in spent)))
        return StepPlan(plan.entries, evictable, wake_s)

    def _by_need(
        self, plans: Sequence[PlanGeneration], now: float, step_time: StepTime
    ) -> tuple[list[PlanGeneration], list[PlanGeneration], list[PlanGeneration], float]:
        """Return who waits, who decodes and is needed soon, who may run ahead, and until when.

        Those ahead come in the order of need; a plan that rests is looked at when that time comes.
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
        """Return how many may run ahead while others have something to lose."""
        room_s = self.ahead * step_time.predict_s(1)
        return max(int(room_s / max(step_time.coefficients[1], 1e-9)), 1)

    def _beside(
        self,
        now: float,
        first: Sequence[PlanGeneration],
        ahead: Sequence[PlanGeneration],
        others: Sequence[PlanGeneration],
        step_time: StepTime,
        capacity: Capacity,
    ) -> Beside:
        """Return what plans take of a step, and what they can afford that streams add to it."""
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
        return Beside(
            len(rows), sum(prompts), context, longest_s + prompts_s, tuple(needs),
            capacity.free_tokens - sum(prompts) - len(rows) * LONGEST_SEGMENT, capacity.max_rows,
        )  # fmt: skip

    def _deliverable(self, generation: PlanGeneration, kappa: float) -> Deliverable:
        return Deliverable(generation, self.lengths.to_go(generation), kappa, self.age_s)

    def _in_order(self, queue: Sequence[Deliverable], step: PlanStep) -> list[Deliverable]:
        """Return those who wait, who must start first first."""
        if not self.urgent_first:
            return sorted(queue, key=lambda d: d.generation.arrival_s)
        return sorted(queue, key=lambda d: d.latest_start_s(step.now, step.step_s, self.feasible))

    def _gathers_until_s(self, waiting: Sequence[PlanGeneration]) -> float:
        """Return until when an engine at rest waits for the rest of a burst."""
        arrivals_s = [generation.arrival_s for generation in waiting]
        return min(max(arrivals_s) + self.gather_s, min(arrivals_s) + 10 * self.gather_s)

    def _number(self, queue: Sequence[Deliverable], step: PlanStep) -> int:
        """Return how many of a queue should join now.

        A wave are those who decode and those who join: its prompts delay all of them, and the
        others of the queue begin when it has passed, all at once.
        """
        total = len(queue) if self.batch else min(len(queue), 1)
        if not self.defer:
            return total
        now, step_s = step.now, step.step_s
        losing = [row for row in step.rows if step.loses(row)]
        wave = max((row.tokens_to_go for row in losing), default=1.0)
        # Of very many who decode, some stand for all.
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
