"""The share of the engine that can be promised."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import mul

from timely_llm.policies.step_time import StepTime

UTIL = 0.95
"""Largest share of the engine's time that is promised."""
FREE_ROW = 0.02
"""A row that takes a smaller share of the engine counts as free."""
PATIENCE = 0.5
"""Share of the time of an answer for which one must be able to wait to get a row in turn."""
_LONG_UTIL = 0.985  # largest share where steps are long
_LONG_STEPS = 3.0  # as many in a token's time are not long
_SAME_S = 1e-7
_SOME = 8  # rows that are known at once, at least


def long_steps(one_s: float, row_s: float, full_s: float = math.inf) -> tuple[float, float]:
    """Return the range of the times of a token for which steps are long, seconds.

    Fewer than three steps fit into such a time, a row is free, and answers do not wait for rows: a
    step of all rows takes longer, or fewer than two fit. Then nearly all answers take part in every
    step. None of them can be given more steps than the others have, and what each costs is the row
    that it adds.

    Args:
        one_s: seconds of a step of one row.
        row_s: seconds of a further row.
        full_s: seconds of a step of as many rows as the engine has; infinite if not known.
    """
    least_s = row_s / FREE_ROW
    return 0.0 if least_s <= one_s else least_s, min(_LONG_STEPS * one_s, max(full_s, 2.0 * one_s))


def long_room(kept_free: float) -> float:
    """Return the share beyond `UTIL` that is promised where steps are long.

    There a few percent of the engine have room for several rows.

    Args:
        kept_free: share that the rows of work with deadlines usually add, beyond what they add now.
    """
    return max(_LONG_UTIL - UTIL - kept_free, 0.0)


def steps_of_rows(
    step_time: StepTime, max_rows: int, context_each: float
) -> Callable[[range], list[float]]:
    """Return what returns the seconds of steps of some numbers of rows, rising from 1.

    More rows than a step has take turns: each gets a step as often as there are fewer rows.

    Args:
        step_time: of steps.
        max_rows: most rows of a step.
        context_each: tokens that each row attends to.
    """
    full_s = step_time.predict_s(max_rows, 0, int(max_rows * context_each))

    def steps_s(rows: range) -> list[float]:
        if rows.stop <= max_rows + 1:
            return step_time.steps_s(rows, context_each)
        together = range(rows.start, max_rows + 1)
        beyond = range(max(rows.start, max_rows + 1), rows.stop)
        return [
            *step_time.steps_s(together, context_each),
            *(full_s * number / max_rows for number in beyond),
        ]

    return steps_s


class EngineShare:
    """Share of the engine's time that promised rates need together.

    The stream with the largest need takes part in every step, the others in as many as they need.
    Then steps of 1, 2, ... rows take `sum((need[i] - need[i + 1]) * s(i))` of each second. This
    is this package's rule, after Eq. 7 of Zhou et al. 2025: it has real rates in place of whole
    columns, since there is no cycle.

    Args:
        steps_s: returns the seconds of steps of some numbers of rows.
        needs: rates that are promised already, tokens a second.

    Attributes:
        used: the share.
    """

    def __init__(
        self, steps_s: Callable[[range], list[float]], needs: Iterable[float] = ()
    ) -> None:
        self._predict_s = steps_s
        order = sorted(needs)
        self._negated = [-need for need in reversed(order)]
        self._steps_s: list[float] = []  # of steps of 1, 2, ... rows
        self._rows_s: list[float] = []  # seconds that each of these rows adds
        self._bends: list[tuple[int, float]] = []  # rows after which a row adds another time
        self.used = self.of(order)
        self._refused = (float("inf"), 0.0)

    def steps_s(self, rows: int) -> list[float]:
        """Return the seconds of steps of 1, 2, ... rows."""
        if len(self._steps_s) < rows:
            self._know(rows)
        return self._steps_s[:rows]

    def of(self, needs: Iterable[float]) -> float:
        """Return the share that some rates would take alone."""
        order = sorted(needs, reverse=True)
        if len(self._rows_s) < len(order):
            self._know(len(order))
        return sum(map(mul, order, self._rows_s), 0.0)

    def offer(self, need: float, most: float) -> bool:
        """Promise one more rate if the share stays at most `most`; return whether it did."""
        refused, refused_most = self._refused
        if need >= refused and most <= refused_most:
            return False  # a smaller rate did not fit before
        negated = self._negated
        others = len(negated)
        if len(self._rows_s) < others + 2:
            self._know(2 * others + _SOME)
        place = bisect_right(negated, -need)
        # Each stream with a smaller need is one row further on.
        used = self.used + need * self._rows_s[place]
        for row, more_s in self._bends:
            if place <= row < others:
                used -= more_s * negated[row]
        if used > most:
            self._refused = need, most
            return False
        negated.insert(place, -need)
        self.used = used
        return True

    def _know(self, rows: int) -> None:
        """Know what each of the first rows adds to a step."""
        known, last_s = self._rows_s, self._steps_s[-1] if self._steps_s else 0.0
        steps_s = self._predict_s(range(len(known) + 1, rows + 1))
        self._steps_s += steps_s
        before_s = known[-1] if known else math.nan
        for row, step_s in enumerate(steps_s, start=len(known)):
            more_s = step_s - last_s
            if not -_SAME_S <= more_s - before_s <= _SAME_S and row:
                self._bends.append((row - 1, more_s - before_s))
            known.append(more_s)
            last_s, before_s = step_s, more_s
