"""One replica, by what it is sent and what it sends."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from test.cluster.front import values
from test.cluster.test_replicas import OTHER
from timely_llm.cluster.configured import read_skill_sets
from timely_llm.cluster.connection import Connection, Door, new_nonce
from timely_llm.cluster.messages import (
    Ask,
    Beat,
    Failed,
    Ping,
    Pong,
    Ready,
    ReplicaQuestion,
    ReplicaTask,
    Reply,
    Stop,
)
from timely_llm.cluster.place import Processes, ReplicaProcess
from timely_llm.core.request import ErrorCode, PlanRequest, PlanResult

WAIT_S = 60.0
T = TypeVar("T")


class Scripted:
    """A front that sends what a test says."""

    def __init__(self) -> None:
        self.got: queue.Queue[Any] = queue.Queue()
        streams: queue.Queue[socket.socket] = queue.Queue()
        self._door = Door("127.0.0.1", streams.put)
        self.process: ReplicaProcess = Processes().start(
            "replica-1", self._door.address, self._door.nonce
        )
        self.connection = Connection(streams.get(timeout=WAIT_S), self.got.put, self.got.put)
        self._number = 0

    def begin(self, **given: object) -> None:
        parameters = values(**given)
        sets = read_skill_sets(parameters)
        self.connection.send(ReplicaTask("replica-1", parameters, sets, "/no such folder"))

    def next(self, kind: type[T]) -> T:
        """Return the next message of a kind; those before it are forgotten."""
        while not isinstance(message := self.got.get(timeout=WAIT_S), kind):
            pass
        return message

    def answer(self, question: ReplicaQuestion, about: str) -> Any:
        self._number += 1
        self.connection.send(Ask(self._number, question, about))
        answer = self.next(Reply)
        assert answer.number == self._number
        return answer.value

    def close(self) -> None:
        self._door.close()
        self.process.kill()
        self.connection.close(0.0)


@pytest.fixture
def front() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.close()


def test_a_replica_answers_and_ends_when_it_should(front: Scripted) -> None:
    front.begin()
    ready = front.next(Ready)
    assert sorted(ready.skill_sets) == ["arm", "drone"]
    view = front.next(Beat).view
    assert (view.name, view.served, view.requests) == ("replica-1", (), 0)
    front.connection.send(Ping(7.0))
    assert front.next(Pong) == Pong(7.0)
    assert front.answer("skill_set", "drone").startswith("#")
    assert front.answer("skill_set", "unknown") == ""
    name, tokens, error = front.answer("register", OTHER)
    assert (name, error) == ("other", "") and tokens > 0
    assert front.answer("register", "name: [")[2]
    assert front.answer("unregister", "other") == ""
    assert "other" in front.answer("unregister", "other")
    assert front.answer("inquire", "unknown") is False
    assert front.answer("withdraw", "unknown") is False
    front.connection.send(Stop())
    front.next(str)  # the connection has ended
    assert front.process._process.wait(WAIT_S) == 0


def test_a_request_that_has_begun_is_not_given_back(front: Scripted) -> None:
    front.begin()
    front.next(Ready)
    request = PlanRequest("one", "rover", "drone", "look for the cat", closed_loop=True)
    front.connection.send(request)
    while "one" not in (front.next(Beat).view.served or ()):
        pass
    front.connection.send(request)
    assert front.next(PlanResult).error_code is ErrorCode.DUPLICATE_REQUEST
    assert front.answer("inquire", "one") is True
    while front.next(Beat).view.unstarted:
        pass
    assert front.answer("withdraw", "one") is False


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"policy": "timely", "policy_options": ["speed=3"]}, "speed"),
        ({"explain": True}, "parameter explain needs the parameter event_log"),
    ],
)
def test_values_that_make_no_server_are_one_sentence(
    front: Scripted, given: dict[str, object], words: str
) -> None:
    front.begin(**given)
    problem = front.next(Failed).problem
    assert words in problem and "\n" not in problem
    assert front.process._process.wait(WAIT_S) == 1


def test_a_replica_ends_after_its_front(front: Scripted) -> None:
    front.begin()
    front.next(Ready)
    front.connection.close(0.0)
    assert front.process._process.wait(WAIT_S) == 0
    assert front.process.ended() == "its process ended with status 0"


def test_a_killed_replica_says_by_what(front: Scripted) -> None:
    assert front.process.ended() == ""
    os.kill(front.process._process.pid, signal.SIGKILL)
    front.process._process.wait(WAIT_S)
    assert front.process.ended() == "its process was ended by SIGKILL"


def test_a_replica_with_another_nonce_gets_no_work() -> None:
    door = Door("127.0.0.1", lambda stream: stream.close())
    replica = Processes().start("replica-1", door.address, new_nonce())
    assert replica._process.wait(WAIT_S) == 1
    door.close()


def test_a_process_that_is_not_the_child_of_its_front_does_not_begin() -> None:
    command = [sys.executable, "-m", "timely_llm.cluster.place", "1", "127.0.0.1", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode != 0
    assert done.stderr.strip() == "the process that started this one is gone"
