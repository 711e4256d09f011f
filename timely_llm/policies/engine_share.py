"""The share of the engine that can be promised."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from operator import mul, neg


class EngineShare:
    """Share of the engine's time that promised rates need together.

    The stream with the largest need takes part in every step, the others in as many as they need.
    Then steps of 1, 2, ... rows take `sum((need[i] - need[i + 1]) * s(i))` of each second. This
    is this package's rule, after Eq. 7 of Zhou et al. 2025: it has real rates in place of whole
    columns, since there is no cycle.

    Args:
        step_s: seconds of a step by its rows.
        needs: rates that are promised already, tokens a second.

    Attributes:
        used: the share.
    """

    def __init__(self, step_s: Callable[[int], float], needs: Iterable[float] = ()) -> None:
        self._step_s = step_s
        self._rows_s: list[float] = []  # seconds that each further row adds to a step
        self._needs = sorted(needs, reverse=True)
        self.used = self._period_s(self._needs)
        self._refused = (float("inf"), 0.0)

    def offer(self, need: float, most: float) -> bool:
        """Promise one more rate if the share stays at most `most`; return whether it did."""
        refused, refused_most = self._refused
        if need >= refused and most <= refused_most:
            return False  # a smaller rate did not fit before
        needs = self._needs.copy()
        insort(needs, need, key=neg)
        used = self._period_s(needs)
        if used > most:
            self._refused = need, most
            return False
        self._needs, self.used = needs, used
        return True

    def _period_s(self, needs: list[float]) -> float:
        known = self._rows_s
        for rows in range(len(known), len(needs)):
            known.append(self._step_s(rows + 1) - (self._step_s(rows) if rows else 0.0))
        used: float = sum(map(mul, needs, known))
        return used
