"""The share of the engine that can be promised."""

from __future__ import annotations

from bisect import bisect_right
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
        self._needs = sorted(needs, reverse=True)
        self._rows_s: list[float] = []  # seconds that each further row adds to a step
        self._know(len(self._needs))
        self.used = sum(map(mul, self._needs, self._rows_s))
        self._refused = (float("inf"), 0.0)

    def offer(self, need: float, most: float) -> bool:
        """Promise one more rate if the share stays at most `most`; return whether it did."""
        refused, refused_most = self._refused
        if need >= refused and most <= refused_most:
            return False  # a smaller rate did not fit before
        needs, rows_s = self._needs, self._rows_s
        self._know(len(needs) + 1)
        place = bisect_right(needs, -need, key=neg)
        # Each stream with a smaller need is one row further on.
        smaller = needs[place:]
        used = self.used + need * rows_s[place]
        used += sum(map(mul, smaller, rows_s[place + 1 :])) - sum(map(mul, smaller, rows_s[place:]))
        if used > most:
            self._refused = need, most
            return False
        needs.insert(place, need)
        self.used = used
        return True

    def _know(self, rows: int) -> None:
        known = self._rows_s
        for row in range(len(known) + 1, rows + 1):
            known.append(self._step_s(row) - (self._step_s(row - 1) if row > 1 else 0.0))
