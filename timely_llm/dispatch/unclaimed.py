"""Deliveries of requests that are not known yet: their server is just asked for what it serves."""

from __future__ import annotations

from collections.abc import Sequence

from timely_llm.core.request import StreamChunk
from timely_llm.core.segment import Segment

Delivery = Segment | StreamChunk


class UnclaimedDeliveries:
    """Keeps what a server delivers between its list of requests and the taking of this list.

    Without it, a segment that is delivered in this time would reach no robot.
    """

    def __init__(self) -> None:
        self._kept: dict[str, list[Delivery]] = {}

    def begin(self, server: str) -> None:
        """Keep what a server delivers from now on: it is asked for its requests."""
        self._kept[server] = []

    def keep(self, server: str, delivery: Delivery) -> bool:
        """Keep a delivery of an unknown request; return whether the server's answer is awaited."""
        kept = self._kept.get(server)
        if kept is None:
            return False
        kept.append(delivery)
        return True

    def end(self, server: str) -> Sequence[Delivery]:
        """Return what was kept, in order: the server has answered, or is gone."""
        return self._kept.pop(server, ())
