"""A server with a recovery journal behind a dispatcher, or the dispatcher, is killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from test.system.conftest import Process, Start
from test.system.ros_client import PATIENT, Client
from test.system.ros_talker import SLOW
from timely_llm.engines.example_script import NO_MODEL
from timely_llm.robots.client.execution import Executed
from timely_llm.ros.client.plan import PlanClient
from timely_llm.ros.client.talk import TalkClient

pytestmark = pytest.mark.faults
WAIT_S = 60.0
ROBOTS = 3
JOINS = "server /s1/plan_server joins"


def until(
    condition: Callable[[], bool], dispatcher: Process, robots: Sequence[Future[Any]]
) -> None:
    """Wait until a condition holds; fail if it does not in time, and if a robot fails before."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        for one in robots:
            if one.done():
                one.result()
        assert time.monotonic() < end_s, dispatcher.output
        time.sleep(0.02)


@pytest.mark.parametrize(("away_s", "reports"), [(0.0, "late"), (0.0, "early"), (5.0, "early")])
def test_plans_go_on_when_the_only_server_is_killed_and_comes_back_with_its_journal(
    start: Start, domain: int, tmp_path: Path, away_s: float, reports: str
) -> None:
    """Values are reported while the server is away (early), or when it is back (late)."""
    parameters = PATIENT | {"client_timeout_s": 60.0, "recovery_journal": str(tmp_path / "journal")}
    server = start("plan_server", "-r", "__ns:=/s1", **parameters)
    dispatcher = start("dispatch.node", name_check_s=0.0)
    until(lambda: JOINS in dispatcher.output, dispatcher, ())
    looked: set[str] = set()
    go_on = Event()

    def robot(name: str) -> Executed:
        def look(*words: object) -> str:
            if name not in looked:  # the plan of the next epoch may ask again
                looked.add(name)
                assert go_on.wait(WAIT_S)
            return "a cat"

        with PlanClient(name, "patient", domain=domain, find_s=WAIT_S) as client:
            return client.execute(
                "Look.", {"tc": look}, otherwise=lambda *_: None, request_id=f"tour-{name}",
                timeout_s=WAIT_S,
            )  # fmt: skip

    with ThreadPoolExecutor(ROBOTS) as pool:
        robots = [pool.submit(robot, f"rover-{number}") for number in range(ROBOTS)]
        until(lambda: len(looked) == ROBOTS, dispatcher, robots)
        server.popen.send_signal(signal.SIGKILL)
        server.popen.wait()
        if reports == "early":
            go_on.set()
        time.sleep(away_s)  # shorter, and longer, than a dispatcher needs to miss its server
        server = start("plan_server", "-r", "__ns:=/s1", **parameters)
        until(lambda: dispatcher.output.count(JOINS) == 2, dispatcher, robots)
        go_on.set()
        ended = [one.result(WAIT_S) for one in robots]
    for one in ended:
        assert one.plan == "mf(50);tc(90);tp();mf(50);->True;"
        segments = [(call.epoch, call.index) for call in one.calls]
        assert len(set(segments)) == len(segments), "each segment has one call"
    client = Client(domain)
    client.wait_for_action()
    client.until_listed({})
    client.close()
    assert "recovery journal: 3 requests had not ended" in server.output
    for process in (dispatcher, server):
        process.stop()
        assert process.popen.returncode == 0 and "Traceback" not in process.output


def test_a_listener_gets_the_whole_answer_when_the_dispatcher_is_killed_in_the_middle(
    start: Start, domain: int
) -> None:
    server = start("plan_server", "-r", "__ns:=/s1", **SLOW, client_timeout_s=60.0)
    dispatcher = start("dispatch.node", name_check_s=0.0)
    until(lambda: JOINS in dispatcher.output, dispatcher, ())
    with TalkClient("ann", domain=domain, find_s=WAIT_S) as ann:
        answer = ann.converse("Hello.")
        chunks = answer.chunks(WAIT_S)
        text = next(chunks)
        dispatcher.popen.send_signal(signal.SIGKILL)
        dispatcher.popen.wait()
        dispatcher = start("dispatch.node", name_check_s=0.0)
        text += "".join(chunks)
        assert text == answer.result(WAIT_S).text == NO_MODEL
    for process in (dispatcher, server):
        process.stop()
        assert process.popen.returncode == 0 and "Traceback" not in process.output
