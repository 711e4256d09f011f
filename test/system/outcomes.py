"""What became of the requests of each fault test: counted, and none may be lost.

A request was asked for if an event log has it. Its end is what a server, the robot or the person
has of it: in an event log, on a topic of results, or in a client of the test's own process.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

from test.real import LEAKED, LOST
from timely_llm import msg
from timely_llm.core.errors import TimelyError
from timely_llm.core.events.log import is_event
from timely_llm.core.events.reader import LogReader
from timely_llm.core.events.schema import (
    AnsweredEvent,
    AskEvent,
    DoneEvent,
    EndEvent,
    PlanRequestEvent,
    QuestionEvent,
    StreamEvent,
)
from timely_llm.robots.client.pending import Pending
from timely_llm.ros import qos

LOOK_S = 0.2
"""Period of looks for new topics, seconds."""
DEPTH = 10_000
ANSWERED = ""
"""The reason of an end without an error."""
UNTOLD = "no reason"
"""The reason of an error without a sentence: the request counts as lost."""


@dataclass(frozen=True)
class Note:
    """A request was asked for, or has ended.

    Attributes:
        at_s: when, seconds on the machine's monotonic clock.
        request_id: the request's.
        reason: why it has no result; None: it was asked for.
    """

    at_s: float
    request_id: str
    reason: str | None = None


def end(at_s: float, request_id: str, failed: bool, sentence: str) -> Note:
    """Return the note of an end."""
    return Note(at_s, request_id, (sentence or UNTOLD) if failed else ANSWERED)


@dataclass
class Attempt:
    """One run of one test.

    Attributes:
        test: id of the test.
        is_fault: whether the test is one of a fault; others are not counted.
        begun_s: when it began.
        ran: whether it ran, and passed or failed; a skipped test did not.
        asked: ids of its requests.
        ends: reason of each request that has ended, by id.
        leaked: tokens of KV that idle servers did not have back.
        servers: lives of servers that have shown it.
    """

    test: str
    is_fault: bool
    begun_s: float
    ran: bool = False
    asked: set[str] = field(default_factory=set)
    ends: dict[str, str] = field(default_factory=dict)
    leaked: int = 0
    servers: int = 0

    @property
    def lost(self) -> list[str]:
        """The requests without a result and without a reason."""
        return sorted(one for one in self.asked if self.ends.get(one, UNTOLD) == UNTOLD)


@dataclass(frozen=True)
class Row:
    """The outcomes of a test, as the table has them."""

    test: str
    answered: int
    explained: int
    lost: int
    leaked: int
    servers: int
    left: int


@dataclass
class _Life:
    """What a server has published of its memory while it served nothing."""

    skill_sets: int
    first: int
    last: int
    at_s: float


class Watch:
    """Hears the results and the loads of all servers in a domain, in a thread of its own."""

    KINDS = (msg.PlanResult, msg.StreamResult, msg.ServerLoad)

    def __init__(self, domain: int) -> None:
        self.notes: list[Note] = []
        self.lives: dict[str, _Life] = {}
        self._context = Context()
        rclpy.init(context=self._context, domain_id=domain)
        self._node = rclpy.create_node("outcomes", context=self._context)
        self._heard: set[str] = set()
        self._node.create_timer(LOOK_S, self._look)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._run, name="outcomes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave ROS."""
        self._executor.shutdown(timeout_sec=1)
        rclpy.shutdown(context=self._context)
        self._thread.join(10)
        self._node.destroy_node()

    def _run(self) -> None:
        with suppress(ExternalShutdownException):
            self._executor.spin()

    def _look(self) -> None:
        for topic, types in self._node.get_topic_names_and_types():
            for kind in self.KINDS:
                if topic not in self._heard and f"timely_llm/msg/{kind.__name__}" in types:
                    self._heard.add(topic)
                    take = self._on_load if kind is msg.ServerLoad else self._on_result
                    self._node.create_subscription(kind, topic, take, qos.reliable(DEPTH))

    def _on_result(self, result: Any) -> None:
        failed = bool(result.error_code)
        self.notes.append(end(time.monotonic(), result.request_id, failed, result.error_msg))

    def _on_load(self, load: msg.ServerLoad) -> None:
        if load.requests:
            return
        used = load.kv_tokens - load.free_kv_tokens
        sets, life = len(load.skill_sets), self.lives.get(load.life)
        if life is None or life.skill_sets != sets:
            self.lives[load.life] = _Life(sets, used, used, time.monotonic())
        else:
            life.last, life.at_s = used, time.monotonic()


