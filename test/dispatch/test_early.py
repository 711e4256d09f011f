"""Results and deliveries that come too early."""

from __future__ import annotations

from timely_llm.core.request import ErrorCode, PlanResult, StreamChunk
from timely_llm.dispatch.early import OVERTAKEN_S, EarlyResults, Unclaimed

RESULT = PlanResult("r", "robot", ErrorCode.NONE, "")


def test_a_result_waits_for_a_while_and_then_counts() -> None:
    early = EarlyResults()
    assert early.waits("a", RESULT, 1.0) and early.waits("a", RESULT, 1.5)
    assert early.due(1.5) == [] and early.of("r") is not None
    (one,) = early.due(1.0 + OVERTAKEN_S)
    assert (one.server, one.result) == ("a", RESULT)
    assert not early.waits("a", RESULT, 1.0 + OVERTAKEN_S)
    early.drop("r", "b")
    assert early.of("r") is not None, "it is that of another server"
    early.drop("r", "a")
    assert early.of("r") is None


def test_the_result_of_another_server_takes_its_place() -> None:
    early = EarlyResults()
    early.waits("a", RESULT, 1.0)
    assert early.waits("b", RESULT, 1.0 + OVERTAKEN_S)
    (one,) = early.due(1.0 + 2.0 * OVERTAKEN_S)
    assert one.server == "b"


def test_a_result_waits_until_dds_has_repeated_what_was_lost() -> None:
    heartbeat_s = 3.0
    early = EarlyResults()
    early.waits("a", RESULT, 1.0)
    assert not early.due(1.0 + heartbeat_s)


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
