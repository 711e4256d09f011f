"""Mean and deviation of what was seen lately."""

from __future__ import annotations

import math


class Recent:
    """Mean and deviation of a number over time, newer times counting more.

    Args:
        window_s: what was seen so long ago counts a third of what is seen now; before that time has
            passed, all counts alike.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._begin_s = self._seen_s = math.nan
        self._square = 0.0
        self.mean = 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(max(self._square - self.mean * self.mean, 0.0))

    def saw(self, value: float, now: float) -> None:
        """Take it that the number had this value since the last time; what is none, is left out."""
        if not math.isfinite(value):
            return
        if math.isnan(self._seen_s):
            self._begin_s = self._seen_s = now
        gone_s = now - self._seen_s
        self._seen_s = now
        if gone_s > 0.0:
            share = gone_s / max(min(self._window_s, now - self._begin_s), gone_s)
            self.mean += share * (value - self.mean)
            self._square += share * (value * value - self._square)
