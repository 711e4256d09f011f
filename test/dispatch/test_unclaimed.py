"""What happens while a server is asked for its requests."""

from __future__ import annotations

from timely_llm.core.request import StreamChunk
from timely_llm.dispatch.unclaimed import Unclaimed


def test_deliveries_and_ends_are_recorded_until_the_server_has_answered() -> None:
    unclaimed = Unclaimed()
    chunks = [StreamChunk("p", "person", index, "so ") for index in range(3)]
    unclaimed.over("early")
    assert not unclaimed.keep("a", chunks[0]), "the server was not asked"
    unclaimed.begin("a")
    assert all(unclaimed.keep("a", chunk) for chunk in chunks)
    assert not unclaimed.keep("b", chunks[0])
    unclaimed.over("r")
    assert unclaimed.end("a") == (chunks, {"r"})
    assert not unclaimed.keep("a", chunks[0])
    assert unclaimed.end("a") == ([], set())
