"""Log lines about faults of clients, limited so that no client can fill the log."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from timely_llm.core.text import sentence

MOST = 10
PERIOD_S = 1.0


class Notices:
    """Writes at most `MOST` lines of a kind in `PERIOD_S` seconds, and counts the others.

    rclpy's `throttle_duration_sec` writes one line and drops the rest without a count.

    Args:
        write: writes a line.
        now: seconds on a steady clock.
    """

    def __init__(self, write: Callable[[str], object], now: Callable[[], float]) -> None:
        self._write = write
        self._now = now
        self._lock = threading.Lock()
        self._began_s = now()
        self._said: Counter[str] = Counter()

    def say(self, kind: str, words: object) -> None:
        """Write a line, unless there were too many of its kind; from any thread.

        Args:
            kind: name of the kind, in the plural: "requests were refused".
            words: the line; it is cut and made printable.
        """
        self.flush()
        with self._lock:
            self._said[kind] += 1
            quiet = self._said[kind] > MOST
        if not quiet:
            self._write(sentence(words))

    def flush(self) -> None:
        """Write the number of omitted lines, if their period is over."""
        with self._lock:
            now = self._now()
            if now < self._began_s + PERIOD_S:
                return
            said, self._said = self._said, Counter()
            self._began_s = now
        for kind, count in said.items():
            if count > MOST:
                self._write(f"{count - MOST} more {kind} within {PERIOD_S:g} s")
