"""Clients of servers that are killed, stopped, frozen and restarted: real processes."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from test.system.conftest import EXECUTORS, Process, Start
from test.system.outcomes import Outcomes
from test.system.ros_client import LONG, PATIENT
from timely_llm.core.request import ErrorCode
from timely_llm.ros.client.plan import PlanClient, PlanTask, ServerLost
from timely_llm.ros.client.talk import TalkClient

pytestmark = pytest.mark.faults
WAIT_S = 60.0
DIED = r"the server /plan_server died or cannot be reached \(no sign of life for 2 s\)"
Run = Callable[[], Process]
ONE = pytest.mark.parametrize("run", EXECUTORS[:1], indirect=True)


@pytest.fixture(params=EXECUTORS)
def run(start: Start, request: pytest.FixtureRequest) -> Iterator[Run]:
    """Starts servers that wait for a value in the middle of every plan; ended with the test."""
    made: list[Process] = []

    def begin() -> Process:
        parameters = PATIENT | {"executor": request.param, "client_timeout_s": 60.0}
        made.append(start("plan_server", **parameters))
        return made[-1]

    yield begin
    for process in made:
        if process.popen.poll() is None:
            process.popen.send_signal(signal.SIGCONT)
            process.popen.kill()
            process.wait(WAIT_S)
        assert "Traceback" not in process.output


@pytest.fixture
def client(domain: int) -> Iterator[PlanClient]:
    with PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as made:
        yield made


def begun(client: PlanClient, request_id: str = "") -> PlanTask:
    """Ask for a plan that waits for a value; return when its first segment is there."""
    task = client.submit("Look.", request_id=request_id)
    next(task.segments(WAIT_S))
    return task


def test_a_killed_server_is_reported_and_the_next_one_found(
    run: Run, client: PlanClient, domain: int
) -> None:
    server = run()
    task = begun(client)
    with TalkClient("ann", domain=domain, find_s=WAIT_S) as talker:
        talker.wait_for_server(WAIT_S)
        server.popen.kill()
        answer = talker.converse("Hello?")
        with pytest.raises(ServerLost, match=DIED):
            list(answer.chunks(WAIT_S))
        with pytest.raises(ServerLost, match=DIED) as raised:
            list(task.segments(WAIT_S))
        assert raised.value.code is ErrorCode.SHUTTING_DOWN
        with pytest.raises(ServerLost, match=DIED):
            task.result(WAIT_S)
        run()
        begun(client).cancel(WAIT_S)  # the same client; it waits until the new server is there
        assert talker.converse("Hello?").result(WAIT_S).error_code is ErrorCode.NONE


def test_a_frozen_server_is_reported_and_comes_back(run: Run, client: PlanClient) -> None:
    server = run()
    task = begun(client, "frozen")
    server.popen.send_signal(signal.SIGSTOP)
    with pytest.raises(ServerLost, match=DIED):
        client.result_of("frozen", WAIT_S)
    assert task.done
    server.popen.send_signal(signal.SIGCONT)
    begun(client).cancel(WAIT_S)


def test_a_server_that_ends_says_so_itself(run: Run, client: PlanClient) -> None:
    server = run()
    task = begun(client)
    server.interrupt()
    result = task.await_result(WAIT_S)
    assert result.error_code is ErrorCode.SHUTTING_DOWN
    assert server.wait(WAIT_S) == 0
    run()
    begun(client).cancel(WAIT_S)


@ONE
def test_requests_of_a_former_server_are_lost_though_no_client_noticed_its_end(
    run: Run, client: PlanClient
) -> None:
    server = run()
    task = begun(client, "before")
    client._node.watch.lost = lambda: ""  # type: ignore[method-assign]
    server.popen.kill()
    run()
    with pytest.raises(ServerLost, match="does not know the request 'before' any more"):
        task.result(WAIT_S)
    begun(client).cancel(WAIT_S)


def test_a_server_with_python_hung_for_seconds_is_not_dead(start: Start, domain: int) -> None:
    words = [word for pair in PATIENT.items() for word in ("-p", f"{pair[0]}:={pair[1]}")]
    server = start("test/system/hung_server.py", "naps", "--ros-args", *words)
    with PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as client:
        task = begun(client)
        stuck = client.submit("Look.", request_id="stuck")
        segments = stuck.segments(WAIT_S)
        assert next(segments).index == 0, server.output
        assert not task.done
        assert stuck.cancel(WAIT_S)
        assert task.cancel(WAIT_S)
    server.stop()  # the next test's clients would find it


@ONE
def test_robots_and_people_go_on_with_the_next_server(
    start: Start, run: Run, tmp_path: Path
) -> None:
    server = run()
    robots, people = tmp_path / "robots.jsonl", tmp_path / "people.jsonl"
    skill_set = str(PATIENT["skill_sets"]).strip("[]")
    common = {"duration_s": 600.0}
    fleet = start(
        "robot_fleet", **common, log=robots, robots=2, events_per_s=10.0, skill_set=skill_set
    )
    talkers = start("talkers", **common, log=people, people=2, pause_s=0.1)
    follow(robots, "receive")
    follow(people, "heard")
    server.popen.kill()
    words = "died or cannot be reached"
    lost = follow(robots, "done", lambda event: words in event["error_msg"])
    assert lost["outcome"] == "error"
    end_s = time.monotonic() + WAIT_S
    while not (words in fleet.output and words in talkers.output):
        assert time.monotonic() < end_s, fleet.output + talkers.output
        time.sleep(0.05)
    seen = [len(log.read_text().splitlines()) for log in (robots, people)]
    run()
    follow(robots, "receive", first=seen[0])
    follow(people, "heard", first=seen[1])
    for process in (fleet, talkers):
        process.stop()
        assert process.popen.returncode == 0
        assert "Traceback" not in process.output


def follow(
    log: Path, kind: str, fits: Callable[[Any], bool] = lambda _: True, first: int = 0
) -> Any:
    """Wait for an event in an event log, from a line on; return it."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        lines = log.read_text().splitlines(keepends=True)[first:] if log.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        for event in events:
            if event["event"] == kind and fits(event):
                return event
        time.sleep(0.05)
    raise AssertionError(f"no {kind} in {log.read_text()}")


def test_ask_ends_with_a_sentence(start: Start, outcomes: Outcomes) -> None:
    server = start("plan_server", engine="simulated")
    asked = start("scripts/timely-llm", "ask", LONG, "--pretend", "--json", "--wait", f"{WAIT_S:g}")
    end_s = time.monotonic() + WAIT_S
    while '"index": 0' not in asked.output:
        assert time.monotonic() < end_s and asked.popen.poll() is None, asked.output
        time.sleep(0.05)
    server.popen.kill()
    assert asked.wait(WAIT_S) == 1
    said = " ".join(asked.output.split())
    assert re.search(rf"{DIED}$", said.strip()), said
    outcomes.explained(json.loads(asked.output.splitlines()[0])["request_id"], said)
    assert "Traceback" not in said