class Outcomes:
    """Counts the outcomes of the fault tests of one module.

    Args:
        watch: hears its servers.
        logs: folder for event logs of its servers.
    """

    def __init__(self, watch: Watch, logs: Path) -> None:
        self.logs = logs
        self._watch = watch
        self._folders = [logs]
        self._notes: list[Note] = []
        self._attempts: list[Attempt] = []

    def begin(self, test: str, is_fault: bool, folder: Path) -> None:
        """Count for a test from now on.

        Args:
            test: its id.
            is_fault: whether it is one of a fault.
            folder: may have event logs.
        """
        self._folders.append(folder)
        self._attempts.append(Attempt(test, is_fault, time.monotonic()))

    def ran(self) -> None:
        """Record that the present test has passed or failed."""
        self._attempts[-1].ran = True

    def explained(self, request_id: str, sentence: str) -> None:
        """Record the reason that a client has, which this process cannot see."""
        self._notes.append(Note(time.monotonic(), request_id, sentence))

    def answered(self, request_id: str) -> None:
        """Record a result that a client has, which this process cannot see."""
        self._notes.append(Note(time.monotonic(), request_id, ANSWERED))

    def count(self) -> list[Attempt]:
        """Return the fault tests that ran, failed ones too, with what became of their requests."""
        notes = [*self._notes, *self._watch.notes]
        for folder in self._folders:
            for log in folder.rglob("*.jsonl"):
                notes += in_log(log)
        clients = {note.request_id for note in notes}
        # What the edge makes for a part of a sketch ends with the request that it is a part of.
        notes = [one for one in notes if one.request_id.rpartition("~")[0] not in clients]
        begun = [attempt.begun_s for attempt in self._attempts]
        asked_by: dict[str, Attempt] = {}
        # A request that is asked for in the moment of its end was asked for first.
        for note in sorted(notes, key=lambda note: (note.at_s, note.reason is not None)):
            here = self._attempts[max(bisect_right(begun, note.at_s) - 1, 0)]
            if note.reason is None:
                asked_by[note.request_id] = here
                here.asked.add(note.request_id)
                continue
            attempt = asked_by.get(note.request_id, here)
            known = attempt.ends.get(note.request_id, UNTOLD)
            if known != ANSWERED and (known == UNTOLD or note.reason == ANSWERED):
                attempt.ends[note.request_id] = note.reason
        for life in self._watch.lives.values():
            attempt = self._attempts[max(bisect_right(begun, life.at_s) - 1, 0)]
            attempt.servers += 1
            attempt.leaked += max(life.last - life.first, 0)
        return [one for one in self._attempts if one.is_fault and one.ran]

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Take the ends that clients in this process see."""
        with pytest.MonkeyPatch.context() as patch:
            finish, close = Pending.finish, Pending.close

            @wraps(finish)
            def on_finish(task: Any, result: Any) -> None:
                failed = bool(result.error_code)
                self._notes.append(end(time.monotonic(), task.request_id, failed, result.error_msg))
                finish(task, result)

            @wraps(close)
            def on_close(task: Any, reason: str) -> None:
                if not task.done:
                    self.explained(task.request_id, reason)
                close(task, reason)

            patch.setattr(Pending, "finish", on_finish)
            patch.setattr(Pending, "close", on_close)
            yield


def in_log(path: Path) -> Iterator[Note]:
    """Yield what an event log has of requests; other files have nothing."""
    with path.open("rb") as file:
        if not is_event(file.readline()):
            return
    events: list[Any] = []
    with suppress(TimelyError):  # the last line of a killed process
        events = LogReader(path).read()
    for event in events:
        match event:
            case PlanRequestEvent() | StreamEvent() | AskEvent() | QuestionEvent():
                yield Note(event.t, event.id)
            case EndEvent():
                yield end(event.t, event.id, event.code != "none", event.message)
            case DoneEvent() | AnsweredEvent():
                yield end(event.t, event.id, bool(event.error_code), event.error_msg)


def check(attempts: list[Attempt], left: int, file: Path | None) -> None:
    """Write the outcomes of the tests of a module, and fail if there is one that must not be.

    Args:
        attempts: its tests.
        left: its processes that were left.
        file: takes a JSON line for each test; None: none does.
    """
    for attempt in attempts:
        answered = sum(reason == ANSWERED for reason in attempt.ends.values())
        told = sum(reason not in (ANSWERED, UNTOLD) for reason in attempt.ends.values())
        row = Row(
            attempt.test, answered, told, len(attempt.lost), attempt.leaked, attempt.servers, left
        )
        if file is not None:
            with file.open("a") as lines:
                print(json.dumps(asdict(row)), file=lines)
    lost = {attempt.test: attempt.lost for attempt in attempts if attempt.lost}
    assert not lost, LOST
    leaked = {attempt.test: attempt.leaked for attempt in attempts if attempt.leaked}
    assert not leaked, LEAKED
