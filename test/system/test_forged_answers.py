"""Another node answers first in the server's name: a client with a key waits for its server.

The server is stopped by SIGSTOP until the other node has answered.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from test.system.conftest import Process, Start
from test.system.ros_client import PATIENT, Client, serving
from timely_llm.core.request import ErrorCode
from timely_llm.identity.keys import new_key
from timely_llm.ros.client import inquiries, server_watch
from timely_llm.ros.client.plan import PlanClient, PlanClientError

WAIT_S = 60.0
PLAN = "mf(50);tc(90);tp();mf(50);->True;"
FIRST = "mf(11);mf(12);mf(13);->True;"
Answer = TypeVar("Answer")


class Site:
    """A server that checks keys, a node that looks on, and sometimes one that forges answers."""

    def __init__(self, client: Client, start: Start, domain: int, keys: Path) -> None:
        self._client, self._start, self._domain, self._keys = client, start, domain, keys
        made: list[Process] = start.made  # type: ignore[attr-defined]
        self._server = made[0]
        self.until = client.until
        self.pool = ThreadPoolExecutor(1)

    def robot(self) -> PlanClient:
        """Return a client with the key of the agent `tester`."""
        key = self._keys / "tester.key"
        return PlanClient("tester", "patient", key_file=key, domain=self._domain, find_s=WAIT_S)

    def forger(self, way: str) -> Process:
        """Start a node that forges answers."""
        forger = self._start("test/system/forger.py", way)
        self.until_says(forger, "hears")
        return forger

    def until_says(self, forger: Process, words: str, times: int = 1) -> None:
        """Wait until a forger has printed words this number of times."""
        self.until(lambda: forger.output.count(words) >= times or forger.popen.poll() is not None)
        assert forger.popen.poll() is None, forger.output

    def meet(self, robot: PlanClient, forger: Process) -> None:
        """Wait until a robot and a forger can reach each other, and the robot knows its server."""
        watch = robot._node.watch
        while f"answers {LAST}" not in forger.output or watch._liveness._alive < 2:
            robot.running()
            self.until(lambda: True)
        while not watch.fits:
            robot.wait_for_server(WAIT_S)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the server do nothing meanwhile."""
        self._server.popen.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._server.popen.send_signal(signal.SIGCONT)

    def forged_first(self, forger: Process, service: str, ask: Callable[[], Answer]) -> Answer:
        """Call a function, and let the server answer only after the forger did."""
        words = f"answers {service}\n"
        times = forger.output.count(words)
        with self.paused():
            asked = self.pool.submit(ask)
            self.until_says(forger, words, times + 1)
        return asked.result(WAIT_S)


LAST = "list_requests"
"""The service that a forger offers last: a robot that reaches it reaches all."""


@pytest.fixture(scope="module")
def site(start: Start, domain: int, key_folder: Path) -> Iterator[Site]:
    parameters = PATIENT | {"agent_keys": str(key_folder), "accept_plans": True}
    with serving(start, Client, domain, **parameters) as client:
        made = Site(client, start, domain, key_folder)
        yield made
        made.pool.shutdown()


def skills(moved: list[int], look: Callable[[], Any] = lambda: None) -> dict[str, Any]:
    """Return a robot's skills, which write down what it moves by."""

    def turn(_: int) -> str:
        look()
        return "a cat"

    return {"mf": moved.append, "tc": turn, "tp": lambda: None}


@pytest.mark.parametrize("way", ["refuses", "denies"])
def test_a_forged_refusal_ends_no_request(
    site: Site, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(inquiries, "MISSED_S", 0.2)
    monkeypatch.setattr(server_watch, "PROOF_S", WAIT_S)
    moved: list[int] = []
    with site.robot() as robot:
        robot.wait_for_server(WAIT_S)
        forger = site.forger(way)
        site.meet(robot, forger)
        dropped = robot.dropped
        with site.paused():
            task = robot.submit("Look.", request_id=f"task that it {way}")
            site.until_says(forger, "answers plan/_action/send_goal\n")
            site.until_says(forger, "answers get_result\n", inquiries.UNKNOWN + 1)
        assert task.execute(skills(moved), timeout_s=WAIT_S).plan == PLAN
        assert task.result(WAIT_S).error_code is ErrorCode.NONE
        assert moved == [50, 50] and robot.dropped >= dropped + inquiries.UNKNOWN + 1
    forger.stop()


def test_forged_descriptions_of_a_server_and_of_its_requests_change_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_watch, "PROOF_S", WAIT_S)
    with site.robot() as first:
        task = first.submit("Look.", request_id="open")
        assert next(task.segments(WAIT_S)).text == "mf(50);"
        forger = site.forger("refuses")
        site.until_says(forger, "begins")
        with site.robot() as robot:
            node = robot._node._node
            site.until(lambda: node.count_services("/plan_server/get_identity") == 2)
            site.forged_first(forger, "get_identity", lambda: robot.wait_for_server(WAIT_S))
            assert robot._node.watch.challenge == first._node.watch.challenge != "forged"

            def ask(service: str, question: Callable[[], Answer]) -> Answer:
                site.meet(robot, forger)
                return site.forged_first(forger, service, question)

            assert ask("list_requests", robot.running) == ("open",)
            assert ask("get_skill_set", robot.skill_set).description != "a forged robot"
            again = ask("get_segments", lambda: robot.resume("open"))
            texts = []
            for segment in again.segments(WAIT_S):
                texts.append(segment.text)
                again.finished(segment, value="a cat")
            assert "".join(texts) == PLAN
            assert ask("get_result", lambda: robot.result_of("open", WAIT_S)).plan == PLAN
    forger.stop()


@pytest.mark.parametrize("way", ["replays", "echoes"])
def test_signed_segments_and_results_of_another_request_do_not_pass_for_a_later_one(
    site: Site, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(server_watch, "PROOF_S", WAIT_S)
    moved: list[int] = []
    second = f"second, which it {way}"
    with site.robot() as robot:
        robot.wait_for_server(WAIT_S)
        forger = site.forger(way)
        while "begins" not in forger.output:  # it hears the segments once it has found the server
            first = f"first {uuid.uuid4().hex}"
            done = robot.execute("", skills(moved), plan=FIRST, request_id=first, timeout_s=WAIT_S)
            assert done.plan == FIRST and moved == [11, 12, 13]
            moved.clear()
        site.until_says(forger, "begins")
        if way == "echoes":
            task = robot.submit("Look.", request_id=second)
        else:
            site.meet(robot, forger)
            with site.paused():
                task = robot.submit("Look.", request_id=second)
                site.until_says(forger, "answers plan/_action/get_result\n")

        def look() -> None:
            site.until_says(forger, "replays\n", forger.output.count("replays\n") + 20)

        assert task.execute(skills(moved, look), timeout_s=WAIT_S).plan == PLAN
        assert moved == [50, 50]
        assert task.result(WAIT_S).plan == PLAN
    forger.stop()


@pytest.mark.parametrize("agent", ["tester", "guest"])
def test_a_client_with_a_key_that_the_server_does_not_have_reads_so(
    site: Site, domain: int, tmp_path: Path, agent: str
) -> None:
    key = new_key(agent, tmp_path / "keys")
    with PlanClient(agent, "patient", key_file=key, domain=domain, find_s=WAIT_S) as robot:
        words = f"did not sign its answer with the key of the agent '{agent}'"
        with pytest.raises(PlanClientError, match=words):
            robot.submit("Look.")
