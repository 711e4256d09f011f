"""Plans under the policy `deadline`: what each next segment is worth, and which share a wave."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise

from timely_llm.core.generation import PlanGeneration
from timely_llm.policies.lengths import Outlook, mean
from timely_llm.policies.step_time import StepTime

AGE_S = 10.0
"""Idle time after which the price of an idle robot has doubled, seconds."""

_EXACT = 8
_MOST_BETA = 1e9  # a client's beta may be any number


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

    __slots__ = (
        "_age_s",
        "_due_s",
        "_idle_from_s",
        "_outlook",
        "_price",
        "_slope",
        "_worth",
        "density",
        "generation",
        "prompt_s",
        "tokens",
    )

    def __init__(
        self,
        generation: PlanGeneration,
        outlook: Outlook,
        prompt_s: float,
        kappa: float,
        urgent: float,
    ) -> None:
        utility, rate = generation.time_utility, generation.rate
        beta = min(max(utility.beta, 1.0 / _MOST_BETA), _MOST_BETA) if utility.beta else 0.0
        scale = beta ** (urgent - 1.0) if beta else 1.0
        self.generation = generation
        self.tokens = mean(outlook)
        self.prompt_s = prompt_s
        self.density = 0.0
        self._outlook = outlook
        # A request with beta 0 waits like a normal one.
        self._price = rate * kappa * scale * (beta or 1.0)
        self._age_s = AGE_S / rate
        if generation.segments:
            self._worth = self._slope = 0.0
            self._due_s = self._idle_from_s = generation.robot_free_s
        else:
            self._worth, self._slope = scale * beta, scale * utility.alpha
            self._idle_from_s = generation.asked_s
            self._due_s = generation.asked_s + utility.ert_s

    def expected(self, begin_s: float, step_s: float) -> float:
        """Return the expected worth if its steps of `step_s` seconds begin at `begin_s`."""
        total = 0.0
        for tokens, chance in self._outlook:
            ready_s = begin_s + tokens * step_s
            worth = self._worth
            if worth and ready_s > self._due_s:
                worth = max(worth + self._slope * (ready_s - self._due_s), 0.0)
            idle_s = ready_s - self._idle_from_s
            if idle_s > 0.0:
                worth -= self._price * idle_s * (1.0 + idle_s / self._age_s)
            total += chance * worth
        return total

    def idle_s(self, now: float) -> float:
        """Return for how long its robot has been idle, seconds; below 0 if it is busy."""
        return now - self._idle_from_s

    def own_step_s(self, now: float) -> float:
        """Return the longest step with which it is in time, seconds; not above 0 if it is late."""
        return (self._due_s - now) / self.tokens


def by_loss(line: Sequence[Deliverable], now: float, step_time: StepTime) -> list[Deliverable]:
    """Return segments by what each loses per second of the engine if it runs last."""
    one_s = step_time.predict_s(1)
    tokens = sum(one.tokens for one in line)
    wave_s = step_time.predict_s(len(line)) * tokens / max(len(line), 1)
    wave_s += sum(one.prompt_s for one in line)
    for one in line:
        begin_s = now + one.prompt_s
        loss = one.expected(begin_s, one_s) - one.expected(begin_s + wave_s, one_s)
        one.density = loss / (one.prompt_s + one.tokens * one_s)
    return sorted(line, key=_density, reverse=True)


def best_prefix(line: Sequence[Deliverable], now: float, step_time: StepTime) -> int:
    """Return how many segments of a line share the next wave.

    With n of them in it, they decode in steps of n rows after their prompts. The others begin
    together when that wave has passed. The n with the largest total expected worth is best. The
    first numbers are tried one by one, the later ones in growing strides, with one member of each
    stride in place of all its members.
    """
    total = len(line)
    if total < 2:
        return total
    ends = [0]
    while ends[-1] < total:
        ends.append(min(ends[-1] + 1 + ends[-1] // _EXACT, total))
    groups = [(line[(begin + end) // 2], end - begin) for begin, end in pairwise(ends)]
    prompts_s = list(accumulate((one.prompt_s for one in line), initial=0.0))
    waves = list(accumulate((one.tokens for one in line), max, initial=0.0))

    @cache
    def worth(taken: int) -> float:
        """Return the worth of all if that many groups share the wave."""
        number = ends[taken]
        begin_s, step_s = now + prompts_s[number], step_time.predict_s(number)
        after_s = now + prompts_s[total] + waves[number] * step_s
        later_s = step_time.predict_s(total - number)
        value = 0.0
        for one, weight in groups[:taken]:
            value += weight * one.expected(begin_s, step_s)
        for one, weight in groups[taken:]:
            value += weight * one.expected(after_s, later_s)
        return value

    tried = [
        *range(1, min(_EXACT, len(groups)) + 1),
        *range(_EXACT + 2, len(groups), 2),
        len(groups),
    ]
    best = max(tried, key=lambda taken: (worth(taken), taken))
    near = range(max(best - 1, 1), min(best + 1, len(groups)) + 1)
    return ends[max(near, key=lambda taken: (worth(taken), taken))]


def _density(one: Deliverable) -> float:
    return one.density
