"""What happens while a server is asked for the requests that it got from an earlier dispatcher."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from timely_llm.core.request import StreamChunk
from timely_llm.core.segment import Segment

Delivery = Segment | StreamChunk


@dataclass(frozen=True)
class Meanwhile:
    """What happened between a server's answer and the taking of it.

    Attributes:
        deliveries: what the server delivered of requests that were not known, in order.
        ended: ids of requests that have ended.
    """

    deliveries: list[Delivery] = field(default_factory=list)
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

    def keep(self, server: str, delivery: Delivery) -> bool:
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

    def end(self, server: str) -> tuple[Sequence[Delivery], Set[str]]:
        """Return the deliveries and the ended requests: the server has answered, or is gone."""
        asked = self._asked.pop(server, Meanwhile())
        return asked.deliveries, asked.ended
