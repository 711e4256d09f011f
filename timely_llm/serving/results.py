"""How requests ended, kept for a while for those who missed it."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from timely_llm.core.request import Result

T = TypeVar("T")
MOST_BYTES = 64 * 2**20
"""Memory of all results that are kept: as many as `max_results` of usual size fit into less."""


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    value: T
    size: int
    end_s: float


class Results(Generic[T]):
    """Keeps values by key for a time, as many as fit; may be used from any thread.

    The oldest go first when there are too many, or when they take too much memory. A newer value
    of a key replaces the older one.

    Args:
        keep_s: how long each is kept, seconds; 0: not at all.
        most: most that are kept.
        most_bytes: most memory of all that are kept.
    """

    def __init__(self, keep_s: float, most: int, most_bytes: int = MOST_BYTES) -> None:
        self._keep_s = keep_s
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()  # the oldest first
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """Memory of what is kept, as `put` was told."""
        return self._bytes

    def put(self, key: str, value: T, size: int, now: float) -> None:
        """Keep a value.

        Args:
            key: asked for by `get`.
            value: what is kept.
            size: its memory, bytes; `size_of` tells that of a result.
            now: seconds on the clock of the other calls.
        """
        if self._keep_s <= 0:
            return
        with self._lock:
            self._drop(key)
            self._kept[key] = _Kept(value, size, now + self._keep_s)
            self._bytes += size
            self._forget(now)

    def get(self, key: str, now: float) -> T | None:
        """Return what is kept by a key, None if there is nothing."""
        with self._lock:
            self._forget(now)
            kept = self._kept.get(key)
            return None if kept is None else kept.value

    def _forget(self, now: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept))
            full = len(self._kept) > self._most or self._bytes > self._most_bytes
            if not full and now < self._kept[oldest].end_s:
                return
            self._drop(oldest)

    def _drop(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size


def size_of(result: Result) -> int:
    """Return about how many bytes of memory a result takes, with what keeping it takes."""
    return 1000 + sum(sys.getsizeof(value) for value in vars(result).values())
