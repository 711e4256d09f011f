"""The inbox: work that other threads give to the engine's thread."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from timely_llm.core.request import ErrorCode, Rejected

log = logging.getLogger(__name__)
MOST = 10_000
"""Entries that may wait: hours of a healthy server's, seconds of a flood for one that hangs."""


@dataclass(frozen=True)
class Work:
    """Something to do between two steps.

    Attributes:
        do: does it.
        slow: whether it may take as long as many steps.
    """

    do: Callable[[], object]
    slow: bool = False


class Inbox:
    """Work in the order in which it came; of any thread.

    Args:
        most: entries that may wait.

    Attributes:
        dropped: entries that were not taken since the inbox was full.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._work: deque[Work] = deque()
        self._changed = threading.Condition()
        self._closed: tuple[ErrorCode, str] | None = None
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._work)

    @property
    def closed(self) -> bool:
        """Whether nothing is taken any more."""
        return self._closed is not None

    def put(self, work: Work, must: bool = False) -> None:
        """Take work.

        Args:
            work: to be done.
            must: also if the inbox is full; for work whose amount is bounded elsewhere.

        Raises:
            Rejected: the inbox is closed or full.
        """
        with self._changed:
            if self._closed is not None:
                raise Rejected(*self._closed)
            if len(self._work) >= self._most and not must:
                self.dropped += 1
                raise Rejected(
                    ErrorCode.QUEUE_FULL,
                    f"{len(self._work)} messages wait for the engine's thread, the most allowed:"
                    " try later",
                )
            self._work.append(work)
            self._changed.notify_all()

    def close(
        self, code: ErrorCode = ErrorCode.SHUTTING_DOWN, reason: str = "the server stops"
    ) -> None:
        """Take nothing any more; the first reason stands. What is there can still be taken out."""
        with self._changed:
            self._closed = self._closed or (code, reason)
            self._changed.notify_all()

    def take(self) -> list[Work]:
        """Take out all that is there, in order."""
        with self._changed:
            work = list(self._work)
            self._work.clear()
            return work

    def wait(self, seconds: float) -> None:
        """Wait until there is work or the inbox is closed, for at most so long."""
        with self._changed:
            if not self._work and self._closed is None:
                self._changed.wait(min(max(seconds, 0.0), threading.TIMEOUT_MAX, 3600.0))

    def rest(self, seconds: float) -> None:
        """Wait until the inbox is closed, for at most so long, whatever comes."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed is not None, seconds)
