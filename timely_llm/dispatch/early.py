"""What comes too early: results before deliveries, and deliveries of requests yet unknown."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from timely_llm.core.request import Result, StreamChunk
from timely_llm.core.segment import Segment

OVERTAKEN_S = 5.0
"""Seconds in which a result waits for segments and tokens that it has overtaken. DDS repeats a lost
message after the next heartbeat of its writer, by default up to 3 s later."""

EarlyDelivery = Segment | StreamChunk


@dataclass(frozen=True)
class EarlyResult:
    """A result that came before the last deliveries of its request.

    Attributes:
        server: its server.
        result: the result.
        until_s: when it counts, whether they have come or not.
    """

    server: str
    result: Result
    until_s: float


class EarlyResults:
    """Keeps results that have overtaken deliveries: these come by another topic."""

    def __init__(self) -> None:
        self._waiting: dict[str, EarlyResult] = {}

    def waits(self, server: str, result: Result, now: float) -> bool:
        """Let a result wait that lacks deliveries; return whether it still does."""
        early = self._waiting.get(result.request_id)
        if early is None or early.server != server:
            early = EarlyResult(server, result, now + OVERTAKEN_S)
            self._waiting[result.request_id] = early
        return now < early.until_s

    def of(self, request_id: str) -> EarlyResult | None:
        """Return the result of a request that waits."""
        return self._waiting.get(request_id)

    def due(self, now: float) -> list[EarlyResult]:
        """Return the results that have waited for long enough."""
        return [one for one in self._waiting.values() if one.until_s <= now]

    def drop(self, request_id: str, server: str) -> None:
        """Forget a server's result of a request."""
        early = self._waiting.get(request_id)
        if early is not None and early.server == server:
            del self._waiting[request_id]


@dataclass(frozen=True)
class Meanwhile:
    """What happened while a server was asked for its requests.

    Attributes:
        deliveries: what the server delivered of requests that were not known, in order.
        ended: ids of requests that have ended.
    """

    deliveries: list[EarlyDelivery] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)


class Unclaimed:
    """Records what happens while servers are asked for their requests.

    Without it, a segment that is delivered in this time would reach no robot, and a request that
    ends in this time would be taken for one of an earlier dispatcher.
    """

    def __init__(self) -> None:
        self._asked: dict[str, Meanwhile] = {}

    def begin(self, server: str) -> None:
        """Record from now on: a server is asked for its requests."""
        self._asked[server] = Meanwhile()

    def keep(self, server: str, delivery: EarlyDelivery) -> bool:
        """Keep a delivery of an unknown request; return whether the server's answer is awaited."""
        asked = self._asked.get(server)
        if asked is None:
            return False
        asked.deliveries.append(delivery)
        return True

    def over(self, request_id: str) -> None:
        """Record the end of a request."""
        for asked in self._asked.values():
            asked.ended.add(request_id)

    def end(self, server: str) -> tuple[Sequence[EarlyDelivery], Set[str]]:
        """Return the deliveries and the ended requests: the server has answered, or is gone."""
        asked = self._asked.pop(server, Meanwhile())
        return asked.deliveries, asked.ended
