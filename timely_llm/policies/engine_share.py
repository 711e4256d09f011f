"""What needs take of the engine's time, together and a token (paper 000, Eq. 7, real rates)."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from itertools import accumulate
from operator import neg

_MOST_ROWS = 32


class TokenCost:
    """What a token takes of the engine, by how urgently it is needed.

    Of the steps that are short enough for a need, the cheapest shares its time among most rows: who
    has time can be served with many others, who has none needs the engine nearly for itself.

    Args:
        step_s: seconds of a step by its rows.
        rows: most that there can be.
        util: share of the engine's time that may be promised.

    Attributes:
        alone_s: seconds of a step of one row.
        most: tokens a second that may be promised to one.
    """

    def __init__(self, step_s: Callable[[int], float], rows: int, util: float) -> None:
        self._steps_s = [step_s(count) for count in range(1, min(rows, _MOST_ROWS) + 1)]
        shares_s = (step / count for count, step in enumerate(self._steps_s, start=1))
        self._costs_s = list(accumulate(shares_s, min))
        self.alone_s = self._steps_s[0]
        self.most = util / self.alone_s

    def seconds(self, need: float) -> float:
        """Return the engine's seconds for a token where so many a second are needed."""
        return self._costs_s[max(bisect_right(self._steps_s, 1.0 / need) - 1, 0)]


class EngineShare:
    """Rates that are promised together.

    Who needs most tokens a second takes part in every step, and the others in as many as they
    need: then steps of 1, 2, ... rows take `sum((need[i] - need[i + 1]) * s(i))` of each second.
    Eq. 7 has this with whole numbers of columns; there is no cycle here, so rates are real numbers.

    Args:
        step_s: seconds of a step by its rows.
        needs: tokens a second of those who have theirs already.
    """

    def __init__(self, step_s: Callable[[int], float], needs: Iterable[float] = ()) -> None:
        self._step_s = step_s
        self._needs = sorted(needs, reverse=True)
        self.used = self._period_s(self._needs)
        self._refused = (float("inf"), 0.0)

    def offer(self, need: float, most: float) -> bool:
        """Take one more if no more than `most` of each second is used then; return whether."""
        refused, refused_most = self._refused
        if need >= refused and most <= refused_most:
            return False  # more than what did not fit before
        needs = self._needs.copy()
        insort(needs, need, key=neg)
        used = self._period_s(needs)
        if used > most:
            self._refused = need, most
            return False
        self._needs, self.used = needs, used
        return True

    def _period_s(self, needs: list[float]) -> float:
        total = before_s = 0.0
        for rows, need in enumerate(needs, start=1):
            rows_s = self._step_s(rows)
            total += need * (rows_s - before_s)
            before_s = rows_s
        return total
