"""Who shares a step where rows are dear, of those who decode and those who wait.

Two questions. *What does it lose if it goes after all the others*, for each second of the engine
that it takes alone: who loses most goes first. *How many of this line share the step*, and the
others one after this wave: the sum of what everybody gets for the next segment says that too. Who
can earn nothing any more has little to lose, and is not forgotten: its price grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from timely_llm.core.generation import PlanGeneration
from timely_llm.policies.deliverable import Deliverable
from timely_llm.policies.plan_step import PlanStep
from timely_llm.policies.step_time import StepTime

_DEAR = 2.0
_ALIKE = 3


def are_dear(rows: int, step_time: StepTime) -> bool:
    """Return whether a step of so many takes more than twice as long as one of a single row."""
    return rows > 1 and step_time.predict_s(rows) > _DEAR * step_time.predict_s(1)


def sharing(
    queue: Sequence[Deliverable], step: PlanStep, step_time: StepTime, most: int
) -> tuple[list[PlanGeneration], list[Deliverable]]:
    """Return who shares a step, shortest prompts first, and the queue in order of what it loses.

    Args:
        queue: who waits.
        step: with those who decode.
        step_time: how long steps take.
        most: rows of the engine.
    """
    everyone = most_lost_first([*step.rows, *queue], step.now, step_time)
    queue = [d for d in everyone if d.generation.to_compute > 1]
    able = {*step.rows, *step.possible(queue)}
    line = [d for d in everyone if d in able][:most]
    first = [d.generation for d in line[: worth_most(line, step.now, step_time)]]
    return sorted(first, key=lambda generation: generation.to_compute), queue


def most_lost_first(
    everyone: Sequence[Deliverable], now: float, step_time: StepTime
) -> list[Deliverable]:
    """Return them in the order of what they lose by waiting, a second of the engine."""
    one_s = step_time.predict_s(1)
    tokens = sum(one.tokens_to_go for one in everyone)
    wave_s = step_time.predict_s(len(everyone)) * tokens / max(len(everyone), 1)

    def lost(one: Deliverable) -> float:
        prompt_s = _prompt_s(one, step_time)
        begin_s = now + prompt_s
        loss = one.expected(begin_s, one_s) - one.expected(begin_s + wave_s, one_s)
        return loss / (prompt_s + one.tokens_to_go * one_s)

    return sorted(everyone, key=lost, reverse=True)


def worth_most(line: Sequence[Deliverable], now: float, step_time: StepTime) -> int:
    """Return how many of a line share the step.

    Those after them begin when the wave has passed, all at once. The first of the line are looked
    at one by one, then in groups that grow: one of its middle stands for each.
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
