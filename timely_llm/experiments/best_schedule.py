"""The best schedule of a few requests, by exhaustive search with bounds.

It knows all arrivals and lengths. It is the best of all schedules in which the engine rests only
until the next arrival, and whoever has begun takes part in every step until its first segment is
there; each step may take in any of those who wait. Only first segments earn something.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from timely_llm.core.time_utility import TimeUtility
from timely_llm.engines.profiles import Profile
from timely_llm.experiments.simulation import Settings
from timely_llm.experiments.workload import Work

_ENOUGH = 1e-3
"""A schedule that is better by less is not looked for."""


def best_utility(works: Sequence[Work], settings: Settings, known: float = 0.0) -> float:
    """Return the utility of the best schedule of a few requests.

    Args:
        works: the requests.
        settings: their prompts and the step times.
        known: a utility that can be reached: what cannot exceed it is not looked at.
    """
    return _Search(works, settings.profile, settings.own_tokens, known).best()


_Running = tuple[tuple[int, int], ...]
"""(request, tokens to go) of those who take part in every step."""


class _Search:
    """Branch and bound over who joins at each step."""

    def __init__(
        self, works: Sequence[Work], profile: Profile, prompt_tokens: int, known: float
    ) -> None:
        self._arrivals_s = [work.arrival_s for work in works]
        self._utilities: list[TimeUtility] = [work.job.time_utility for work in works]
        self._tokens = [work.parts[0].tokens for work in works]
        self._profile = profile
        self._prompt_tokens = prompt_tokens
        self._best = known

    def best(self) -> float:
        """Return the most utility."""
        self._look(min(self._arrivals_s), 0.0, tuple(range(len(self._tokens))), ())
        return self._best

    def _look(self, now: float, earned: float, unbegun: tuple[int, ...], running: _Running) -> None:
        """Try everything that can follow when so much has been earned."""
        if not unbegun and not running:
            self._best = max(self._best, earned)
            return
        if earned + self._bound(now, unbegun, running) <= self._best + _ENOUGH:
            return
        waiting = [one for one in unbegun if self._arrivals_s[one] <= now]
        for joining in _subsets(waiting):
            if joining or running:
                self._step(now, earned, unbegun, running, joining)
        later_s = [self._arrivals_s[one] for one in unbegun if self._arrivals_s[one] > now]
        if not running and later_s:
            self._look(min(later_s), earned, unbegun, ())

    def _step(
        self,
        now: float,
        earned: float,
        unbegun: tuple[int, ...],
        running: _Running,
        joining: Sequence[int],
    ) -> None:
        """Let these join the next step, and try everything that can follow."""
        end_s = now + self._profile.step_s(len(running), len(joining) * self._prompt_tokens)
        left = [(one, tokens - 1) for one, tokens in running]
        left += [(one, self._tokens[one] - 1) for one in joining]
        earned += math.fsum(self._utility(one, end_s) for one, tokens in left if not tokens)
        going = tuple((one, tokens) for one, tokens in left if tokens)
        self._look(end_s, earned, tuple(one for one in unbegun if one not in joining), going)

    def _bound(self, now: float, unbegun: tuple[int, ...], running: _Running) -> float:
        """Return no less than what can still be earned: as if each one had the engine alone."""
        step_s = self._profile.step_s(1)
        total = 0.0
        for one, tokens in running:
            total += self._utility(one, now + tokens * step_s)
        first_s = self._profile.step_s(0, self._prompt_tokens)
        for one in unbegun:
            begin_s = max(now, self._arrivals_s[one])
            total += self._utility(one, begin_s + first_s + (self._tokens[one] - 1) * step_s)
        return total

    def _utility(self, one: int, ready_s: float) -> float:
        return self._utilities[one].clamped(ready_s - self._arrivals_s[one])


def _subsets(waiting: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all subsets, the largest ones first."""
    for size in range(len(waiting), -1, -1):
        yield from combinations(waiting, size)
