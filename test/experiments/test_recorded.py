"""Recorded bags scored alone: worked out by hand, and bags that nobody should trust."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rosbags.rosbag2 import StoragePlugin, Writer

from test.experiments.workloads import job
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.experiments import recorded_messages, recorded_timeline
from timely_llm.experiments.document import RunDocument
from timely_llm.experiments.recorded import read_recording, score
from timely_llm.traces.bags import LINE_TOPIC, LINE_TYPE, write_bag
from timely_llm.traces.lines import header_line, request_line
from timely_llm.traces.messages import type_store
from timely_llm.traces.model import Trace, TraceError

BEGIN_S = 1_000.0
KINDS = ("PlanRequest", "Segment", "ExecutionReport", "PlanResult", "EngineStep")
STARTED, FINISHED, FAILED = ReportState.STARTED, ReportState.FINISHED, ReportState.FAILED


class Bag:
    """Writes what a recorder would hear of a plan server, at the seconds that are given."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
        self._connections: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._writer.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, at_s: float, topic: str, kind: str, data: bytes) -> None:
        if topic not in self._connections:
            self._connections[topic] = self._writer.add_connection(
                topic, kind, typestore=type_store()
            )
        self._writer.write(self._connections[topic], round((BEGIN_S + at_s) * 1e9), data)

    def say(self, at_s: float, topic: str, kind: str, **fields: Any) -> None:
        name = kind if "/" in kind else f"timely_llm/msg/{kind}"
        message = type_store().types[name](**fields)
        topic = topic if topic.startswith("/") else f"/plan_server/{topic}"
        self.write(at_s, topic, name, bytes(type_store().serialize_cdr(message, name)))

    def request(
        self, at_s: float, name: str, utility: TimeUtility = NORMAL, topic: str = "requests",
        agent: str = "r",
    ) -> None:  # fmt: skip
        worth = type_store().types["timely_llm/msg/TimeUtility"](
            utility.beta, utility.alpha, utility.ert_s
        )
        self.say(
            at_s, topic, "PlanRequest", request_id=name, agent=agent, skill_set="drone",
            task="Go.", time_utility=worth, max_tokens=0, temperature=0.0, seed=0,
            closed_loop=True,
        )  # fmt: skip

    def segment(
        self, at_s: float, name: str, index: int, epoch: int = 0, final: bool = False
    ) -> None:
        self.say(
            at_s, "segments", "Segment", request_id=name, agent="r", index=index, epoch=epoch,
            text=f"mf({index});", calls=[], predicted=1.0, final=final,
        )  # fmt: skip

    def report(
        self, at_s: float, name: str, state: int, index: int = 0, epoch: int = 0,
        duration: float = 0.0,
    ) -> None:  # fmt: skip
        self.say(
            at_s, "execution_reports", "ExecutionReport", request_id=name, agent="r",
            state=int(state), index=index, epoch=epoch, duration=duration, value="",
        )  # fmt: skip

    def executed(self, start_s: float, end_s: float, name: str, index: int, epoch: int = 0) -> None:
        self.report(start_s, name, STARTED, index, epoch)
        self.report(end_s, name, FINISHED, index, epoch, end_s - start_s)

    def result(
        self, at_s: float, name: str, code: ErrorCode = ErrorCode.NONE, epoch: int = 0
    ) -> None:
        self.say(
            at_s, "results", "PlanResult", error_code=int(code), error_msg="", request_id=name,
            agent="r", plan="", segments=0, epoch=epoch, response_time=0.0, waiting_time=0.0,
            utility=0.0, prompt_tokens=100, generated_tokens=9, recomputed_tokens=0,
        )  # fmt: skip

    def step(self, at_s: float, duration: float, *ids: str) -> None:
        tokens = np.ones(len(ids), np.uint32)
        self.say(
            at_s, "steps", "EngineStep", duration=duration, request_ids=list(ids), tokens=tokens
        )

    def line(self, at_s: float, text: str) -> None:
        self.say(at_s, LINE_TOPIC, LINE_TYPE, data=text)

    def plan(self, at_s: float, name: str, utility: TimeUtility = NORMAL) -> None:
        """Write a request that is finished: response 0.5 s, 0.25 s of waiting after it."""
        self.request(at_s, name, utility)
        self.segment(at_s + 0.4, name, 0)
        self.segment(at_s + 1.7, name, 1, final=True)
        self.executed(at_s + 0.5, at_s + 1.5, name, 0)
        self.executed(at_s + 1.75, at_s + 2.0, name, 1)
        self.result(at_s + 2.0, name)


