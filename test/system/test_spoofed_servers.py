"""Another node sends in the server's name: clients with a key take only what the server signed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from test.system.conftest import Start
from test.system.ros_client import PATIENT, Client, serving
from timely_llm.core.request import ErrorCode
from timely_llm.ros.client import inquiries
from timely_llm.ros.client.plan import PlanClient, PlanClientError
from timely_llm.ros.client.talk import TalkClient

pytestmark = pytest.mark.faults
WAIT_S = 60.0
FORGED = 60
"""Forged segments of a plan after which its robot has some: the spoofer sends 24 at a time."""
PLAN = "mf(50);tc(90);tp();mf(50);->True;"


@pytest.fixture(scope="module")
def spoofed(start: Start, domain: int, key_folder: Path) -> Iterator[Client]:
    """A server that checks keys, beside a node that sends in its name."""
    with serving(start, Client, domain, **PATIENT, agent_keys=str(key_folder)) as client:
        spoofer = start("test/system/spoofer.py")
        client.until(lambda: "spoofs" in spoofer.output or spoofer.popen.poll() is not None)
        assert spoofer.popen.poll() is None, spoofer.output
        client.until(lambda: client.node.count_publishers("plan_server/segments") == 2)
        yield client
        spoofer.popen.kill()
        spoofer.wait(WAIT_S)


def hears(spoofed: Client, client: PlanClient | TalkClient) -> None:
    """Wait until a client has found the spoofer too."""
    node = client._node._node
    topics = ("/plan_server/segments", "/plan_server/stream_chunks")
    spoofed.until(lambda: all(node.count_publishers(topic) == 2 for topic in topics))


class Tour:
    """A robot that executes a plan with a pause in its middle, in which forged segments come.

    Attributes:
        moved: what it was asked to move by.
    """

    def __init__(self, client: Client, agent: str) -> None:
        self._client = client
        self.request_id = f"tour-{agent}"
        self.moved: list[int] = []
        self.skills = {"mf": self.moved.append, "tc": self._look, "tp": lambda: None}

    def _look(self, degrees: int) -> str:
        self._client.until(lambda: len(self._client.of(self.request_id)) > FORGED)
        return "a cat"


def test_a_robot_with_a_key_executes_only_what_its_server_signed(
    spoofed: Client, domain: int, key_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiries, "MISSED_S", 0.2)  # it asks for its result all the time
    tour, key = Tour(spoofed, "tester"), key_folder / "tester.key"
    with PlanClient("tester", "patient", key_file=key, domain=domain, find_s=WAIT_S) as robot:
        hears(spoofed, robot)
        task = robot.submit("Look.", request_id=tour.request_id)
        assert task.execute(tour.skills, timeout_s=WAIT_S).plan == PLAN
        assert tour.moved == [50, 50]
        assert robot.dropped > 20


def test_a_robot_without_a_key_executes_forged_segments(spoofed: Client, domain: int) -> None:
    """It shows that the other tests can fail."""
    tour = Tour(spoofed, "guest")
    with PlanClient("guest", "patient", domain=domain, find_s=WAIT_S) as robot:
        hears(spoofed, robot)
        task = robot.submit("Look.", request_id=tour.request_id)
        with suppress(PlanClientError):  # of a plan that is forged no end comes
            task.execute(tour.skills, timeout_s=5.0)
        assert 499 in tour.moved and robot.dropped == 0


def test_a_person_with_a_key_reads_only_what_the_server_signed(
    spoofed: Client, domain: int, key_folder: Path
) -> None:
    key = key_folder / "ann.key"
    with TalkClient("ann", key_file=key, domain=domain, find_s=WAIT_S) as ann:
        hears(spoofed, ann)
        answer = ann.converse("Hello?")
        text = "".join(answer.chunks(WAIT_S))
        result = answer.result(WAIT_S)
        assert result.error_code is ErrorCode.NONE
        assert text == result.text and "forged" not in text
        spoofed.until(lambda: ann.dropped > 0)


def test_a_resumed_plan_and_a_kept_result_are_the_servers_own(
    spoofed: Client, domain: int, key_folder: Path
) -> None:
    key = key_folder / "tester.key"
    with PlanClient("tester", "patient", key_file=key, domain=domain, find_s=WAIT_S) as first:
        task = first.submit("Look.", request_id="resumed")
        assert next(task.segments(WAIT_S)).text == "mf(50);"
        with PlanClient("tester", "patient", key_file=key, domain=domain, find_s=WAIT_S) as second:
            again = second.resume("resumed")
            texts = []
            for segment in again.segments(WAIT_S):
                texts.append(segment.text)
                again.finished(segment, value="a cat")
            assert "".join(texts) == PLAN
            again.result(WAIT_S)  # a client that is closed cancels what is open
        result = first.result_of("resumed", WAIT_S)
        assert (result.error_code, result.plan) == (ErrorCode.NONE, PLAN)
