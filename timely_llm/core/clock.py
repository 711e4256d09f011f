"""Two clocks: the wall for serving, a virtual one for experiments."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since an arbitrary moment; never goes back."""

    def now(self) -> float:
        """Return the time in seconds."""
        ...


class WallClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()


class VirtualClock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def now(self) -> float:
        """Return virtual seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"time goes forward only, not by {seconds} s")
        self._now_s += seconds
