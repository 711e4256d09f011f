from pathlib import Path

import pytest

from test.experiments.recorded_bags import FAILED, STARTED, Bag, TalkBag
from timely_llm.core.request import ErrorCode
from timely_llm.core.time_utility import URGENT
from timely_llm.report.headline import run_attention, run_headline
from timely_llm.report.load import LoadedRun, load
from timely_llm.report.timeline import Mark, Timeline


def marks(timeline: Timeline, kind: str) -> list[Mark]:
    return [mark for lane in timeline.lanes for mark in lane.marks if mark.kind == kind]


def said(run: LoadedRun) -> str:
    return run_headline(run.document, run.timelines[0], run.at, run.completed)


@pytest.fixture
def preempted(tmp_path: Path) -> LoadedRun:
    """A plan that is cut short by an urgent one, which runs to its end."""
    with Bag(tmp_path / "day") as bag:
        bag.request(0.0, "slow")
        bag.segment(0.4, "slow", 0)
        bag.report(0.5, "slow", STARTED, 0)
        bag.request(3.0, "quick", URGENT)
        bag.result(3.01, "slow", ErrorCode.CANCELED)
        bag.segment(3.1, "quick", 0, final=True)
        bag.executed(3.2, 4.2, "quick", 0)
        bag.result(4.2, "quick")
    return load(tmp_path / "day")


def test_a_plan_that_a_newer_one_replaced_is_pre_empted_and_not_failed(
    preempted: LoadedRun,
) -> None:
    (timeline,) = preempted.timelines
    (bar,) = (bar for bar in timeline.bars if bar.kind == "pre-empted")
    assert (bar.request, bar.label) == ("slow", "mf(0)")
    assert bar.end_s == pytest.approx(3.01)
    assert not marks(timeline, "failed")
    assert len(marks(timeline, "pre-empted")) == 1
    assert "1 plan was executed to the end, 1 pre-empted by a newer request and none failed" in (
        said(preempted)
    )


def test_the_first_sentence_has_date_robots_plans_and_shares(preempted: LoadedRun) -> None:
    assert said(preempted).startswith(
        "On 1 January 1970 at 00:16 UTC, 1 robot asked for 2 plans within 4 s; 100 % of the first"
        " segments and first tokens came in time (2 of 2); "
    )


def test_without_a_newer_request_a_plan_was_canceled(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.request(0.0, "a")
        bag.segment(0.4, "a", 0)
        bag.report(0.5, "a", STARTED, 0)
        bag.result(2.0, "a", ErrorCode.CANCELED)
    run = load(tmp_path / "day")
    assert len(marks(run.timelines[0], "canceled")) == 1
    assert "0 plans were executed to the end, 1 canceled and none failed" in said(run)


def test_a_segment_is_due_when_its_robot_is_idle(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.plan(0.0, "a")  # idle at 1.5 s; the second segment comes at 1.7 s
    run = load(tmp_path / "day")
    (late,) = marks(run.timelines[0], "due, missed")
    assert late.at_s == pytest.approx(1.5)
    assert late.late_s == pytest.approx(0.2)
    (met,) = marks(run.timelines[0], "due, met")
    assert met.at_s == pytest.approx(1.0), "a normal task's expected response time"
    assert run_attention(run.timelines[0]) == ["a of r: mf(1) came 0.20 s late, at 1.7 s."]


def test_a_late_delivery_says_what_the_model_did_before_it(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.plan(0.0, "a")
        for at_s in (0.2, 0.3, 0.4, 1.6, 1.7):
            bag.step(at_s, 0.1, "a", "b")
    (timeline,) = load(tmp_path / "day").timelines
    (said,) = run_attention(timeline)
    assert said == (
        "a of r: mf(1) came 0.20 s late, at 1.7 s: its generation was resumed when it was due and"
        " took 0.20 s, in batches of up to 1."
    )


def test_a_segment_that_its_robot_could_not_execute_is_a_failed_bar(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.request(0.0, "a")
        bag.segment(0.4, "a", 0)
        bag.report(0.5, "a", STARTED, 0)
        bag.report(1.5, "a", FAILED, 0, duration=1.0)
        bag.segment(1.8, "a", 0, epoch=1, final=True)
        bag.executed(1.9, 2.5, "a", 0, epoch=1)
        bag.result(2.5, "a", epoch=1)
    (timeline,) = load(tmp_path / "day").timelines
    assert [bar.kind for bar in timeline.bars if bar.label] == ["failed", "executing"]
    (said,) = run_attention(timeline)
    assert said.startswith("Robots could not execute 1 segment, ")
    assert "mf(0) of a of r at 1.5 s" in said


def test_a_plan_that_ended_with_an_error_failed(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.request(0.0, "a")
        bag.segment(0.4, "a", 0)
        bag.result(2.0, "a", ErrorCode.NO_MEMORY)
    run = load(tmp_path / "day")
    assert "0 plans were executed to the end and 1 failed" in said(run)
    assert run_attention(run.timelines[0]) == ["a of r failed at 2.0 s: NO_MEMORY."]


def test_a_person_has_a_first_token_that_is_due(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        bag.ask(0.0, "q")
        for index in range(5):
            bag.token(1.5 + 0.1 * index, "q", index, final=index == 4)
        bag.ended(2.0, "q", tokens=5)
    run = load(tmp_path / "day")
    (late,) = marks(run.timelines[0], "due, missed")
    assert late.at_s == pytest.approx(1.0)
    assert late.late_s == pytest.approx(0.5)
    assert "1 person asked 1 question" in said(run)
    assert run.timelines[0].lanes[0].is_person


def test_where_nothing_is_late_the_page_says_so(preempted: LoadedRun) -> None:
    assert run_attention(preempted.timelines[0]) == [
        "Nothing: every delivery that was due came in time, and nothing failed."
    ]
