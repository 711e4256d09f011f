"""For which requests a cloud is asked, and why not."""

from __future__ import annotations

import math

import pytest

from timely_llm.core.request import ChatMessage, PlanRequest, RequestMode, StreamRequest
from timely_llm.progressive.settings import HelpSettings

SETTINGS = HelpSettings(never_for=frozenset({"nurse"}), auto_tokens=200, auto_words=4)
PROGRESSIVE, AUTO = RequestMode.PROGRESSIVE, RequestMode.AUTO
NEVER = -math.inf


def answer(mode: RequestMode, max_tokens: int = 256, agent: str = "ann") -> StreamRequest:
    return StreamRequest("a", agent, (ChatMessage("user", "hi"),), mode=mode, max_tokens=max_tokens)


def plan(mode: RequestMode, task: str, agent: str = "drone") -> PlanRequest:
    return PlanRequest("p", agent, "drone", task, mode=mode)


def test_nothing_is_asked_for_some_agents() -> None:
    assert SETTINGS.refusal(answer(PROGRESSIVE, agent="nurse"), 0.0, NEVER)
    assert SETTINGS.refusal(plan(PROGRESSIVE, "go", agent="nurse"), 0.0, NEVER)
    assert SETTINGS.refusal(plan(PROGRESSIVE, "go", agent="drone"), 0.0, NEVER) is None


def test_a_direct_request_wants_no_help() -> None:
    assert SETTINGS.refusal(answer(RequestMode.DIRECT), 0.0, NEVER) == ""


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (answer(AUTO, 199), "an answer of fewer than 200 tokens needs no help"),
        (answer(AUTO, 200), None),
        (plan(AUTO, "go to bed"), "a task of fewer than 4 words needs no help"),
        (plan(AUTO, "go to bed now"), None),
        (plan(PROGRESSIVE, "go"), None),
    ],
)
def test_the_server_chooses_by_length(
    request_: StreamRequest | PlanRequest, why: str | None
) -> None:
    assert SETTINGS.refusal(request_, 0.0, NEVER) == why


def test_after_a_failure_the_server_waits_and_a_client_need_not() -> None:
    assert SETTINGS.refusal(answer(AUTO), 29.0, 0.0) == "the cloud failed in the last 30 s"
    assert SETTINGS.refusal(answer(AUTO), 30.0, 0.0) is None
    assert SETTINGS.refusal(answer(PROGRESSIVE), 1.0, 0.0) is None


def test_a_server_with_many_requests_gives_no_help() -> None:
    full = SETTINGS.refusal(answer(AUTO), 0.0, NEVER, 4)
    assert full == "the server has 4 requests already, and help would delay them"
    assert SETTINGS.refusal(answer(AUTO), 0.0, NEVER, 3) is None
    assert SETTINGS.refusal(answer(PROGRESSIVE), 0.0, NEVER, 3) is None
    crowded = SETTINGS.refusal(answer(PROGRESSIVE), 0.0, NEVER, 4)
    assert crowded == "the server has 4 requests already, and help would delay them"
    few = HelpSettings(max_requests=2)
    assert few.refusal(answer(AUTO), 0.0, NEVER, 2) is not None
