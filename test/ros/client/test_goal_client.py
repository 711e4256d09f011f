"""One goal from its sending to its result, with the answers that rclpy gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from rclpy.task import Future

from timely_llm.ros.client.goal_client import SentGoal


class Server:
    """Answers one goal as rclpy's client hands answers on."""

    def __init__(self) -> None:
        self.happened: list[Any] = []
        self.canceled = 0
        self.answer: Future[Any] = Future()
        self.end: Future[Any] = Future()
        self.goal = SentGoal(
            lambda: self.happened.append("accepted"),
            lambda: self.happened.append("refused"),
            self.happened.append,
        )
        self.goal.sent(self.answer)

    def accept(self, accepted: bool = True) -> None:
        handle = SimpleNamespace(
            accepted=accepted, cancel_goal_async=self._cancel, get_result_async=lambda: self.end
        )
        self._come(self.answer, handle)

    def finish(self, status: int) -> None:
        self._come(self.end, SimpleNamespace(status=status, result="the result"))

    def _cancel(self) -> None:
        self.canceled += 1

    def _come(self, future: Future[Any], value: Any) -> None:
        future.set_result(value)


def test_an_accepted_goal_gets_its_result() -> None:
    server = Server()
    assert not server.goal.accepted
    server.accept()
    assert server.goal.accepted
    server.finish(GoalStatus.STATUS_SUCCEEDED)
    assert server.happened == ["accepted", "the result"]


def test_a_refused_goal_gets_no_result() -> None:
    server = Server()
    server.accept(False)
    assert server.happened == ["refused"]
    assert not server.goal.accepted


def test_a_goal_that_the_server_does_not_know_any_more_has_no_result() -> None:
    server = Server()
    server.accept()
    server.finish(GoalStatus.STATUS_UNKNOWN)
    assert server.happened == ["accepted", None]


@pytest.mark.parametrize("early", [True, False])
def test_a_goal_is_canceled_now_or_as_soon_as_it_is_accepted(early: bool) -> None:
    server = Server()
    if early:
        server.goal.cancel()
        assert not server.canceled
    server.accept()
    if not early:
        server.goal.cancel()
    assert server.canceled == 1


@pytest.mark.parametrize("accepted", [True, False])
def test_an_abandoned_goal_calls_nothing(accepted: bool) -> None:
    server = Server()
    if accepted:
        server.accept()
    server.goal.abandon()
    assert server.happened == ["accepted"] * accepted
    assert (server.end if accepted else server.answer).cancelled()
