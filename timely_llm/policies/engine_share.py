"""How much of the engine's time is promised (paper 000, Eq. 7, with real rates)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from operator import neg


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
