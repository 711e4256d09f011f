"""Requests that no server has, and those that two servers have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from timely_llm.core.request import PlanRequest
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.assign.rules import moves
from timely_llm.dispatch.contract import (
    GATHER_S,
    LONGEST_BURST_S,
    Assignment,
    Dispatcher,
    ServerView,
    Waiting,
)


@dataclass(frozen=True)
class Returned:
    """A request that comes back from a server at a time.

    Attributes:
        at_s: when.
        waiting: the request.
        server: the server that gets it then; one that cannot take it: the rule assigns it.
        assigned: the server that the rule chose for it before.
    """

    at_s: float
    waiting: Waiting
    server: str
    assigned: str = ""


@dataclass(frozen=True)
class MoveQuestion:
    """Which requests that have not begun should be at another server.

    It has no connection to what comes later, so that its answer may be found while other inputs
    come.

    Attributes:
        now: when it was asked, seconds on the dispatcher's clock.
        unstarted: requests that took part in no step, with the names of their servers.
        servers: the servers that can be reached.
    """

    now: float
    unstarted: Sequence[tuple[Waiting, str]]
    servers: Sequence[ServerView]

    @cached_property
    def answer(self) -> Sequence[Assignment]:
        """The requests that should move, each with its new server."""
        return moves(self.now, self.unstarted, self.servers)


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


class Hedges:
    """The second servers of urgent plans: the first segment counts (Dean and Barroso 2013).

    Args:
        dispatcher: the rule that assigns requests; None: no request has a second server.
    """

    def __init__(self, dispatcher: Dispatcher | None) -> None:
        self._dispatcher = dispatcher
        self._seconds: dict[str, str] = {}

    def takes(self, waiting: Waiting) -> bool:
        """Return whether a request is to have a second server."""
        request = waiting.request
        urgent = isinstance(request, PlanRequest) and request.time_utility.beta >= URGENT.beta
        return urgent and self._dispatcher is not None

    def begin(
        self, waiting: Waiting, first: str, servers: Sequence[ServerView], now: float
    ) -> str | None:
        """Return the second server of a request that is sent to a first one; None: it has none.

        Args:
            waiting: the request.
            first: its server.
            servers: that the request can go to.
            now: the time on the dispatcher's clock, seconds.
        """
        others = [one for one in servers if one.name != first]
        if self._dispatcher is not None and others:
            for _, name in self._dispatcher.assign(now, [waiting], others):
                self._seconds[waiting.key] = name
        return self._seconds.get(waiting.key)

    def second(self, request_id: str) -> str | None:
        """Return the second server of a request; None: it has none."""
        return self._seconds.get(request_id)

    def of(self, server: str) -> list[str]:
        """Return the ids of the requests with this second server."""
        return [key for key, name in self._seconds.items() if name == server]

    def drop(self, request_id: str) -> str | None:
        """Forget the second server of a request, and return it."""
        return self._seconds.pop(request_id, None)
