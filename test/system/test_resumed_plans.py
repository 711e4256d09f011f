"""Robots that are restarted while they execute a plan: real processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test.system.conftest import EXECUTORS, Start
from test.system.ros_client import PATIENT, Client, serving
from timely_llm import srv
from timely_llm.core.request import ErrorCode
from timely_llm.ros.client.plan import PlanClient, PlanClientError
from timely_llm.ros.client.talk import TalkClient

pytestmark = pytest.mark.faults
WAIT_S = 60.0
PLAN = "go(10);?sees('cat'){go(20);}2{go(30);go(40);}scan();go(50);->True;"
CALLS = ["go 10", "sees cat", "go 20", "go 30", "go 40", "go 30", "go 40", "scan", "go 50"]
HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=EXECUTORS)
def server(start: Start, domain: int, request: pytest.FixtureRequest) -> Iterator[Client]:
    files = f"[{HERE / 'patient.yaml'},{HERE / 'restarted.yaml'}]"
    parameters = PATIENT | {"skill_sets": files, "executor": request.param}
    with serving(start, Client, domain, client_timeout_s=60.0, **parameters) as made:
        yield made


def test_a_robot_that_is_killed_twice_executes_each_segment_once(
    start: Start, server: Client, tmp_path: Path
) -> None:
    calls, log, begun = tmp_path / "calls", tmp_path / "log", tmp_path / "begun"
    for goes in (["go 10", "go 20"], ["go 20", "go 30", "go 40", "go 30"]):
        begun.unlink(missing_ok=True)
        robot = start("test/system/restarted_robot.py", str(calls), str(log))
        end_s = time.monotonic() + WAIT_S
        while not begun.exists() or begun.read_text().splitlines() != goes:
            assert time.monotonic() < end_s and robot.popen.poll() is None, robot.output
            time.sleep(0.01)
        robot.popen.kill()
        robot.wait(WAIT_S)
    robot = start("test/system/restarted_robot.py", str(calls), str(log))
    assert robot.wait(WAIT_S) == 0, robot.output
    *made, last = calls.read_text().splitlines()
    assert made == CALLS
    assert last == f"True after {len(CALLS)} calls: {PLAN}"
    assert log.read_text() == ""
    server.until_listed({})


def test_segments_come_again_from_the_first_and_go_on(server: Client, domain: int) -> None:
    with PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as first:
        first.submit("Look.", request_id="tour")
        with PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as second:
            server.until_listed({"tour": "blocked"})
            assert second.running() == ("tour",)
            task = second.resume("tour")
            segments = task.segments(WAIT_S)
            text = ""
            for segment in segments:
                text += segment.text
                task.finished(segment, value="a cat")
            assert text == "mf(50);tc(90);tp();mf(50);->True;"
            assert task.result(WAIT_S).error_code is ErrorCode.NONE
            assert second.running() == ()


def test_a_resumed_plan_can_be_canceled(server: Client, domain: int) -> None:
    with (
        PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as first,
        PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as second,
    ):
        asked = first.submit("Look.", request_id="tour")
        server.until_listed({"tour": "blocked"})
        assert second.resume("tour").cancel(WAIT_S)
        assert asked.await_result(WAIT_S).error_code is ErrorCode.CANCELED


def test_a_plan_that_cannot_be_resumed_is_refused_in_a_sentence(
    server: Client, domain: int
) -> None:
    with (
        PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as rover,
        PlanClient("thief", "patient", domain=domain, find_s=WAIT_S) as thief,
        TalkClient("thief", domain=domain, find_s=WAIT_S) as talker,
    ):
        task = rover.submit("Look.", request_id="mine")
        server.until_listed({"mine": "blocked"})
        assert thief.running() == talker.running() == ()
        with pytest.raises(PlanClientError, match="request 'mine' is not one of 'thief'"):
            thief.resume("mine")
        with pytest.raises(PlanClientError, match="no request 'never' is being served: it has"):
            rover.resume("never")
        with pytest.raises(PlanClientError, match="give the id of its request"):
            rover.resume("")
        with pytest.raises(PlanClientError, match="a request 'mine' is open already"):
            rover.resume("mine")
        assert task.cancel(WAIT_S)


def test_the_service_returns_all_plans_of_an_agent(server: Client, domain: int) -> None:
    def answer(**fields: str) -> Any:
        return server.call(srv.GetSegments, "get_segments", **fields)

    with PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as client:
        tasks = [client.submit("Look.", request_id=name) for name in ("one", "two")]
        server.until_listed({"one": "blocked", "two": "blocked"})
        found = answer(agent="rover")
        assert [(s.request_id, s.index, s.text) for s in found.segments] == [
            (name, index, text)
            for name in ("one", "two")
            for index, text in enumerate(("mf(50);", "tc(90);"))
        ]
        assert all(segment.stamp.sec for segment in found.segments)
        assert answer(agent="other").segments == []
        refused = answer()
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert (
            refused.error_msg == "the segments of which plan: give the agent, or the request's id"
        )
        for task in tasks:
            task.cancel(WAIT_S)
