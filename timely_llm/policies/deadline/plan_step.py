"""A step of the policy `deadline`: what each next segment is worth, and which plans join."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise

from timely_llm.core.generation import Generation, PlanGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity
from timely_llm.policies.lengths import Outlook, mean
from timely_llm.policies.packing import Memory
from timely_llm.policies.step_time import StepTime


class Deliverable:
    """The next segment of a plan, as the policy `deadline` values it at one moment.

    The worth of a first segment is the request's time utility, clamped at 0 (Ling et al. 2024, Eq.
    1). A later segment has none. The price of an idle robot is subtracted from both; it grows with
    the idle time, so that no plan waits for ever.

    Attributes:
        outlook: distribution of the tokens to go.
        tokens_to_go: expected tokens to go.
        due_s: due time, seconds.
        zero_s: zero point, seconds.
    """

    __slots__ = (
        "_age_s",
        "_idle_from_s",
        "_price",
        "_slope",
        "_worth",
        "due_s",
        "generation",
        "outlook",
        "tokens_to_go",
        "zero_s",
    )

    def __init__(
        self, generation: PlanGeneration, outlook: Outlook, kappa: float, age_s: float
    ) -> None:
        utility, rate = generation.time_utility, generation.rate
        self.generation = generation
        self.outlook = outlook
        self.tokens_to_go = mean(outlook)
        # A request with beta 0 waits like a normal one.
        self._price = rate * kappa * (utility.beta or 1.0)
        self._age_s = age_s / rate
        if generation.segments:
            self._worth = self._slope = 0.0
            self.due_s = self.zero_s = self._idle_from_s = generation.robot_free_s
        else:
            self._worth, self._slope = utility.beta, utility.alpha
            self._idle_from_s = generation.asked_s
            self.due_s = generation.asked_s + utility.ert_s
            self.zero_s = self.due_s + utility.grace_s

    def value(self, ready_s: float) -> float:
        """Return the worth of the segment if it is ready at `ready_s`."""
        worth = self._worth
        late_s = ready_s - self.due_s
        if late_s > 0.0 and worth:
            worth = max(worth + self._slope * late_s, 0.0)
        idle_s = ready_s - self._idle_from_s
        if idle_s > 0.0:
            worth -= self._price * idle_s * (1.0 + idle_s / self._age_s)
        return worth

    def expected(
        self, begin_s: float, step_s: float, delay_s: float = 0.0, most_s: float = math.inf
    ) -> float:
        """Return the expected worth if its steps begin at `begin_s`.

        Args:
            begin_s: start of the first step, seconds.
            step_s: seconds of each step.
            delay_s: seconds that prompts of others add to these steps.
            most_s: most of that delay in one step; a short segment is not delayed by all of it.
        """
        total = 0.0
        for tokens, chance in self.outlook:
            delay = min(delay_s, tokens * most_s)
            total += chance * self.value(begin_s + tokens * step_s + delay)
        return total

    def latest_start_s(self, now: float, step_s: float, gives_way: bool = True) -> float:
        """Return the latest start at which the segment is in time.

        A segment that can no longer earn anything gives way, but not for ever: it queues as if it
        were due when waiting has become expensive.

        Args:
            now: the time, seconds.
            step_s: seconds of a step.
            gives_way: whether such a segment gives way.
        """
        in_time = now + self.tokens_to_go * step_s < self.zero_s
        if in_time or not gives_way or self.zero_s == self.due_s:
            return self.due_s - self.tokens_to_go * step_s
        return self.zero_s + self._age_s


LONGEST_SEGMENT = 16
LOOK_AT = 32


class PlanStep:
    """The step that is being planned, with its decoding plans.

    Args:
        now: start of the step, seconds.
        rows: decoding plans that are due soon.
        ahead: decoding plans that run ahead.
        everyone: all generations.
        step_time: predicted seconds of steps.
        capacity: limits of the engine.
        why: takes the reasons by key; None: no reasons.
    """

    def __init__(
        self,
        now: float,
        rows: Sequence[Deliverable],
        ahead: Sequence[PlanGeneration],
        everyone: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
        why: dict[str, Reason] | None = None,
    ) -> None:
        self.now = now
        self.rows = rows
        self._why = why
        self.running = [*(row.generation for row in rows), *ahead]
        _, self._row_s, self._prefill_token_s, self._context_token_s = step_time.coefficients
        context = sum(generation.context_tokens for generation in self.running)
        self.step_s = step_time.predict_s(len(self.running), 0, context)
        self.max_tokens = capacity.max_step_tokens
        keys = {generation.key for generation in self.running}
        resting = [generation for generation in everyone if generation.key not in keys]
        self._memory = Memory(self.running, resting, capacity, step_time, LONGEST_SEGMENT)

    def possible(self, queue: Sequence[Deliverable]) -> list[Deliverable]:
        """Return the first plans of a queue that the memory can hold."""
        found: list[Deliverable] = []
        for candidate in queue:
            if len(found) == LOOK_AT:
                break
            if self._memory.has_room(candidate.generation, self.now):
                self._memory.promise(candidate.generation)
                found.append(candidate)
            elif self._why is not None:
                key = candidate.generation.key
                self._why[key] = self._memory.refusal(candidate.generation)
        return found

    def alone(self, queue: Sequence[Deliverable]) -> list[PlanGeneration]:
        """Return the first plan of a queue that fits alone; empty: none does."""
        for candidate in queue:
            if self._memory.has_room_alone(candidate.generation, self.now):
                return [candidate.generation]
        return []

    def next_start_s(self, queue: Sequence[Deliverable]) -> float:
        """Return when a plan of a queue may evict others."""
        return self._memory.next_start_s((d.generation for d in queue), self.now)

    def loses(self, row: Deliverable) -> bool:
        """Return whether a longer step can cost a decoding plan worth."""
        return row.generation.first or self.now + row.tokens_to_go * self.step_s > row.due_s

    def cost_s(self, candidate: Deliverable) -> float:
        """Return the seconds by which a joining plan delays the others."""
        prompt = candidate.generation.to_compute
        context = candidate.generation.context_tokens
        prompt_s = self._prefill_token_s * prompt + self._context_token_s * context
        row_s = self._row_s + self._context_token_s * (context + prompt)
        return prompt_s + row_s * (candidate.tokens_to_go - 1)


_EXPENSIVE = 2.0
_ALIKE = 3


def rows_are_expensive(rows: int, step_time: StepTime) -> bool:
    """Return whether a step of `rows` takes more than twice as long as one of a single row."""
    return rows > 1 and step_time.predict_s(rows) > _EXPENSIVE * step_time.predict_s(1)


def worth_of(
    line: Sequence[Deliverable], number: int, now: float, step_s: float
) -> dict[str, Reason]:
    """Return why the first of a line join and the others do not: what each is worth now."""
    return {
        one.generation.key: Reason(
            Cause.WORTH_MOST if place < number else Cause.WORTH_LESS, one.expected(now, step_s)
        )
        for place, one in enumerate(line)
    }


def select_batch(
    queue: Sequence[Deliverable],
    step: PlanStep,
    step_time: StepTime,
    most: int,
    why: dict[str, Reason] | None = None,
) -> tuple[list[PlanGeneration], list[Deliverable]]:
    """Select a batch where decode rows are expensive, from decoding and waiting plans.

    Args:
        queue: waiting plans.
        step: the step with its decoding plans.
        step_time: predicted seconds of steps.
        most: most rows of the engine.
        why: takes the reasons by key; None: no reasons.

    Returns:
        The batch, shortest prompts first, and the waiting plans by loss of waiting.
    """
    everyone = by_loss_of_waiting([*step.rows, *queue], step.now, step_time)
    queue = [d for d in everyone if d.generation.to_compute > 1]
    able = {*step.rows, *step.possible(queue)}
    ranked = [d for d in everyone if d in able]
    line = ranked[:most]
    number = best_batch_size(line, step.now, step_time)
    first = [d.generation for d in line[:number]]
    if why is not None:
        why |= worth_of(line, number, step.now, step.step_s)
        why |= {d.generation.key: Reason(Cause.ROWS, most) for d in ranked[most:]}
    return sorted(first, key=lambda generation: generation.to_compute), queue


def by_loss_of_waiting(
    everyone: Sequence[Deliverable], now: float, step_time: StepTime
) -> list[Deliverable]:
    """Return segments by falling loss of waiting per second of the engine."""
    one_s = step_time.predict_s(1)
    tokens = sum(one.tokens_to_go for one in everyone)
    wave_s = step_time.predict_s(len(everyone)) * tokens / max(len(everyone), 1)

    def lost(one: Deliverable) -> float:
        prompt_s = _prompt_s(one, step_time)
        begin_s = now + prompt_s
        loss = one.expected(begin_s, one_s) - one.expected(begin_s + wave_s, one_s)
        return loss / (prompt_s + one.tokens_to_go * one_s)

    return sorted(everyone, key=lost, reverse=True)


def best_batch_size(line: Sequence[Deliverable], now: float, step_time: StepTime) -> int:
    """Return how many segments of a line share the step.

    The others begin together when this wave has passed. The first segments of the line are valued
    one by one, the later ones in growing groups by a middle member.
    """
    total = len(line)
    ends = [0]
    while ends[-1] < total:
        ends.append(min(ends[-1] + 1 + ends[-1] // _ALIKE, total))
    groups = [(line[(begin + end) // 2], end - begin) for begin, end in pairwise(ends)]
    prompts_s = list(accumulate((_prompt_s(one, step_time) for one in line), initial=0.0))
    waves = list(accumulate((one.tokens_to_go for one in line), max, initial=0.0))
    best, best_worth = total, -math.inf
    for taken, number in enumerate(ends[1:], start=1):
        begin_s, step_s = now + prompts_s[number], step_time.predict_s(number)
        after_s = now + prompts_s[total] + waves[number] * step_s
        later_s = step_time.predict_s(total - number)
        worth = 0.0
        for one, weight in groups[:taken]:
            worth += weight * one.expected(begin_s, step_s)
        for one, weight in groups[taken:]:
            worth += weight * one.expected(after_s, later_s)
        if worth >= best_worth:
            best, best_worth = number, worth
    return best


def _prompt_s(one: Deliverable, step_time: StepTime) -> float:
    return step_time.coefficients[2] * (one.generation.to_compute - 1)
