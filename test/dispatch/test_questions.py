"""How a request ended is known by the server that ended it, and by no other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

from timely_llm.core.request import ErrorCode, PlanResult, Result
from timely_llm.dispatch.link import Link
from timely_llm.dispatch.questions import ANSWER_S, EndQuestions

Answer = Callable[[Result | None], None]


class Server:
    """A server's link that keeps the questions."""

    def __init__(self) -> None:
        self.asked: list[Answer] = []

    def inquire(self, request_id: str, answered: Answer) -> None:
        self.asked.append(answered)

    def answer(self, result: Result | None) -> None:
        self.asked.pop()(result)


def ended(code: ErrorCode = ErrorCode.NONE, epoch: int = 0) -> PlanResult:
    return PlanResult("r", "robot", code, "", epoch=epoch)


def ask(*servers: Server) -> tuple[EndQuestions, Future[Any]]:
    questions, future = EndQuestions(), Future[Any]()
    links = {str(place): cast(Link, one) for place, one in enumerate(servers)}
    questions.ask("r", links, future, 0.0)
    return questions, future


def test_the_result_of_the_newest_plan_counts() -> None:
    servers = [Server(), Server(), Server()]
    _, future = ask(*servers)
    for one, result in zip(servers, (ended(epoch=1), ended(epoch=2), None), strict=True):
        assert not future.done()
        one.answer(result)
    assert future.result(0) == ended(epoch=2)


def test_a_server_that_the_request_has_left_does_not_know_its_end() -> None:
    for code in (ErrorCode.CANCELED, ErrorCode.BUSY):
        one, other = Server(), Server()
        _, future = ask(one, other)
        one.answer(ended(code))
        other.answer(None)
        assert future.result(0) is None


def test_while_a_server_does_not_answer_the_end_is_not_known() -> None:
    one, other = Server(), Server()
    questions, future = ask(one, other)
    one.answer(ended())
    questions.tick(ANSWER_S / 2)
    assert not future.done()
    questions.tick(ANSWER_S)
    assert future.result(0) is None


def test_without_servers_no_end_is_known() -> None:
    assert ask()[1].result(0) is None
