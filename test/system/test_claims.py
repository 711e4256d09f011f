"""No message ends a server, and two servers of one name do not begin to serve."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from test.system.conftest import Process, Start
from test.system.ros_client import PATIENT, Client, serving
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode
from timely_llm.ros.server.claim import FIND_S

CLAIMS = ("1e9", "inf", "-inf", "nan", "-1", "", "no number", "9" * 400, "x" * 5_000_000)
FLOOD = 10_000
LATCHED = QoSProfile(
    depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL, reliability=ReliabilityPolicy.RELIABLE
)


def asked(client: Client, request_id: str) -> ErrorCode:
    request = msg.PlanRequest(
        request_id=request_id, agent="tester", skill_set="patient", task="Look."
    )
    return ErrorCode(client.call(srv.SubmitPlan, "submit_plan", request=request).error_code)


@pytest.mark.counted
def test_claims_of_other_nodes_end_no_server(start: Start, domain: int) -> None:
    with serving(start, Client, domain, **PATIENT) as client:
        assert asked(client, "first") is ErrorCode.NONE
        publisher: Any = client.node.create_publisher(KeyValue, "plan_server/plan/_claim", LATCHED)
        client.until(lambda: client.node.count_publishers("plan_server/plan/_claim") == 2)
        for value in CLAIMS:
            for key in ("", "0", "f" * 32):
                publisher.publish(KeyValue(key=key, value=value))
        for number in range(FLOOD):
            publisher.publish(KeyValue(key=f"{number}", value="1e9"))
        # Its health is published once a second, after the check of the name: twice, to be sure.
        seen: list[DiagnosticArray] = []
        client.node.create_subscription(DiagnosticArray, "/diagnostics", seen.append, 10)
        client.until(lambda: len(seen) >= 2)
        assert asked(client, "second") is ErrorCode.NONE
        assert set(client.listed()) == {"first", "second"}


def test_of_two_that_start_at_once_one_serves(start: Start, domain: int) -> None:
    both = [start("plan_server", name_check_s=FIND_S, **PATIENT) for _ in range(2)]
    client = Client(domain)
    client.until(lambda: any(one.popen.poll() is not None for one in both))
    (loser,) = [one for one in both if one.popen.poll() is not None]
    (winner,) = [one for one in both if one is not loser]
    assert loser.popen.returncode in (1, os.EX_CONFIG)
    assert "another plan server has the action /plan_server/plan" in loser.output
    assert "ready" not in loser.output, "it served before it gave way"
    client.until(lambda: "ready" in winner.output)
    client.wait_for_action()
    assert asked(client, "one") is ErrorCode.NONE
    client.close()
    winner.stop()
    assert winner.popen.returncode == 0


def second_while_frozen(start: Start, client: Client, first: Process, *requests: str) -> Process:
    """Freeze a server until another one has taken its place and has these requests."""
    first.popen.send_signal(signal.SIGSTOP)
    try:
        second = start("plan_server", name_check_s=FIND_S, **PATIENT)
        client.until(lambda: "ready" in second.output)
        for request_id in requests:
            assert asked(client, request_id) is ErrorCode.NONE
    finally:
        first.popen.send_signal(signal.SIGCONT)
    return second


@pytest.mark.extended
@pytest.mark.faults
def test_of_two_that_serve_under_one_name_the_one_without_requests_ends(
    start: Start, domain: int
) -> None:
    with serving(start, Client, domain, **PATIENT) as client:
        first = _newest(start)
        assert asked(client, "old") is ErrorCode.NONE
        client.until_listed({"old": "blocked"})
        second = second_while_frozen(start, client, first)
        client.until(lambda: second.popen.poll() is not None)
        assert second.popen.returncode == 1, "it may come back when the name is free"
        last = second.output.splitlines()[-1]
        assert last.startswith("plan_server: 2 plan servers answer the action /plan_server/plan")
        assert last.endswith("this one serves no request, and gives way to /plan_server")
        client.until_listed({"old": "blocked"})
        assert asked(client, "new") is ErrorCode.NONE
        client.until_listed({"old": "blocked", "new": "blocked"})


@pytest.mark.extended
def test_two_that_have_requests_both_stay(start: Start, domain: int) -> None:
    with serving(start, Client, domain, **PATIENT) as client:
        first = _newest(start)
        assert asked(client, "old") is ErrorCode.NONE
        second = second_while_frozen(start, client, first, "new")
        told: list[tuple[bytes, str]] = []

        def note(array: DiagnosticArray) -> None:
            for status in array.status:
                if status.name == "plan_server: serving":
                    told.append((status.level, status.message))

        client.node.create_subscription(DiagnosticArray, "/diagnostics", note, 10)
        # Both publish once a second: the last four are of both.
        client.until(
            lambda: (
                len(told) >= 4 and all(level == DiagnosticStatus.ERROR for level, _ in told[-4:])
            )
        )
        for _, message in told[-4:]:
            assert "2 plan servers answer the action /plan_server/plan" in message
            assert message.endswith("stop all but one, or give each a name of its own")
        for server in (first, second):
            assert server.output.count("plan servers answer the action") == 1, "said once"
            assert "and node /plan_server: stop all but one" in server.output
            assert server.popen.poll() is None
        second.stop()
        told.clear()
        client.until(lambda: bool(told) and told[-1][0] != DiagnosticStatus.ERROR)
        assert "old" in client.listed(), "it keeps what it serves"


@pytest.mark.parametrize("autostart", [False, True])
def test_a_node_that_only_offers_the_service_keeps_new_servers_out_and_is_named(
    start: Start, domain: int, autostart: bool
) -> None:
    from rclpy.action import ActionServer

    from timely_llm.action import Plan

    client = Client(domain)
    fake: Any = ActionServer(client.node, Plan, "plan_server/plan", lambda _: Plan.Result())
    late = start("plan_server", name_check_s=FIND_S, autostart=autostart, **PATIENT)
    assert late.wait(60) == 1, "it may be one that was killed: a restart may help"
    assert "has the action /plan_server/plan in ROS domain" in late.output
    assert "(node /system_test)" in late.output
    fake.destroy()
    client.close()


def _newest(start: Start) -> Process:
    made: list[Process] = start.made  # type: ignore[attr-defined]
    return made[-1]
