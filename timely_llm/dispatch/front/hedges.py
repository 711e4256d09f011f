"""Urgent plans that two servers are asked for: the first segment counts (Dean and Barroso 2013)."""

from __future__ import annotations

from collections.abc import Sequence

from timely_llm.core.request import PlanRequest
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.contract import Dispatcher, ServerView, Waiting


class Hedges:
    """The second servers of plans that have not begun.

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
