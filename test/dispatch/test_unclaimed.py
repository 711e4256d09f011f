"""Deliveries of requests that are not known yet."""

from __future__ import annotations

from timely_llm.core.request import StreamChunk
from timely_llm.dispatch.unclaimed import UnclaimedDeliveries


def test_deliveries_are_kept_in_order_until_the_server_has_answered() -> None:
    unclaimed = UnclaimedDeliveries()
    chunks = [StreamChunk("p", "person", index, "so ") for index in range(3)]
    assert not unclaimed.keep("a", chunks[0]), "the server was not asked"
    unclaimed.begin("a")
    assert all(unclaimed.keep("a", chunk) for chunk in chunks)
    assert not unclaimed.keep("b", chunks[0])
    assert list(unclaimed.end("a")) == chunks
    assert not unclaimed.keep("a", chunks[0]) and list(unclaimed.end("a")) == []
