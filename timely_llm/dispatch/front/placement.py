"""Requests that no server has, that two servers have, and that a server should not have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from timely_llm.core.request import PlanRequest
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.contract import GATHER_S, LONGEST_BURST_S, Dispatcher, ServerView, Waiting
from timely_llm.dispatch.front.ledger import MISSING_S

RESULT_S = 5.0
"""Seconds in which the result of a request comes that a server was asked to end. After that, it is
asked again."""
LEFT_S = 600.0
"""Seconds after which a server that was not heard of has ended what it had."""


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


class Leftovers:
    """Requests that a server has to end, each until the server says that it does not have it.

    A request must not go to such a server: what the server says of it would be about its old run.
    Nor may it before the result of the old run has come, since views can overtake results: that one
    would count as the end of the new run.
    """

    def __init__(self) -> None:
        self._left_s: dict[str, dict[str, float]] = {}  # since when, by server and request
        self._asked_s: dict[tuple[str, str], float] = {}  # time of the view that led to a question

    def add(self, server: str, request_id: str, now: float) -> None:
        """Record that a server should not have a request any more."""
        for name in list(self._left_s):
            since_s = self._left_s[name]
            self._keep(name, {key: at_s for key, at_s in since_s.items() if at_s > now - LEFT_S})
        self._left_s.setdefault(server, {})[request_id] = now

    def drop(self, server: str, request_id: str) -> None:
        """Record that a server has a request rightly."""
        since_s = self._left_s.get(server, {})
        self._keep(server, {key: at_s for key, at_s in since_s.items() if key != request_id})

    def bars(self, request_id: str, server: str = "") -> bool:
        """Return whether a server may have a request wrongly; without a name: whether any may."""
        names = [server] if server else self._left_s
        return any(request_id in self._left_s.get(name, ()) for name in names)

    def heard(self, view: ServerView, made_s: float) -> list[str]:
        """Take what a server says of itself; return the ids of the requests that it has to end.

        A view that was made soon after a request left its server may lack what is on its way there.
        A server that does not say what it serves has to end all of them, once. The others are asked
        again while they still have them.
        """
        left_s = self._left_s.get(view.name, {})
        if view.served is None:
            self._keep(view.name, {})
            return list(left_s)
        served = view.served
        self._keep(
            view.name,
            {
                key: at_s for key, at_s in left_s.items()
                if key in served or at_s + MISSING_S >= made_s
                or self._is_asked(view.name, key, made_s)
            },
        )  # fmt: skip
        ends = [k for k in left_s if k in served and not self._is_asked(view.name, k, made_s)]
        self._asked_s |= {(view.name, key): made_s for key in ends}
        return ends

    def ended(self, server: str, request_id: str) -> None:
        """Take the result of a request that a server should not have."""
        self._asked_s.pop((server, request_id), None)

    def lost(self, server: str) -> None:
        """Record that a server is gone: what it was asked may not have reached it."""
        self._asked_s = {k: at_s for k, at_s in self._asked_s.items() if k[0] != server}

    def _is_asked(self, server: str, request_id: str, made_s: float) -> bool:
        """Return whether a server was asked to end a request, and its result may come yet."""
        return made_s <= self._asked_s.get((server, request_id), -math.inf) + RESULT_S

    def _keep(self, server: str, left_s: dict[str, float]) -> None:
        gone = self._left_s.get(server, {}).keys() - left_s.keys()
        for request_id in gone:
            self._asked_s.pop((server, request_id), None)
        if left_s:
            self._left_s[server] = left_s
        else:
            self._left_s.pop(server, None)
