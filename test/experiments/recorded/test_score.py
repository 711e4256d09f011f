"""Recorded bags scored alone, worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from test.experiments.recorded_bags import FAILED, FINISHED, STARTED, Bag, only
from test.experiments.workloads import job
from test.report.stages import BLOCKING
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.time_utility import URGENT
from timely_llm.experiments.recorded import score as recorded_timeline
from timely_llm.experiments.recorded.score import read_recording, score
from timely_llm.report.document_timeline import document_timeline
from timely_llm.traces.lines import header_line, request_line
from timely_llm.traces.model import Trace


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


def test_a_request_in_service_or_with_an_error_is_not_finished(tmp_path: Path) -> None:
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
    assert any(note.startswith("1 requests were still in service") for note in recording.notes)


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


STAGES = [
    {"begin": 0.0, "compute": 0.2, "idle": 0.0, "blocked": 0.1, "link": 0.1},
    {"begin": 0.3, "compute": 0.3, "idle": 0.2, "blocked": 0.1, "link": 0.0},
]


def test_steps_keep_the_times_of_stages(tmp_path: Path) -> None:
    unknown = [{**stage, "begin": -1.0} for stage in STAGES]
    wrong = [{**STAGES[0], "idle": math.nan}, STAGES[1]]
    with Bag(tmp_path / "day") as bag:
        bag.plan(0.0, "a")
        for at_s, stages in ((0.7, STAGES), (1.4, unknown), (2.1, []), (2.8, wrong)):
            bag.step(at_s, 0.6, "a", stages=stages)
    recording = read_recording(tmp_path / "day")
    first, second, third = (step.stages for step in recording.timeline.steps)
    assert first is not None and first.times == BLOCKING
    assert second is not None and second.times == BLOCKING._replace(begins_s=())
    assert third is None
    assert any(note.startswith("1 messages are left out") for note in recording.notes)
    assert len(document_timeline(recording.timeline).stage_rows("")) == 2


def test_requests_by_topic_are_enough_where_the_accepted_ones_were_not_recorded(
    tmp_path: Path,
) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.request(0.0, "a", topic="plan_requests")
        bag.request(0.0, "", topic="plan_requests")
        bag.segment(0.1, "a", 0, final=True)
        bag.report(1.0, "a", FINISHED, duration=0.75)  # the robot reports ends only
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
    assert "1 requests are left out: their content was not recorded" in recording.notes


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
