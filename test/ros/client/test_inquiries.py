"""A client asks about a request until it has an answer, whatever the network loses."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from rclpy.task import Future

from timely_llm import srv
from timely_llm.ros.client.inquiries import (
    AGAIN_S,
    FOLLOWED_S,
    MISSED_S,
    PATIENCE_S,
    SURE_S,
    UNKNOWN,
    Inquiries,
)

STEP_S = 0.1
LOST = "the server /s does not know the request 'r' any more: it was started anew"


class Asker:
    """Asks about one request `r` of the agent `a`, on a clock that `wait` moves."""

    agent = "a"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.questions: list[Future[Any]] = []
        self.lost: list[str] = []
        self.results: list[Any] = []
        self.inquiries = Inquiries(self, lambda request_id: self, "/s")
        self.inquiries.open("r")

    # The client of `get_result`.

    def service_is_ready(self) -> bool:
        return True

    def call_async(self, _: srv.GetResult.Request) -> Future[Any]:
        self.questions.append(Future())
        return self.questions[-1]

    def remove_pending_request(self, question: Future[Any]) -> None:
        """Its answer would be dropped."""

    # The listener.

    def finish(self, result: Any) -> None:
        self.results.append(result)

    def lose(self, reason: str) -> None:
        self.lost.append(reason)

    def wait(self, seconds: float, state: int | None = None) -> None:
        """Let time go by; answer each question at once, unless it is lost."""
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            before = len(self.questions)
            self.inquiries.tick()
            for question in self.questions[before:] if state is not None else []:
                response = srv.GetResult.Response(state=state)
                response.plan.request_id, response.plan.agent = "r", self.agent
                question.set_result(response)


@pytest.fixture
def asker(monkeypatch: pytest.MonkeyPatch) -> Asker:
    return Asker(monkeypatch)


def test_an_open_request_is_asked_about_now_and_then(asker: Asker) -> None:
    asker.inquiries.accepted("r")
    asker.wait(MISSED_S - 2 * STEP_S)
    assert not asker.questions
    asker.wait(3 * STEP_S, srv.GetResult.Response.SERVED)
    assert len(asker.questions) == 1
    asker.wait(MISSED_S + STEP_S, srv.GetResult.Response.PLAN)
    (result,) = asker.results
    assert result.request_id == "r"
    asker.wait(2 * MISSED_S)
    assert len(asker.questions) == 2, "it has ended"


def test_a_followed_request_is_asked_about_again_when_a_question_is_lost(asker: Asker) -> None:
    asker.inquiries.open("r", followed=True)
    asker.wait(FOLLOWED_S + STEP_S)
    assert len(asker.questions) == 1
    asker.wait(PATIENCE_S + FOLLOWED_S)
    assert len(asker.questions) == 2
    asker.wait(PATIENCE_S + FOLLOWED_S, srv.GetResult.Response.PLAN)
    assert len(asker.results) == 1 and not asker.lost


def test_a_followed_request_that_the_server_does_not_know_is_lost(asker: Asker) -> None:
    asker.inquiries.open("r", followed=True)
    asker.wait(UNKNOWN * (FOLLOWED_S + STEP_S), srv.GetResult.Response.UNKNOWN)
    assert len(asker.questions) == UNKNOWN
    assert asker.lost == [LOST]


def test_a_request_on_its_way_is_lost_soon_after_it_would_have_arrived(asker: Asker) -> None:
    asker.inquiries.hurry()
    asker.wait(PATIENCE_S, srv.GetResult.Response.UNKNOWN)
    assert not asker.lost
    asker.wait((UNKNOWN + 1) * AGAIN_S, srv.GetResult.Response.UNKNOWN)
    assert asker.lost == [LOST]


def test_a_request_that_never_arrived_is_lost_within_three_seconds(asker: Asker) -> None:
    asker.wait(PATIENCE_S, srv.GetResult.Response.UNKNOWN)
    assert not asker.lost
    asker.wait(3.0 - PATIENCE_S, srv.GetResult.Response.UNKNOWN)
    assert asker.lost == [LOST]


def test_a_request_without_a_period_is_asked_about_only_in_a_hurry(asker: Asker) -> None:
    asker.inquiries.open("r", period_s=math.inf)
    asker.wait(2 * MISSED_S)
    assert not asker.questions
    asker.inquiries.hurry()
    asker.wait(STEP_S)
    assert len(asker.questions) == 1


def test_a_question_that_discovery_has_lost_is_asked_again_soon(asker: Asker) -> None:
    asker.inquiries.accepted("r")
    asker.inquiries.hurry()
    asker.wait(AGAIN_S)
    assert len(asker.questions) == 1
    asker.wait(2 * STEP_S, srv.GetResult.Response.SERVED)
    assert len(asker.questions) == 2
    asker.wait(MISSED_S - 2 * STEP_S)
    assert len(asker.questions) == 2, "the server has answered"


def test_a_request_that_may_be_on_its_way_is_lost_only_after_a_while(asker: Asker) -> None:
    asker.inquiries.open("r", period_s=FOLLOWED_S, sure_s=SURE_S)
    asker.wait(PATIENCE_S + SURE_S - STEP_S, srv.GetResult.Response.UNKNOWN)
    assert asker.lost == []
    asker.wait(3 * FOLLOWED_S, srv.GetResult.Response.UNKNOWN)
    assert asker.lost == [LOST]
