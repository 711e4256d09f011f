"""What a robot has got of a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.dispatch.front.fronts import CLOSED, GO, SCAN, Words, report, result, segment
from test.examples import examples
from timely_llm.core.request import PlanRequest, ReportState
from timely_llm.dispatch.contract import Waiting
from timely_llm.dispatch.front.delivered.plan import DeliveredPlan


def delivered(request: PlanRequest = GO, segments: int = 2) -> DeliveredPlan:
    """Return a plan of a robot that got segments of a second at 1 s."""
    made = DeliveredPlan(Waiting(request, 0.0, 760), 0.0)
    for index in range(segments):
        made.take(segment(index), 1.0)
    return made


def test_segments_of_a_new_server_are_held_until_the_predicted_end() -> None:
    made = delivered()
    assert made.free_s == 3.0 and made.rest(Words(), 1.5).plan.epoch == 1
    assert made.take(segment(0, 1), 1.6) == [] and made.holds(2.9)
    assert made.take(segment(1, 1), 3.0) == [segment(0, 1), segment(1, 1)]
    assert made.shown == 1 and made.held == [] and not made.holds(3.1)


def test_segments_of_a_new_server_are_held_until_the_robot_reported() -> None:
    made = delivered(CLOSED)
    made.rest(Words(), 1.5)
    assert made.take(segment(0, 1), 99.0) == []
    made.report(report(ReportState.FINISHED, 1), 99.5)
    assert made.executed and made.release(99.6) == [segment(0, 1)]


def test_a_failure_is_why_the_rest_is_asked_for_at_once() -> None:
    made = delivered(CLOSED, 3)
    made.report(report(ReportState.FINISHED, 0), 1.2)
    made.report(report(ReportState.FAILED, 1, value="stuck"), 1.3)
    assert made.is_late(segment(3)) and not made.executes
    words = Words().task(CLOSED, "up(0);up(1);up(2);", "segment 1 failed: stuck", "up(0);")
    assert made.rest(Words(), 1.5).plan.task == words
    assert made.take(segment(0, 1), 1.6) == [segment(0, 1)]
    again = Words().task(CLOSED, "up(0);", "its server was lost", "up(0);up(0);")
    assert made.rest(Words(), 9.0).plan.task == again


@pytest.mark.parametrize("index", [0, 1, 2, 7])
def test_a_failure_while_segments_are_held_is_one_of_the_new_plan(index: int) -> None:
    made = delivered(CLOSED)
    made.rest(Words(), 1.5)
    made.take(segment(0, 1), 1.6)
    told = made.report(report(ReportState.FAILED, index, value="no"), 1.7)
    text = f"up({index});" if index < 2 else ""
    assert told == report(ReportState.FAILED, 0, 1, f"{text}: no")
    assert made.held == [] and made.is_late(segment(1, 1)) and not made.is_late(segment(0, 2))


def test_nothing_follows_a_plan_that_returned() -> None:
    made = delivered()
    made.rest(Words(), 1.5)
    made.take(segment(0, 1), 1.6)
    assert made.report(report(ReportState.RETURNED, 0), 1.7) == report(ReportState.RETURNED, 0, 1)
    assert made.whole and made.held == [] and made.is_late(segment(1, 1))


def test_what_a_server_publishes_again_takes_back_nothing() -> None:
    made = delivered()
    made.take(replace(segment(2), final=True), 0.0)
    for again in (segment(1), segment(2), replace(segment(2), final=True)):
        assert made.is_late(again)
    assert made.whole and len(made.segments) == 3
    assert not delivered().is_late(replace(segment(1), final=True))  # the mark comes later


def test_a_plan_that_blocks_is_executed_until_its_value_comes() -> None:
    made = delivered(segments=1)
    assert not made.executes
    made.take(segment(1, calls=SCAN), 1.0)
    assert made.executes
    made.report(report(ReportState.FINISHED, 1, value="7"), 2.0)
    assert not made.executes
    assert Words().value(GO, "7").strip() in made.rest(Words(), 3.0).plan.task


def test_reports_about_other_epochs_change_nothing() -> None:
    made = delivered()
    for state in ReportState:
        told = report(state, 1, 5)
        assert made.report(told, 2.0) == told
    assert not (made.failure or made.returned or made.executed or made.whole)


def test_a_result_has_what_all_servers_delivered() -> None:
    made = delivered()
    assert made.merged(result()) == result(), "one server has it all"
    made.rest(Words(), 1.5)
    made.take(segment(0, 1), 5.0)
    all_of_it = made.merged(result())
    assert (all_of_it.plan, all_of_it.segments, all_of_it.epoch) == ("up(0);", 3, 1)  # type: ignore[attr-defined]
    assert (all_of_it.response_s, all_of_it.waiting_s) == (1.0, 3.0)  # type: ignore[attr-defined]


@examples(60)
@given(st.lists(st.tuples(st.sampled_from(ReportState), st.integers(0, 3), st.integers(0, 2))))
def test_any_report_leaves_a_plan_that_can_go_on(
    told: list[tuple[ReportState, int, int]],
) -> None:
    made = delivered(CLOSED)
    for now, (state, index, epoch) in enumerate(told, start=2):
        made.report(report(state, index, epoch), float(now))
    epoch = made.rest(Words(), 90.0).plan.epoch
    assert epoch > made.shown and made.returned == made.is_late(segment(0, epoch))


def test_a_result_is_whole_when_the_segments_of_its_epoch_have_come() -> None:
    made = delivered()
    made.rest(Words(), 1.5)
    ended = replace(result(), epoch=1, plan="".join(segment(i, 1).text for i in range(2)))
    made.take(segment(0, 1), 1.6)
    assert not made.has_come(ended), "a segment is on its way"
    made.take(segment(1, 1), 1.7)
    assert made.held and made.has_come(ended), "held ones have come"


def test_no_segment_is_awaited_after_the_robot_has_returned() -> None:
    made = delivered(CLOSED)
    ended = replace(result(), plan="up(0);up(1);up(2);")
    assert not made.has_come(ended)
    made.report(report(ReportState.RETURNED, 1), 1.5)
    assert made.has_come(ended)
