"""The watchdog: finds out that a thread hangs, from another thread."""

from __future__ import annotations

import math
import sys
import threading
import time
import traceback
from collections.abc import Callable
from itertools import count

SLOW = 10.0
"""How many times the limit slow work may take."""
LOOK_S = 0.5
"""How often the thread is looked at, seconds."""


class ThreadWatchdog:
    """Measures how long a thread has been at one piece of work.

    Time in which nothing looked is not counted but for one look: a process that was stopped, or a
    machine that slept, has not hung.

    Args:
        limit_s: seconds that a piece of work may take; infinite: any.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.look_s = min(LOOK_S, limit_s / 4)
        self._number = count()
        self._work: tuple[int, float] | None = None  # which one, and how much longer it may take
        self._seen: tuple[int, float] | None = None
        self._busy_s = 0.0
        self._looked_s = 0.0

    # In the thread that is watched.

    def begins(self, slow: bool = False) -> None:
        """Record that the next piece of work begins."""
        self._work = next(self._number), SLOW if slow else 1.0

    def idle(self) -> None:
        """Record that there is nothing to do."""
        self._work = None

    # In another one.

    def overdue_s(self, now: float) -> float:
        """Return how long the thread has been at a piece of work that takes too long, else 0."""
        work = self._work
        passed_s, self._looked_s = min(now - self._looked_s, 2 * self.look_s), now
        self._busy_s = self._busy_s + passed_s if work is not None and work == self._seen else 0.0
        self._seen = work
        if work is None or self._busy_s < self.limit_s * work[1]:
            return 0.0
        return self._busy_s

    def started(
        self, thread: threading.Thread, over: threading.Event, hangs: Callable[[float], None]
    ) -> None:
        """Look at a thread until it is over; for a thread of its own.

        Args:
            thread: that is watched.
            over: set when it has ended by itself.
            hangs: called once, with the seconds that it has been at its work; 0 if it has ended
                without a word.
        """
        self._looked_s = time.monotonic()
        while not over.wait(self.look_s if self.look_s < math.inf else LOOK_S):
            overdue_s = self.overdue_s(time.monotonic())
            if overdue_s or not thread.is_alive():
                if not over.is_set():
                    hangs(overdue_s)
                return


def stack_of(thread: threading.Thread) -> str:
    """Return the stack of a thread as text, the newest call last."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)).rstrip() if frame else "at an unknown place"
