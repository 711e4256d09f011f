"""What will happen, in order of time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

LONGEST_WAY_S = 0.03
"""Longest time of a message without a fault, seconds."""


class Schedule:
    """Events by their time; those of one time happen in the order in which they were added.

    Attributes:
        now: the time of the newest event, seconds.
        happened: number of events.
    """

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self.now = 0.0
        self.happened = 0

    def at(self, at_s: float, happen: Callable[[], object]) -> None:
        """Add an event; one of the past happens now."""
        heapq.heappush(self._events, (max(at_s, self.now), next(self._order), happen))

    def next(self) -> None:
        """Let the next event happen."""
        self.now, _, happen = heapq.heappop(self._events)
        self.happened += 1
        happen()
