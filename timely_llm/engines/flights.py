"""The steps of an engine that are submitted and not collected."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from timely_llm.core.errors import EngineError

T = TypeVar("T")


class Flights(Generic[T]):
    """What an engine has to remember of each step, in order.

    Args:
        most: steps that can be in flight.
    """

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._flights: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[T]:
        return iter(self._flights)

    @property
    def first(self) -> T:
        """What is remembered of the oldest step.

        Raises:
            EngineError: there is none.
        """
        if not self._flights:
            raise EngineError("there is no step to collect")
        return self._flights[0]

    def check_room(self) -> None:
        """Find out whether another step can be submitted.

        Raises:
            EngineError: one must be collected first.
        """
        if len(self._flights) >= self._most:
            raise EngineError("collect the submitted step before another one is submitted")

    def start(self, flight: T) -> None:
        """Remember a step that is submitted."""
        self._flights.append(flight)

    def land(self) -> T:
        """Return what is remembered of the oldest step, for the last time.

        Raises:
            EngineError: there is none.
        """
        oldest = self.first
        self._flights.popleft()
        return oldest

    def clear(self) -> None:
        """Forget all steps."""
        self._flights.clear()
