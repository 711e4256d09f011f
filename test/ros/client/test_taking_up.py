"""What a client keeps without a server, for how long, and what the next server gets."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from timely_llm import msg, srv
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import (
    ExecutionReport,
    PlanResult,
    ReportState,
    StreamChunk,
    StreamResult,
)
from timely_llm.robots.client.pending import PlanClientError, ServerLost
from timely_llm.robots.client.plan_task import PlanTask
from timely_llm.robots.client.taking_up import TAKEN_S, AnswerTakingUp, PlanTakingUp
from timely_llm.ros.client.taking_up import WatchedServer
from timely_llm.ros.client.talk import Answer

DIED = "the server died"


class Server:
    """What a client's node sees of a server."""

    server = "/plan_server"
    server_is_there = True

    def __init__(self) -> None:
        self.watch = self.inquiries = self
        self.resumes = self.found = True
        self.problem = ""
        self.closed: list[str] = []
        self.taken: list[str] = []
        self.canceled: list[str] = []
        self.reports: list[ExecutionReport] = []
        self.segments = srv.GetSegments.Response(error_code=2, error_msg="no such request")
        self.result = srv.GetResult.Response()
        self.asked = 0

    def find(self, there: Callable[[], bool]) -> bool:
        if self.problem:
            raise ConfigurationError(self.problem)
        return self.found and there()

    def close(self, request_id: str) -> None:
        self.closed.append(request_id)

    def take_up(self, request_id: str) -> None:
        self.taken.append(request_id)

    def cancel(self, request_id: str) -> None:
        if request_id in self.taken:  # a node cancels what its server has
            self.canceled.append(request_id)

    def report(self, report: ExecutionReport) -> None:
        self.reports.append(report)

    def ask_segments(self, request_id: str, agent: str, answered: Future[Any]) -> bool:
        self.asked += 1
        answered.set_result(self.segments)
        return True

    def ask_result(self, request_id: str, answered: Callable[[Any], None]) -> bool:
        answered(self.result)
        return True


class Client:
    """A client with one open plan, on a clock of its own."""

    def __init__(self, recovery_s: float = 30.0) -> None:
        self.now = 100.0
        self.server = Server()
        node: Any = self.server
        sender: Any = self.server
        self.task = PlanTask("tour", "rover", sender)
        self.taking_up: PlanTakingUp[PlanTask] = PlanTakingUp(
            WatchedServer(node), PlanResult, recovery_s, lambda: self.now
        )

    def lose(self) -> None:
        self.taking_up.keep([self.task], DIED)

    def wait(self, seconds: float) -> None:
        end_s = self.now + seconds
        while self.now < end_s:
            self.now += 0.1
            self.taking_up.tick([] if self.task.done else ["tour"])

    def reason(self) -> str:
        with pytest.raises(PlanClientError) as caught:
            self.task.await_result(0.0)
        return str(caught.value) if isinstance(caught.value, ServerLost) else ""


@pytest.fixture
def client() -> Client:
    return Client()


def report(epoch: int, index: int) -> ExecutionReport:
    return ExecutionReport("tour", "rover", ReportState.FINISHED, index, 1.0, "", epoch)


def known(*texts: str, epoch: int = 0) -> srv.GetSegments.Response:
    return srv.GetSegments.Response(
        segments=[
            msg.Segment(request_id="tour", agent="rover", index=index, epoch=epoch, text=text)
            for index, text in enumerate(texts)
        ]
    )


def test_the_next_server_sends_the_segments_and_gets_the_reports_of_the_newest_epoch(
    client: Client,
) -> None:
    for one in (report(0, 0), report(0, 1), report(1, 0), report(1, 1)):
        client.taking_up.report(one)
    client.server.found = False
    client.lose()
    client.wait(20.0)
    assert client.server.closed == ["tour"]
    assert not client.task.done and not client.server.asked
    client.server.found, client.server.segments = True, known("mf(50);", "tc(90);")
    client.server.reports.clear()
    client.wait(1.0)
    assert client.server.taken == ["tour"]
    assert client.server.reports == [report(1, 0), report(1, 1)]
    found = [client.task.known(0, index) for index in (0, 1)]
    assert [one and one.text for one in found] == ["mf(50);", "tc(90);"]
    client.wait(60.0)
    assert [client.server.asked, client.task.done] == [1, False]


