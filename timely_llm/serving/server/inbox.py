"""Work that other threads give to the engine's thread, and the futures of its outcome."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any

from timely_llm.core.request import ErrorCode, Rejected


class Promises:
    """The futures that clients may wait for: done at the latest when the server has ended.

    May be used from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Future[Any]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def make(self) -> Future[Any]:
        """Return a new future."""
        future: Future[Any] = Future()
        with self._lock:
            self._open.add(future)
        future.add_done_callback(self._forget)
        return future

    def break_all(self, error: Exception) -> None:
        """Let all futures that are not done raise an error."""
        with self._lock:
            futures = list(self._open)
        for future in futures:
            settle(future, error=error)

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._open.discard(future)


def settle(future: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    """Let a future be done; the first result counts."""
    with contextlib.suppress(InvalidStateError):
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


def pass_error(done: Future[Any], future: Future[Any]) -> None:
    """Let a future raise what one that is done has raised; otherwise it stays open."""
    error = done.exception()
    if error is not None:
        settle(future, error=error)


class Drains:
    """The drains that have not ended; of any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, Future[None]]] = []

    @property
    def end_s(self) -> float:
        """When the first one gives up waiting, on the loop's clock; infinite if there is none."""
        with self._lock:
            return min((end_s for end_s, _ in self._waiting), default=math.inf)

    def add(self, end_s: float, drained: Future[None]) -> None:
        """Let a future be done with the next `let_go`."""
        with self._lock:
            self._waiting.append((end_s, drained))

    def let_go(self) -> None:
        """End all drains."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for _, drained in waiting:
            settle(drained, None)


log = logging.getLogger(__name__)
MOST = 10_000
"""Entries that may wait: hours of a healthy server's, seconds of a flood for one that hangs."""


@dataclass(frozen=True)
class InboxItem:
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
        self._work: deque[InboxItem] = deque()
        self._changed = threading.Condition()
        self._closed: tuple[ErrorCode, str] | None = None
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._work)

    @property
    def closed(self) -> bool:
        """Whether nothing is taken any more."""
        return self._closed is not None

    def put(self, work: InboxItem, must: bool = False) -> None:
        """Take work.

        Args:
            work: to be done.
            must: also if the inbox is full; for work that is bounded elsewhere.

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

    def take(self) -> list[InboxItem]:
        """Take out all that is there, in order."""
        with self._changed:
            work = list(self._work)
            self._work.clear()
            return work

    def wait(self, seconds: float) -> None:
        """Wait for work or for the inbox to be closed, at most this time."""
        with self._changed:
            if not self._work and self._closed is None:
                self._changed.wait(min(max(seconds, 0.0), threading.TIMEOUT_MAX, 3600.0))

    def rest(self, seconds: float) -> None:
        """Wait for the inbox to be closed, at most this time, whatever comes."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed is not None, seconds)
