"""Texts of clients fill neither the server's log nor its memory."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test.system.conftest import Process, Start
from test.system.ros_client import PATIENT, Client
from timely_llm import msg, srv
from timely_llm.action import Converse
from timely_llm.core.request import ErrorCode
from timely_llm.ros import qos

pytestmark = pytest.mark.faults

HUGE = "x" * 10_000_000
LARGE = "x" * 500_000
FORGED = "eve\n[ERROR] [0.0] [plan_server]: forged\x1b[2J"
REFUSALS = 400
MOST_GROWTH = 40 * 2**20
"""Of the server's memory, bytes; the texts of all refusals are 400 MB."""
READER = """
import time
import rclpy
from timely_llm import msg
from timely_llm.ros import qos
rclpy.init()
node = rclpy.create_node("reader")
heard = []
node.create_subscription(msg.PlanResult, "plan_server/results", heard.append, qos.reliable())
while True:
    rclpy.spin_once(node, timeout_sec=0.1)
    if heard:
        print("heard", flush=True)
"""


@pytest.fixture(scope="module")
def server(start: Start) -> Process:
    return start("plan_server", **PATIENT)


@pytest.fixture(scope="module")
def client(server: Process, domain: int) -> Iterator[Client]:
    made = Client(domain)
    made.wait_for_action()
    yield made
    made.close()
    server.stop()
    assert server.popen.returncode == 0
    assert "Traceback" not in server.output


def is_short(text: str) -> bool:
    return text.isprintable() and len(text) < 700


def memory(process: Process) -> int:
    """Return a process's resident memory, bytes."""
    pages = Path(f"/proc/{process.popen.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def refused(client: Client, field: str, value: str) -> Any:
    """Submit a request with one bad field; return the response."""
    fields = {"agent": "eve", "skill_set": "patient", "task": "Look."} | {field: value}
    return client.call(srv.SubmitPlan, "submit_plan", request=msg.PlanRequest(**fields))


@pytest.mark.parametrize("value", [HUGE, FORGED], ids=["10 MB", "newline"])
def test_every_text_of_a_refused_plan_is_clipped(
    client: Client, server: Process, value: str
) -> None:
    results: list[msg.PlanResult] = []
    heard = client.node.create_subscription(
        msg.PlanResult, "plan_server/results", results.append, qos.reliable()
    )
    client.until(lambda: heard.get_publisher_count() == 1)
    for field in ("request_id", "agent", "skill_set", "task"):
        answer = refused(client, field, value)
        if field == "task" and value == FORGED:
            client.call(srv.CancelRequest, "cancel_request", request_id=answer.request_id)
            continue  # a task may have lines
        assert answer.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SKILL_SET)
        assert is_short(answer.error_msg), answer.error_msg[:1000]
        assert is_short(answer.request_id), answer.request_id[:1000]
        _, ended = client.plan(client.goal(**({"skill_set": "patient"} | {field: value})))
        assert ended.error_code == answer.error_code
        assert is_short(ended.error_msg)
        assert is_short(ended.request_id)
    client.until(lambda: len(results) >= 6)
    client.node.destroy_subscription(heard)
    for result in results:
        assert all(map(is_short, (result.request_id, result.agent, result.error_msg)))
    assert max(map(len, server.output.splitlines())) < 1000
    assert "\n[ERROR] [0.0] [plan_server]: forged" not in server.output


@pytest.mark.parametrize("value", [HUGE, FORGED], ids=["10 MB", "newline"])
def test_every_text_of_other_calls_is_clipped(client: Client, server: Process, value: str) -> None:
    canceled = client.call(srv.CancelRequest, "cancel_request", request_id=value)
    assert is_short(canceled.error_msg)
    registered = client.call(srv.RegisterSkillSet, "register_skill_set", yaml=f"name: {value!r}")
    assert registered.error_code == ErrorCode.INVALID_REQUEST
    assert is_short(registered.error_msg)
    report = msg.ExecutionReport(request_id="none", agent=value, state=255, value=value)
    client.reports.publish(report)
    report.state = 3
    client.reports.publish(report)
    for field in ("request_id", "agent", "slo_class", "conversation"):
        goal = Converse.Goal(**({"agent": "eve", "prompt": "Hello."} | {field: value}))
        result = talked(client, goal)
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert is_short(result.error_msg), result.error_msg[:1000]
        assert is_short(result.request_id)
    goal = Converse.Goal(agent="eve", messages=[msg.ChatMessage(role=value, content="Hello.")])
    assert is_short(talked(client, goal).error_msg)
    assert max(map(len, server.output.splitlines())) < 1000
    assert "\n[ERROR] [0.0] [plan_server]: forged" not in server.output


def talked(client: Client, goal: Converse.Goal) -> Any:
    from rclpy.action import ActionClient

    action: Any = ActionClient(
        client.node, Converse, "plan_server/converse", **qos.of_action("sub")
    )
    assert action.wait_for_server(60)
    handle = client.result(action.send_goal_async(goal))
    result = client.result(handle.get_result_async()).result
    action.destroy()
    return result


def test_refusals_beside_a_stopped_reader_keep_no_memory(
    client: Client, server: Process, start: Start, tmp_path: Path
) -> None:
    script = tmp_path / "reader.py"
    script.write_text(READER)
    reader = start(str(script))

    def heard() -> bool:
        refused(client, "agent", "")
        return "heard" in reader.output

    client.until(heard)
    reader.popen.send_signal(signal.SIGSTOP)
    try:
        refuse(client, 50)  # what is allocated once
        before = memory(server)
        lines = len(server.output.splitlines())
        refuse(client, REFUSALS)
        grown = memory(server) - before
        assert grown < MOST_GROWTH, f"{grown / 2**20:.1f} MiB"
        assert len(server.output.splitlines()) - lines < REFUSALS, "lines are left out"
        client.until(lambda: "more requests were refused within 1 s" in server.output)
    finally:
        reader.popen.send_signal(signal.SIGCONT)
    reader.popen.kill()


def test_refused_goals_keep_no_memory(client: Client, server: Process) -> None:
    goal = client.goal(agent=LARGE)
    for _ in range(20):  # what is allocated once
        client.plan(goal)
    before = memory(server)
    for _ in range(200):
        _, result = client.plan(goal)
        assert result.error_code == ErrorCode.INVALID_REQUEST
    grown = memory(server) - before
    assert grown < MOST_GROWTH, f"{grown / 2**20:.1f} MiB"


def refuse(client: Client, count: int) -> None:
    """Send `count` refused requests by topic, and wait for the result of each."""
    results: list[msg.PlanResult] = []
    heard = client.node.create_subscription(
        msg.PlanResult, "plan_server/results", results.append, qos.reliable()
    )
    client.until(lambda: heard.get_publisher_count() == 1)
    publisher: Any = client.node.create_publisher(
        msg.PlanRequest, "plan_server/plan_requests", qos.reliable()
    )
    client.until(lambda: publisher.get_subscription_count() == 1)
    for number in range(count):
        publisher.publish(
            msg.PlanRequest(request_id=f"{number}", agent=f"{number}{LARGE}", skill_set=LARGE)
        )
        client.until(lambda: bool(results) and results[-1].request_id == f"{number}")  # noqa: B023
    client.node.destroy_publisher(publisher)
    client.node.destroy_subscription(heard)


def test_a_server_beside_all_that_still_serves(start: Start, client: Client) -> None:
    answer = refused(client, "request_id", "fine")
    assert answer.error_code == ErrorCode.NONE
    client.until_listed({"fine": "blocked"})