def only(document: RunDocument) -> dict[str, Any]:
    (row,) = document.rows
    return row


def test_response_and_waiting_follow_from_requests_and_reports(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.plan(0.0, "a")
        bag.plan(10.0, "b", URGENT)
    document = score(tmp_path / "day")
    row = only(document)
    assert (row["recording"], row["requests"], row["share_served"]) == ("day", 2, 1.0)
    assert row["response_s"] == pytest.approx(0.5)
    assert row["waiting_s"] == pytest.approx(0.75)
    assert row["normal_utility"] == 1.0
    assert row["urgent_utility"] == pytest.approx(0.0, abs=1e-6)  # worth nothing after 0.5 s
    assert [(r["task"], r["urgent"], r["requests"]) for r in document.task_rows] == [
        ("normal", False, 1),
        ("urgent", True, 1),
    ]
    assert document.setup["span_s"] == 12.0
    assert document.setup["messages"] == 16
    assert document.setup["results"] == "2 NONE"
    assert document.setup["generated_tokens"] == 18
    assert set(row) - {"recording"} <= set(document.definitions)


def test_a_line_of_a_trace_says_what_kind_of_task_it_was(tmp_path: Path) -> None:
    jobs = (job("x/1", task="5"), job("x/2", task="6"))
    with Bag(tmp_path / "day") as bag:
        bag.line(0.0, header_line(Trace("t", jobs=jobs)))
        for number, one in enumerate(jobs):
            bag.line(number, request_line(one))
            bag.plan(number, one.id)
        bag.line(3.0, "hello")
    document = score(tmp_path / "day")
    assert [row["task"] for row in document.task_rows] == ["5", "6"]
    first = read_recording(tmp_path / "day").run.outcomes[0]
    assert first.job.skill_times == jobs[0].skill_times
    assert not any("kinds of tasks" in note for note in document.notes)


def test_who_is_still_in_work_or_ended_badly_is_not_finished(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.plan(0.0, "good")
        bag.request(1.0, "working")
        bag.segment(1.2, "working", 0)
        bag.report(1.3, "working", STARTED)
        bag.request(1.0, "error")
        bag.segment(1.1, "error", 0, final=True)
        bag.executed(1.1, 1.2, "error", 0)
        bag.result(1.3, "error", ErrorCode.NO_ANSWER)
        bag.request(1.0, "unexecuted")
        bag.segment(1.1, "unexecuted", 0)
        bag.segment(1.2, "unexecuted", 1, final=True)
        bag.executed(1.1, 1.2, "unexecuted", 0)
        bag.result(1.3, "unexecuted")
    recording = read_recording(tmp_path / "day")
    assert {o.work.id: o.finished for o in recording.run.outcomes} == {
        "good": True, "working": False, "error": False, "unexecuted": False,
    }  # fmt: skip
    working = next(o for o in recording.run.outcomes if o.work.id == "working")
    assert working.response_s == pytest.approx(0.3)
    assert working.segments[0].end_s == pytest.approx(2.0)  # the recording's end
    assert any(note.startswith("1 requests were still in work") for note in recording.notes)


def test_only_what_was_executed_of_an_old_epoch_counts(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.request(0.0, "a")
        for index in range(3):
            bag.segment(0.1, "a", index)
        bag.executed(0.2, 1.0, "a", 0)
        bag.report(1.0, "a", STARTED, 1)
        bag.report(1.5, "a", FAILED, 1, duration=0.5)
        bag.segment(1.9, "a", 0, epoch=1, final=True)
        bag.executed(2.0, 3.0, "a", 0, epoch=1)
        bag.result(3.0, "a", epoch=1)
    (outcome,) = read_recording(tmp_path / "day").run.outcomes
    assert outcome.finished
    assert [(s.start_s, s.end_s) for s in outcome.segments] == [(0.2, 1.0), (1.0, 1.5), (2.0, 3.0)]
    assert outcome.waiting_s == pytest.approx(0.2 + 0.5)


def test_a_plan_that_returned_needs_no_more_segments(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.request(0.0, "a")
        bag.segment(0.1, "a", 0)
        bag.segment(0.2, "a", 1)
        bag.executed(0.2, 1.0, "a", 0)
        bag.report(1.0, "a", ReportState.RETURNED)
        bag.result(1.0, "a")
    (outcome,) = read_recording(tmp_path / "day").run.outcomes
    assert outcome.finished
    assert len(outcome.segments) == 1


def test_an_id_may_be_used_again(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.plan(0.0, "robot_0-1")
        bag.result(0.5, "robot_0-1", ErrorCode.DUPLICATE_REQUEST)
        bag.plan(60.0, "robot_0-1")
        bag.step(60.3, 0.1, "robot_0-1")
        bag.step(0.3, 0.1, "robot_0-1", "nobody")
    recording = read_recording(tmp_path / "day")
    assert [(o.work.id, o.finished) for o in recording.run.outcomes] == [
        ("robot_0-1", True),
        ("robot_0-1+1", True),
    ]
    assert [step.requests for step in recording.timeline.steps] == [(0,), (1,)]


def test_requests_by_topic_are_enough_where_the_accepted_ones_were_not_recorded(
    tmp_path: Path,
) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.request(0.0, "a", topic="plan_requests")
        bag.request(0.0, "", topic="plan_requests")
        bag.segment(0.1, "a", 0, final=True)
        bag.report(1.0, "a", FINISHED, duration=0.75)  # who says only when it ended
    recording = read_recording(tmp_path / "day")
    (outcome,) = recording.run.outcomes
    assert outcome.finished
    assert outcome.response_s == pytest.approx(0.25)
    assert any("results were not recorded" in note for note in recording.notes)
    assert any(note.startswith("1 requests without an id") for note in recording.notes)


def test_refused_requests_were_asked(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.line(0.0, request_line(job("known")))
        bag.result(0.0, "known", ErrorCode.QUEUE_FULL)
        bag.result(0.0, "unknown", ErrorCode.QUEUE_FULL)
        bag.request(0.0, "sent", topic="plan_requests")
        bag.result(0.1, "sent", ErrorCode.UNKNOWN_SKILL_SET)
        bag.plan(1.0, "served")
    recording = read_recording(tmp_path / "day")
    assert {o.work.id: o.served for o in recording.run.outcomes} == {
        "known": False, "sent": False, "served": True,
    }  # fmt: skip
    assert "1 requests are left out: what they asked was not recorded" in recording.notes


def test_the_timeline_shows_waiting_generating_and_executing(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.plan(5.0, "a", URGENT)
        bag.step(5.2, 0.1, "a")
        bag.step(5.3, 0.1, "a")
    timeline = read_recording(tmp_path / "day").timeline
    assert (timeline.requests, timeline.urgent) == (("a",), (True,))
    assert [(s.kind, s.start_s, s.end_s, s.label) for s in timeline.spans] == [
        ("waiting", 0.0, 0.5, ""),
        ("waiting", 1.5, 1.75, ""),
        ("generating", 0.1, 0.3, "2 steps"),
        ("executing", 0.5, 1.5, "mf(0);"),
        ("executing", 1.75, 2.0, "mf(1);"),
    ]
    assert [(s.start_s, s.duration_s) for s in timeline.steps] == [(0.1, 0.1), (0.2, 0.1)]


def test_the_timeline_of_a_long_recording_is_its_busiest_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_timeline, "MOST_DRAWN", 5)
    with Bag(tmp_path / "day") as bag:
        for name, at_s in (("a", 0.0), ("b", 500.0), ("c", 501.0)):
            bag.plan(at_s, name)
    document = score(tmp_path / "day")
    assert document.timelines[0].requests == ("b", "c")
    assert only(document)["requests"] == 3


def test_a_bag_whose_end_is_cut_off_is_scored_up_to_there(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.plan(0.0, "a")
    (file,) = (tmp_path / "day").glob("*.mcap")
    data = file.read_bytes()
    (tmp_path / "killed.mcap").write_bytes(data[: data.rindex(b"\x0f\x04\0\0\0\0\0\0\0")])
    document = score(tmp_path / "killed.mcap")
    assert only(document)["share_served"] == 1.0
    assert any("its end is missing" in note for note in document.notes)


def test_a_trace_is_no_recording(tmp_path: Path) -> None:
    write_bag(Trace("t", jobs=(job("a"),)), tmp_path / "bag")
    with pytest.raises(TraceError, match=r"is no recording of a plan server: it has neither"):
        score(tmp_path / "bag")


def test_segments_without_requests_are_nothing_to_score(tmp_path: Path) -> None:
    with Bag(tmp_path / "bag") as bag:
        bag.segment(0.0, "a", 0)
    with pytest.raises(TraceError, match="has nothing to score: it does not say what was asked"):
        score(tmp_path / "bag")


def test_a_damaged_message_gets_one_sentence(tmp_path: Path) -> None:
    with Bag(tmp_path / "bag") as bag:
        bag.write(0.0, "/a/segments", "timely_llm/msg/Segment", b"\0\1\0\0\xff\xff\xff\xff")
    with pytest.raises(TraceError, match="is damaged, or of another version of this type"):
        score(tmp_path / "bag")


def test_a_recording_may_not_be_larger_than_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bag(tmp_path / "bag") as bag:
        bag.plan(0.0, "a")
    for limit in ("MAX_MESSAGES", "MAX_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(recorded_messages, limit, 5)
            with pytest.raises(TraceError, match="larger than a recording that can be scored"):
                score(tmp_path / "bag")


def test_what_cannot_be_is_left_out_and_told(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.plan(0.0, "a")
        bag.request(0.5, "no agent", agent="")
        bag.report(0.6, "a", 77)
        bag.report(0.7, "nobody", FINISHED, 3)
        bag.report(0.7, "a", FINISHED, 4_000_000_000)
        bag.report(0.7, "a", STARTED, 7, epoch=9)
        bag.report(0.8, "a", FINISHED, 1, duration=math.nan)
        bag.step(0.9, math.nan, "a")
        bag.step(0.9, -1.0, "a")
    recording = read_recording(tmp_path / "day")
    (outcome,) = recording.run.outcomes
    assert (outcome.finished, len(outcome.segments)) == (True, 2)
    assert "4 messages are left out: they say what cannot be" in recording.notes


_times = st.integers(-999, 10**9).map(float)
_names = st.sampled_from(["a", "a+1", "", "b\0", "x" * 300])
_places = st.sampled_from([0, 1, 2**32 - 1])
_numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_no_bag_can_do_worse_than_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("bags") / "bag"
    with Bag(folder) as bag:
        for _ in range(data.draw(st.integers(1, 25))):
            at_s, name = data.draw(_times), data.draw(_names)
            index, epoch = data.draw(_places), data.draw(_places)
            match data.draw(st.integers(0, 6)):
                case 0:
                    topic = data.draw(st.sampled_from(["requests", "plan_requests"]))
                    bag.request(at_s, name, topic=topic, agent=data.draw(_names))
                case 1:
                    bag.segment(at_s, name, index, epoch, data.draw(st.booleans()))
                case 2:
                    state = data.draw(st.integers(0, 255))
                    bag.report(at_s, name, min(state, 9), index, epoch, data.draw(_numbers))
                case 3:
                    bag.result(at_s, name, data.draw(st.sampled_from(ErrorCode)), epoch)
                case 4:
                    bag.step(at_s, data.draw(_numbers), name, "a")
                case 5:
                    kind = data.draw(st.sampled_from(KINDS))
                    bytes_ = b"\0\1\0\0" + data.draw(st.binary(max_size=60))
                    bag.write(at_s, f"/x/{kind}", f"timely_llm/msg/{kind}", bytes_)
                case _:
                    bag.line(at_s, data.draw(st.text(max_size=20)))
    try:
        document = score(folder)
    except TraceError as error:
        assert "\n" not in str(error)
    else:
        assert only(document)["requests"] >= 1
        assert RunDocument.model_validate(document.model_dump()) == document


@given(place=st.floats(0, 1), value=st.integers(0, 255), length=st.integers(0, 8))
@settings(deadline=None, max_examples=150)
def test_no_damaged_file_can_do_worse_than_an_error(
    good: bytes, tmp_path_factory: pytest.TempPathFactory, place: float, value: int, length: int
) -> None:
    at = int(place * (len(good) - 8))
    file = tmp_path_factory.getbasetemp() / "damaged.mcap"
    file.write_bytes(good[:at] + struct.pack("B", value) * length + good[at + length :])
    try:
        score(file)
    except TraceError as error:
        assert "\n" not in str(error)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("good") / "bag"
    with Bag(folder) as bag:
        bag.line(0.0, request_line(job("a")))
        bag.plan(0.0, "a")
        bag.step(0.2, 0.1, "a")
    (file,) = folder.glob("*.mcap")
    return file.read_bytes()
