"""Failures in a row: counted, logged without flooding the log, answered with longer pauses."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from timely_llm.core.text import echoed

LINE_S = 1.0
"""The shortest time between two lines of the log about the same thing, seconds."""
TRACEBACK_S = 60.0
"""The shortest time between two tracebacks of the same error, seconds."""
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 1.0


class Failures:
    """Counts what fails, and logs it: its traceback once, then at most one line a second.

    Args:
        log: takes the lines.
        what: the subject and verb of each line, such as "the serving loop failed".
        now: returns seconds.

    Attributes:
        row: failures since the last success.
        last: the newest failure in words, with its kind.
    """

    def __init__(
        self, log: logging.Logger, what: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._what = what
        self._now = now
        self._untold = 0
        self._logged_s = self._traced_s = -LINE_S - TRACEBACK_S + now()
        self._traced = ""
        self.row = 0
        self.last = ""

    @property
    def pause_s(self) -> float:
        """How long to wait before the next attempt, seconds; twice as long after each failure."""
        if not self.row:
            return 0.0
        return min(FIRST_PAUSE_S * 2.0 ** min(self.row - 1, 16), LONGEST_PAUSE_S)

    def add(self, error: BaseException) -> None:
        """Enter a failure."""
        self.row += 1
        self._untold += 1
        self.last = in_words(error)
        now = self._now()
        if now < self._logged_s + LINE_S:
            return
        known = self.last == self._traced and now < self._traced_s + TRACEBACK_S
        if not known:
            self._traced, self._traced_s = self.last, now
        times = f" {self._untold} times" if self._untold > 1 else ""
        self._log.error("%s%s: %s", self._what, times, self.last, exc_info=None if known else error)
        self._untold, self._logged_s = 0, now

    def over(self) -> None:
        """Enter a success."""
        self.row = 0


def in_words(error: BaseException) -> str:
    """Return an error's kind and what it says, in one line of valid Unicode."""
    whole = " ".join(str(error).split())
    said = echoed(whole, len(whole))
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
