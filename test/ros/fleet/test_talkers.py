"""One simulated person, without ROS: requests and the event log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.core.events.codec import as_json
from timely_llm.core.events.log import MemoryEventLog
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.robots.people import MANNERS, Person
from timely_llm.robots.questions import QuestionSet
from timely_llm.ros.fleet.talkers import SILENCE_S, Talker

QUESTIONS = QuestionSet(first=["Hello?"], later=["And then?"])


class Line:
    """Keeps all requests and reports."""

    def __init__(self) -> None:
        self.asked: list[tuple[StreamRequest, str]] = []
        self.canceled: list[str] = []
        self.reports: list[ExecutionReport] = []

    def ask(self, request: StreamRequest, slo_class: str, talker: Talker) -> None:
        self.asked.append((request, slo_class))

    def cancel(self, request_id: str) -> None:
        self.canceled.append(request_id)

    def report(self, report: ExecutionReport) -> None:
        self.reports.append(report)


class Scene:
    """A person who has just asked."""

    def __init__(self) -> None:
        self.clock, self.link, self.event_log = VirtualClock(), Line(), MemoryEventLog()
        person = Person("ann", MANNERS[0], QUESTIONS, np.random.default_rng(0), 1.0, 0.0)
        self.talker = Talker(person, self.link, self.event_log, self.clock.now, 50, 0.5)
        self.pass_s(max(self.talker.wake_s, 0.0))
        self.talker.tick(asks=True)

    def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def chunk(self, index: int, text: str, request_id: str = "ann-1") -> None:
        self.talker.offer(StreamChunk(request_id, "ann", index, text))

    def result(self, **fields: Any) -> None:
        values = {"error_code": ErrorCode.NONE, "error_msg": "", **fields}
        self.talker.finish(StreamResult("ann-1", "ann", **values))

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = map(as_json, self.event_log.events)
        return [line for line in lines if line["event"] == kind]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_question_is_asked_when_it_is_due(scene: Scene) -> None:
    [(request, slo_class)] = scene.link.asked
    assert (request.request_id, request.agent, slo_class) == ("ann-1", "ann", "voice")
    assert (request.max_tokens, request.temperature, request.words_per_s) == (50, 0.5, 3.0)
    assert [e["slo_class"] for e in scene.events("person")] == ["voice"]
    assert [(e["id"], e["text"]) for e in scene.events("question")] == [("ann-1", "Hello?")]
    scene.talker.tick(asks=True)
    assert len(scene.link.asked) == 1


def test_every_chunk_is_logged_once_and_the_end_has_its_timings(scene: Scene) -> None:
    scene.chunk(0, "One ")
    scene.chunk(0, "Other ", request_id="ann-0")
    scene.pass_s(2.0)
    scene.chunk(1, "two ")
    scene.result(text="One two three", generated_tokens=3, ttft_s=0.1, tpot_s=0.5, slo_met=True)
    assert [(e["index"], e["text"]) for e in scene.events("heard")] == [
        (0, "One "), (1, "two "), (2, "three"),
    ]  # fmt: skip
    [end] = scene.events("answered")
    assert (end["outcome"], end["ttft_s"], end["slo_met"], end["tokens"]) == (
        "answered", 0.1, True, 3,
    )  # fmt: skip
    assert (end["stalls"], end["stalled_s"]) == (1, pytest.approx(2.0 - 1 / 3, abs=1e-6))
    scene.result(text="late")
    assert len(scene.events("answered")) == 1


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.CANCELED, "canceled"),
        (ErrorCode.ENGINE_FAILED, "error"),
        (ErrorCode.UNKNOWN_CONVERSATION, "forgotten"),
    ],
)
def test_the_end_says_what_went_wrong(scene: Scene, code: ErrorCode, outcome: str) -> None:
    scene.result(error_code=code, error_msg="so it is")
    [end] = scene.events("answered")
    assert (end["outcome"], end["error_code"], end["error_msg"]) == (outcome, code, "so it is")


def test_a_waiting_person_gives_signs_of_life_and_hangs_up_after_long_silence(
    scene: Scene,
) -> None:
    for _ in range(4):
        scene.talker.tick(asks=True)
        scene.pass_s(0.5)
    assert [report.agent for report in scene.link.reports] == ["ann", "ann"]
    scene.chunk(0, "One ")
    scene.pass_s(SILENCE_S - 0.1)
    scene.talker.tick(asks=True)
    assert not scene.link.canceled
    scene.pass_s(0.2)
    scene.talker.tick(asks=True)
    assert scene.link.canceled == ["ann-1"]
    [end] = scene.events("answered")
    assert (end["outcome"], end["error_msg"]) == ("error", "nothing came for 30 s")
    scene.pass_s(10.0)
    scene.talker.tick(asks=True)
    assert [request.request_id for request, _ in scene.link.asked] == ["ann-1", "ann-2"]


def test_no_person_asks_when_the_time_is_over(scene: Scene) -> None:
    scene.result(text="Well.")
    scene.pass_s(100.0)
    scene.talker.tick(asks=False)
    assert len(scene.link.asked) == 1
    assert scene.talker.request_id == ""


def test_a_person_who_ends_cancels_the_open_request_and_stops_waiting(
    scene: Scene,
) -> None:
    scene.talker.cancel()
    assert scene.link.canceled == ["ann-1"]
    assert not scene.events("answered")
    scene.talker.hang_up()
    assert [e["outcome"] for e in scene.events("answered")] == ["canceled"]
    scene.talker.cancel()
    scene.talker.hang_up()
    assert len(scene.link.canceled) == len(scene.events("answered")) == 1
