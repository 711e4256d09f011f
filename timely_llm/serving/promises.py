"""Promises of a server: futures that are done at the latest when it has ended."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, InvalidStateError
from typing import Any


class Promises:
    """The futures that somebody may wait for; of any thread."""

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
