"""Plans under the policy `deadline`: what each next segment is worth, and which share a wave."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from operator import attrgetter

from timely_llm.core.generation import PlanGeneration
from timely_llm.policies.lengths import Outlook
from timely_llm.policies.step_time import StepTime

AGE_S = 10.0
"""Idle time after which the price of an idle robot has doubled, seconds."""

LONGEST_SEGMENT = 16
"""Tokens of the longest segment that memory is kept for."""

EXPENSIVE = 2.0
"""Rows are expensive if a step of all takes more than this times one of one row."""

_WINDOW_S = 20.0  # in which newcomers are counted
_ENOUGH = 0.1  # of the engine for prompts of newcomers, before they count
_FORGOTTEN_S = 1e-3  # of the window; less of it counts as none
_MOST = 0.8  # of the engine: then all takes five times as long
_CHEAP = 8  # rows that must be cheap, or newcomers do not count
_FEW = 8  # numbers that are all tried; of more, strides grow after the first eight
_MOST_BETA = 1e9  # a client's beta may be any number


Terms = tuple[float, tuple[tuple[float, float], ...], float, float, float, float, float, float]
"""What says the worth of a segment at a time, as `add_worth` reads it.

The number of segments that are alike, (tokens to go, chance) of each length, the worth, its slope
after the due time, the due time, when the robot is idle, the price of that a second, and its growth
a second.
"""


class Deliverable:
    """The next segment of a plan, as the policy `deadline` values it at one moment.

    The worth of a first segment is the request's time utility, clamped at 0 (Ling et al. 2024, Eq.
    1). A later segment has none. The price of an idle robot is subtracted from both; it grows with
    the idle time, so that no plan waits for ever.

    Args:
        generation: the plan.
        outlook: distribution of the tokens to go.
        prompt_s: seconds that its prompt adds to a step.
        kappa: price of an idle robot, per second, as a share of its request's worth.
        urgent: exponent of the request's worth.

    Attributes:
        tokens: expected tokens to go.
        density: worth that it loses in the next wave, per second of the engine.
    """

    __slots__ = ("density", "generation", "prompt_s", "terms", "tokens")

    def __init__(
        self,
        generation: PlanGeneration,
        outlook: Outlook,
        prompt_s: float,
        kappa: float,
        urgent: float,
    ) -> None:
        utility, rate = generation.time_utility, generation.robot_time.rate
        worth, slope, price = _scaled(utility.beta, utility.alpha, rate * kappa, urgent)
        lengths, self.tokens = outlook
        self.generation = generation
        self.prompt_s = prompt_s
        self.density = 0.0
        if generation.segments:
            worth = slope = 0.0
            due_s = idle_from_s = generation.robot_free_s
        else:
            idle_from_s = generation.asked_s
            due_s = idle_from_s + utility.ert_s
        self.terms = 1.0, lengths, worth, slope, due_s, idle_from_s, price, price * rate / AGE_S

    def expected(self, begin_s: float, step_s: float) -> float:
        """Return the expected worth if its steps of `step_s` seconds begin at `begin_s`."""
        return add_worth(0.0, (self.terms,), begin_s, step_s)

    def idle_s(self, now: float) -> float:
        """Return for how long its robot has been idle, seconds; below 0 if it is busy."""
        return now - self.terms[5]

    def own_step_s(self, now: float) -> float:
        """Return the longest step with which it is in time, seconds; not above 0 if it is late."""
        return (self.terms[4] - now) / self.tokens


def add_worth(total: float, groups: Iterable[Terms], begin_s: float, step_s: float) -> float:
    """Return a total and the expected worth of segments in steps of `step_s` from `begin_s` on.

    Args:
        total: the worth of others.
        groups: the terms of each segment, or of one that stands for some others.
        begin_s: when their steps begin, seconds.
        step_s: seconds of a step.
    """
    for members, lengths, worth, slope, due_s, idle_from_s, price, aging in groups:
        expected = 0.0
        for tokens, chance in lengths:
            ready_s = begin_s + tokens * step_s
            if ready_s <= due_s:
                earned = worth
            elif (earned := worth + slope * (ready_s - due_s)) < 0.0:
                earned = 0.0
            idle_s = ready_s - idle_from_s
            if idle_s > 0.0:
                earned -= idle_s * (price + idle_s * aging)
            expected += chance * earned
        total += members * expected
    return total


def by_loss(line: Sequence[Deliverable], now: float, step_time: StepTime) -> list[Deliverable]:
    """Return segments by what each loses per second of the engine if it runs last."""
    one_s = step_time.predict_s(1)
    tokens = sum([one.tokens for one in line])
    wave_s = step_time.predict_s(len(line)) * tokens / max(len(line), 1)
    wave_s += sum([one.prompt_s for one in line])
    for one in line:
        begin_s, alone = now + one.prompt_s, (one.terms,)
        loss = add_worth(0.0, alone, begin_s, one_s)
        loss -= add_worth(0.0, alone, begin_s + wave_s, one_s)
        one.density = loss / (one.prompt_s + one.tokens * one_s)
    return sorted(line, key=attrgetter("density"), reverse=True)


def wave_size(
    line: Sequence[Deliverable],
    now: float,
    step_time: StepTime,
    least: int = 1,
    slowdown: float = 1.0,
) -> int:
    """Return how many segments of a line share the next wave.

    With n of them in it, they decode in steps of n rows after their prompts. The others begin
    together when that wave has passed. The n with the largest total expected worth is best. Of long
    lines, n grows in strides, one member of each stride stands for all of it, and the search goes
    on around the best of n = 1, 2, 4, 8, ... strides.

    Args:
        line: the segments.
        now: the time, seconds.
        step_time: predicted seconds of steps.
        least: how many share it in any case.
        slowdown: by which steps take longer for those that wait, since others come meanwhile.
    """
    total = len(line)
    if total <= least:
        return total
    ends = _strides(least, total)
    groups = []
    for begin, end in pairwise(ends):
        terms = line[(begin + end) // 2].terms
        groups.append(terms if end - begin == 1 else (float(end - begin), *terms[1:]))
    prompts_s = list(accumulate([one.prompt_s for one in line], initial=0.0))
    waves = list(accumulate([one.tokens for one in line], max, initial=0.0))

    @cache
    def worth(taken: int) -> tuple[float, int]:
        """Return the worth of all if that many groups share the wave; equals: the larger wave."""
        number = ends[taken]
        step_s = step_time.predict_s(number)
        after_s = now + prompts_s[total] + waves[number] * step_s * slowdown
        value = add_worth(0.0, groups[:taken], now + prompts_s[number], step_s)
        later_s = step_time.predict_s(total - number) * slowdown
        return add_worth(value, groups[taken:], after_s, later_s), taken

    first, last = ends.index(least), len(groups)
    if last - first <= _FEW:
        return ends[max(range(first, last + 1), key=worth)]
    doubling = (first + 2**power for power in range((last - first).bit_length()))
    best: int = max((first, *doubling, last), key=worth)
    step = max(best - first, 2) // 2
    while step:
        near = (best - step, best, best + step)
        best = max((taken for taken in near if first <= taken <= last), key=worth)
        step //= 2
    return ends[best]


@lru_cache(maxsize=1024)
def _strides(least: int, total: int) -> Sequence[int]:
    """Return ends of strides: a coarse division up to `least`, a finer one from there on."""
    ends = [0]
    while ends[-1] < least:
        ends.append(min(ends[-1] + 1 + ends[-1] // 2, least))
    grow = total - least > _FEW
    while ends[-1] < total:
        ends.append(min(ends[-1] + 1 + grow * (ends[-1] - least) // _FEW, total))
    return ends


@lru_cache(maxsize=1024)
def _scaled(beta: float, alpha: float, kappa: float, urgent: float) -> tuple[float, float, float]:
    """Return the worth of a request, its slope, and the price of its idle robot a second."""
    scale = 1.0
    if beta:  # can be raised to any exponent
        beta = min(max(beta, 1.0 / _MOST_BETA), _MOST_BETA)
        scale = beta ** (urgent - 1.0)
    # A request with beta 0 waits like a normal one.
    return scale * beta, scale * alpha, kappa * scale * (beta or 1.0)


class Newcomers:
    """Share of the engine for prompts of plans that come while others are left behind.

    Newcomers join before those that were left behind, or with them. If their prompts take a share
    `rho` of the engine, other work of `t` seconds takes `t / (1 - rho)`. They do not count where
    plans seldom wait, as after a burst, nor where a larger batch saves little: where rows are
    expensive, or where a prompt takes longer than a step of one row.

    Attributes:
        slowdown: `1 / (1 - rho)`.
    """

    def __init__(self) -> None:
        self.slowdown = 1.0
        self._last_s = -math.inf  # the last decision
        self._left_behind = False
        self._waited_s = self._prompts_s = 0.0

    def look(self, now: float, plans: Iterable[PlanGeneration], step_time: StepTime) -> None:
        """Note what has come since the last decision.

        Args:
            now: the time, seconds.
            plans: those that are needed soon.
            step_time: of steps.
        """
        last_s, self._last_s = self._last_s, now
        if not (self._left_behind or self._waited_s or self._prompts_s):
            return
        fade = math.exp((last_s - now) / _WINDOW_S)
        self._waited_s *= fade
        self._prompts_s *= fade
        if self._left_behind:
            self._waited_s += _WINDOW_S * (1.0 - fade)
            new = [g for g in plans if g.arrival_s > last_s and not g.segments]
            self._prompts_s += _shared_prompts_s(new, step_time) if new else 0.0
            self._left_behind = False
        elif self._waited_s < _FORGOTTEN_S:
            self._waited_s = self._prompts_s = 0.0
        share = 0.0
        if self._prompts_s > _ENOUGH * _WINDOW_S:
            share = self._prompts_s / max(self._waited_s, self._prompts_s)
        self.slowdown = 1.0 / (1.0 - min(share, _MOST))

    def leave_behind(self, now: float) -> None:
        """Note that this decision leaves plans behind."""
        self._last_s, self._left_behind = now, True


def _shared_prompts_s(plans: Iterable[PlanGeneration], step_time: StepTime) -> float:
    """Return the seconds of prompts that save time by sharing a step."""
    one_s, token_s = step_time.predict_s(1), step_time.coefficients[2]
    if step_time.predict_s(_CHEAP) > EXPENSIVE * one_s:
        return 0.0
    prompts_s = [token_s * plan.to_compute for plan in plans]
    return sum([seconds for seconds in prompts_s if seconds <= one_s])