def test_the_epoch_that_the_next_server_names_is_taken(client: Client) -> None:
    client.server.segments = known("mf(50);", epoch=2)
    client.lose()
    client.wait(1.0)
    found = client.task.known(2, 0)
    assert found and found.text == "mf(50);"


def test_a_plan_is_lost_at_once_where_nothing_is_resumed(client: Client) -> None:
    client.server.resumes = False
    client.lose()
    assert client.reason() == DIED


def test_a_plan_is_lost_at_once_if_the_user_wants_no_pause() -> None:
    client = Client(recovery_s=0.0)
    client.lose()
    assert client.reason() == DIED


def test_a_plan_is_lost_when_no_server_is_found_in_time(client: Client) -> None:
    client.server.found = False
    client.lose()
    client.wait(29.0)
    assert not client.task.done
    client.wait(2.0)
    assert client.reason() == DIED


def test_a_dispatcher_gets_time_to_find_what_its_servers_have(client: Client) -> None:
    client.lose()
    client.wait(TAKEN_S - 1.0)
    assert not client.task.done and client.server.asked > 5
    client.wait(2.0)
    assert "does not know the request 'tour' any more" in client.reason()


def test_a_server_without_a_journal_gets_no_such_time(client: Client) -> None:
    client.lose()
    client.server.resumes = False
    client.wait(1.0)
    assert "does not know the request 'tour' any more" in client.reason()


def test_a_result_that_was_kept_ends_the_plan(client: Client) -> None:
    client.server.result = srv.GetResult.Response(
        state=srv.GetResult.Response.PLAN,
        plan=msg.PlanResult(request_id="tour", agent="rover", plan="mf(50);"),
    )
    client.lose()
    client.wait(1.0)
    assert client.task.await_result(0.0).plan == "mf(50);"


def test_a_server_of_another_interface_ends_the_plan_in_its_words(client: Client) -> None:
    client.lose()
    client.server.problem = "the server has interface 3"
    client.wait(0.2)
    assert client.reason() == "the server has interface 3"


def test_reports_of_ended_plans_are_forgotten(client: Client) -> None:
    for place in range(100):
        client.taking_up.report(
            ExecutionReport(f"plan {place}", "rover", ReportState.STARTED, 0, 0.0, "", 0)
        )
    client.taking_up.tick(["plan 99"])
    assert list(client.taking_up._reports) == ["plan 99"]


def test_a_plan_that_was_canceled_meanwhile_is_canceled_at_the_next_server(client: Client) -> None:
    client.server.found = False
    client.lose()
    client.task.ask_to_cancel()
    client.wait(1.0)
    assert not client.server.canceled
    client.server.found, client.server.segments = True, known("mf(50);")
    client.wait(1.0)
    assert client.server.canceled == ["tour"]


def test_the_next_server_has_what_was_made_of_an_answer_so_far() -> None:
    server: Any = Server()
    served = srv.GetResult.Response.SERVED
    made = msg.StreamResult(text="Good mor", generated_tokens=3)
    server.result = srv.GetResult.Response(state=served, answer=made)
    answer = Answer("a", "ann", server)
    answer.offer(StreamChunk("a", "ann", 0, "Good"))
    taking_up: AnswerTakingUp[Answer] = AnswerTakingUp(WatchedServer(server), StreamResult, 30.0)
    taking_up.keep([answer], DIED)
    taking_up.tick(["a"])
    assert server.taken == ["a"]
    answer.offer(StreamChunk("a", "ann", 3, "ning."))
    assert next(answer.chunks(0.0)) == "Good morning."
    taking_up.tick(["a"])
    assert server.taken == ["a"]
