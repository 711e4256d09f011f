"""A request goes to no server that has refused it, and to no third engine that it may break."""

from __future__ import annotations

from timely_llm.core.request import ErrorCode
from timely_llm.dispatch.front.refusals import MOST_FAILURES, Refusals


def test_a_server_that_refused_a_request_is_barred_until_it_is_forgotten() -> None:
    made = Refusals()
    made.add("r", "a", ErrorCode.BUSY)
    assert "r" in made and made.bars("r", "a") and not made.bars("r", "b")
    made.forget("r")
    assert "r" not in made and not made.bars("r", "a")


def test_a_request_that_engines_fail_with_has_failed() -> None:
    made = Refusals()
    made.add("r", "busy", ErrorCode.BUSY)
    for place in range(MOST_FAILURES):
        assert not made.has_failed("r")
        made.add("r", f"s{place}", ErrorCode.ENGINE_FAILED)
    assert made.has_failed("r") and not made.has_failed("other")
