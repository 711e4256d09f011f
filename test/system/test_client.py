"""PlanClient against a real server: what users of the class see."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import rclpy
from rclpy.context import Context

from test.system.conftest import EXECUTORS, Start
from test.system.ros_client import PATIENT, Client, serving
from timely_llm import msg
from timely_llm.core.errors import RequestError
from timely_llm.core.request import ErrorCode
from timely_llm.core.time_utility import URGENT
from timely_llm.ros import qos
from timely_llm.ros.client.plan import PlanClient, PlanClientError, PlanTask, PlanTimeout

PLAN = "mf(50);tc(90);tp();mf(50);->True;"
WAIT_S = 30.0


@pytest.fixture(scope="module", params=EXECUTORS)
def server(start: Start, domain: int, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A server that plans for `drone` and waits for `patient`, and its client."""
    skill_sets = f"{PATIENT['skill_sets']}"[:-1] + ",test/system/patrol.yaml]"
    parameters = PATIENT | {"skill_sets": skill_sets, "executor": request.param}
    with serving(start, Client, domain, **parameters) as made:
        yield made


@pytest.fixture
def client(server: Client, domain: int) -> Iterator[PlanClient]:
    with PlanClient("robot", domain=domain, find_s=WAIT_S) as made:
        yield made


@pytest.fixture
def patient(server: Client, domain: int) -> Iterator[PlanClient]:
    with PlanClient("waiter", "patient", domain=domain, find_s=WAIT_S) as made:
        yield made


def read(task: PlanTask) -> str:
    """Execute a plan in no time; return its text."""
    text = ""
    for segment in task.segments(WAIT_S):
        task.started(segment)
        task.finished(segment)
        text += segment.text
    return text


def test_segments_make_up_the_plan(client: PlanClient) -> None:
    task = client.submit("Look around.")
    assert read(task) == PLAN
    result = task.result(WAIT_S)
    assert (result.error_code, result.plan, result.agent) == (ErrorCode.NONE, PLAN, "robot")
    assert task.done


@pytest.mark.parametrize("epoch", [1, 5])
def test_a_forged_segment_of_a_later_epoch_is_not_executed_and_ends_no_plan(
    server: Client, client: PlanClient, epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    forger = server.node.create_publisher(msg.Segment, "plan_server/segments", qos.reliable())
    task = client.submit("Look around.")
    forged = msg.Segment(request_id=task.request_id, agent="robot", text="mf(999);", epoch=epoch)

    def ignored() -> bool:
        forger.publish(forged)
        return bool(caplog.messages)

    text = ""
    for segment in task.segments(WAIT_S):
        server.until(ignored)
        task.started(segment)
        task.finished(segment)
        text += segment.text
    assert text == PLAN
    assert task.result(WAIT_S).error_code is ErrorCode.NONE
    assert [f"epoch {epoch} of request" in line for line in caplog.messages] == [True]
    server.node.destroy_publisher(forger)


def test_a_burst_of_goals_is_answered_whole(client: PlanClient) -> None:
    tasks = [client.submit("Look around.") for _ in range(60)]
    refused = [task for task in tasks[16:] if task.result(WAIT_S).error_code]
    assert len(refused) == 44, "an agent may have 16 requests served"
    for task in tasks[:16]:
        assert next(task.segments(WAIT_S)).index == 0
        task.cancel()
    assert {task.result(WAIT_S).error_code for task in tasks[:16]} == {ErrorCode.CANCELED}


def test_a_value_lets_a_plan_go_on(patient: PlanClient) -> None:
    task = patient.submit("Look around.", URGENT)
    segments = task.segments(WAIT_S)
    segment = next(segments)
    while not segment.blocking:
        segment = next(segments)
    task.finished(segment, value="a cat")
    assert next(segments).index == segment.index + 1
    task.returned()
    assert task.result(WAIT_S).error_code is ErrorCode.NONE


def test_a_failure_brings_a_new_plan_until_there_were_enough(patient: PlanClient) -> None:
    task = patient.submit("Look around.")
    segments = task.segments(WAIT_S)
    for epoch in range(3):
        segment = next(segments)
        assert (segment.epoch, segment.index) == (epoch, 0)
        task.failed(segment, "a person is in the way")
    with pytest.raises(PlanClientError, match="segment 0 failed: a person is in the") as raised:
        next(segments)
    assert raised.value.code is ErrorCode.EXECUTION_FAILED
    assert task.result(WAIT_S).epoch == 2


def test_a_canceled_request_leaves_the_server(patient: PlanClient, server: Client) -> None:
    task = patient.submit("Look around.", request_id="canceled")
    server.until_listed({"canceled": "blocked"})
    assert task.cancel(WAIT_S)
    assert server.listed() == {}
    with pytest.raises(PlanClientError) as raised:
        list(task.segments(WAIT_S))
    assert raised.value.code is ErrorCode.CANCELED


def test_refusals_are_one_sentence(client: PlanClient, domain: int) -> None:
    with pytest.raises(RequestError, match="the task is empty"):
        client.submit(" ")
    with pytest.raises(RequestError, match="temperature must be 0 to 2, not nan"):
        client.submit("Look.", temperature=float("nan"))
    with pytest.raises(RequestError, match="seed must be 0 to 4294967295, not -1"):
        client.submit("Look.", seed=-1)
    with pytest.raises(RequestError, match=r"the task holds '\\ud800' at place 5"):
        client.submit("Look \ud800.")
    with PlanClient("robot", "boat", domain=domain) as other:
        task = other.submit("Row.")
        with pytest.raises(PlanClientError, match="unknown skill set 'boat'") as raised:
            list(task.segments(WAIT_S))
    assert raised.value.code is ErrorCode.UNKNOWN_SKILL_SET


def test_several_threads_may_use_one_client(client: PlanClient) -> None:
    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(lambda i: read(client.submit(f"Look {i}.")), range(8)))
    assert plans == [PLAN] * 8


def test_several_clients_fit_into_one_ros_application(server: Client, domain: int) -> None:
    context = Context()
    rclpy.init(context=context, domain_id=domain)
    node = rclpy.create_node("application", context=context)
    with PlanClient("a", domain=domain) as one, PlanClient("b", domain=domain) as two:
        assert read(one.submit("Look.")) == read(two.submit("Look.")) == PLAN
    assert context.ok()
    node.destroy_node()
    rclpy.shutdown(context=context)


def test_closing_cancels_what_is_open_and_leaves_no_thread(server: Client, domain: int) -> None:
    before = threading.active_count()
    client = PlanClient("leaver", "patient", domain=domain)
    task = client.submit("Look.", request_id="left")
    server.until_listed({"left": "blocked"})
    client.close()
    assert server.listed() == {}
    assert task.done
    assert threading.active_count() == before
    with pytest.raises(PlanClientError, match="the client is closed"):
        client.submit("Look.")
    client.close()


def test_a_missing_server_is_named(server: Client, domain: int) -> None:
    with (
        PlanClient("robot", server="absent", namespace="/lab", domain=domain) as client,
        pytest.raises(PlanTimeout, match=r"no plan server /lab/absent answered within 0.2 s"),
    ):
        client.wait_for_server(0.2)


def test_a_name_that_is_not_possible_is_named(domain: int) -> None:
    with pytest.raises(PlanClientError, match="cannot make a client of 'plan server'"):
        PlanClient("robot", server="plan server", domain=domain)
