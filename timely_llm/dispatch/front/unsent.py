"""Requests that no server has, and that need one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from timely_llm.dispatch.contract import GATHER_S, LONGEST_BURST_S, ServerView, Waiting


@dataclass(frozen=True)
class Returned:
    """A request that comes back from a server at a time.

    Attributes:
        at_s: when.
        waiting: the request.
        server: the server that gets it then; one that cannot take it: the rule assigns it.
    """

    at_s: float
    waiting: Waiting
    server: str


class Unsent:
    """The requests of a burst, those on their way back, and those that no server can take."""

    def __init__(self) -> None:
        self._burst: list[Waiting] = []
        self._burst_ends_s = math.inf
        self._unplaced: list[Waiting] = []
        self._returned: list[Returned] = []

    @property
    def gathers(self) -> bool:
        """Whether a burst is awaited."""
        return bool(self._burst)

    @property
    def keys(self) -> list[str]:
        """The ids of the requests."""
        returned = (one.waiting for one in self._returned)
        return [one.key for one in (*self._burst, *self._unplaced, *returned)]

    @property
    def wake_s(self) -> float:
        """When a burst ends or a request comes back."""
        return min(self._burst_ends_s, *(one.at_s for one in self._returned), math.inf)

    def gather(self, waiting: Waiting, now: float) -> None:
        """Add a request to the burst.

        A burst ends after a silence of `GATHER_S`. Once that is later than `LONGEST_BURST_S` after
        its first request, no further request prolongs it.
        """
        self._burst.append(waiting)
        latest_s = self._burst[0].asked_s + LONGEST_BURST_S
        if len(self._burst) == 1 or self._burst_ends_s < latest_s:
            self._burst_ends_s = now + GATHER_S

    def place(self, waiting: Waiting) -> None:
        """Add a request that no server can take."""
        self._unplaced.append(waiting)

    def bring_back(self, returned: Returned) -> None:
        """Add a request that comes back from a server."""
        self._returned.append(returned)

    def take_burst(self, now: float) -> list[Waiting]:
        """Return the requests of a burst that has ended."""
        if now < self._burst_ends_s:
            return []
        burst, self._burst, self._burst_ends_s = self._burst, [], math.inf
        return burst

    def take_returned(self, now: float) -> list[Returned]:
        """Return the requests that have come back."""
        due = [one for one in self._returned if one.at_s <= now]
        self._returned = [one for one in self._returned if one.at_s > now]
        return due

    def take_unplaced(self, server: ServerView) -> list[Waiting]:
        """Return the requests without a server if one of them can go to a server now."""
        if not server.active or not any(one.can_go_to(server) for one in self._unplaced):
            return []
        unplaced, self._unplaced = self._unplaced, []
        return unplaced

    def remove(self, request_id: str) -> None:
        """Forget a request."""
        self._burst = [one for one in self._burst if one.key != request_id]
        self._unplaced = [one for one in self._unplaced if one.key != request_id]
        self._returned = [one for one in self._returned if one.waiting.key != request_id]
