"""A plan as its client sees it: segments may come in any order and several times."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from timely_llm.core.request import SHORTEST_S, ErrorCode, ExecutionReport, PlanResult, ReportState
from timely_llm.core.segment import Segment
from timely_llm.robots.client.pending import PlanClientError, PlanTimeout
from timely_llm.robots.client.plan_task import PlanTask, calls_of
from timely_llm.skills.skill_set import SkillSet

A, B, C = (Segment("r", "me", i, text) for i, text in enumerate(("mu(50);", "tp();", "->True;")))
FINAL = replace(C, final=True)
WHOLE = PlanResult("r", "me", ErrorCode.NONE, "", "mu(50);tp();->True;", 3, 0.1, 0.1, 1.0, 9, 9, 0)
SOON_S = 0.05


class Post:
    """Keeps what a task sends."""

    def __init__(self) -> None:
        self.reports: list[ExecutionReport] = []
        self.canceled: list[str] = []

    def report(self, report: ExecutionReport) -> None:
        self.reports.append(report)

    def cancel(self, request_id: str) -> None:
        self.canceled.append(request_id)

    def skill_set(self, name: str) -> SkillSet:
        raise PlanClientError(f"unknown skill set {name!r}")


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def task(post: Post) -> PlanTask:
    return PlanTask("r", "me", post)


def offer(task: PlanTask, *segments: Segment) -> None:
    for segment in segments:
        task.offer(segment)


def texts(task: PlanTask) -> list[str]:
    return [segment.text for segment in task.segments(SOON_S)]


def test_each_segment_comes_once_and_in_order(task: PlanTask) -> None:
    offer(task, B, A, A, FINAL, B)
    assert texts(task) == ["mu(50);", "tp();", "->True;"]


def test_the_last_segment_may_come_again_to_say_that_it_is_the_last(task: PlanTask) -> None:
    offer(task, A, B)
    reading = task.segments(SOON_S)
    assert [next(reading).index, next(reading).index] == [0, 1]
    offer(task, replace(B, text="tp();}", final=True))
    assert list(reading) == []


def test_what_got_lost_is_made_up_for_by_the_result(task: PlanTask) -> None:
    offer(task, A, FINAL)
    task.finish(WHOLE)
    first, rest = task.segments(SOON_S)
    assert (first.text, rest.text, rest.index, rest.final) == ("mu(50);", "tp();->True;", 1, True)
    assert [str(call) for call in rest.calls] == ["tp()"]
    assert texts(task) == []


def test_marks_that_close_a_plan_are_no_lost_segment(task: PlanTask) -> None:
    offer(task, A)
    task.finish(replace(WHOLE, plan="mu(50);}"))
    assert texts(task) == ["mu(50);"]


def test_a_new_epoch_voids_the_old_one(task: PlanTask, post: Post) -> None:
    offer(task, A, B)
    reading = task.segments(SOON_S)
    task.failed(next(reading), "a person is in the way", 1.0)
    offer(task, FINAL, replace(A, epoch=1, text="mb(50);"), replace(B, epoch=1, final=True))
    assert [(s.epoch, s.text) for s in reading] == [(1, "mb(50);"), (1, "tp();")]
    failed = post.reports[-1]
    assert (failed.state, failed.index, failed.epoch) == (ReportState.FAILED, 0, 0)
    assert (failed.value, failed.duration_s) == ("a person is in the way", 1.0)


def test_a_newer_epoch_comes_without_a_failure_where_the_server_replaces_plans(post: Post) -> None:
    for task in (
        PlanTask("r", "me", post, replaces=lambda: True),
        PlanTask("r", "me", post, elsewhere=True),
    ):
        offer(task, A)
        offer(task, replace(FINAL, epoch=1, index=0))
        offer(task, B)
        assert [s.epoch for s in task.segments(SOON_S)] == [1]


@pytest.mark.parametrize("epoch", [1, 5])
def test_a_segment_of_an_epoch_without_a_failure_changes_nothing(
    task: PlanTask, epoch: int
) -> None:
    offer(task, A, replace(FINAL, epoch=epoch, index=0, text="mu(999);"), B, FINAL)
    task.finish(WHOLE)
    assert texts(task) == ["mu(50);", "tp();", "->True;"]


def test_a_result_of_an_epoch_without_a_failure_is_an_error(task: PlanTask) -> None:
    offer(task, A)
    reading = task.segments(SOON_S)
    next(reading)
    task.finish(replace(WHOLE, plan="mu(999);", epoch=1))
    with pytest.raises(PlanClientError, match="reported no failure of epoch 0") as raised:
        next(reading)
    assert raised.value.code is ErrorCode.EXECUTION_FAILED


def test_a_resumed_plan_goes_on_with_the_epoch_that_its_server_names(post: Post) -> None:
    task = PlanTask("r", "me", post, resumed=True)
    offer(task, replace(B, epoch=3), replace(FINAL, epoch=9, index=0, text="mu(999);"))
    task.adopt([replace(A, epoch=3)])
    offer(task, replace(FINAL, epoch=3))
    assert [(s.epoch, s.text) for s in task.segments(SOON_S)] == [
        (3, "mu(50);"), (3, "tp();"), (3, "->True;"),
    ]  # fmt: skip


def test_a_resumed_plan_without_segments_takes_the_epoch_of_the_next_one(post: Post) -> None:
    task = PlanTask("r", "me", post, resumed=True)
    task.adopt([])
    offer(task, replace(A, epoch=1), replace(FINAL, epoch=9, index=0, text="mu(999);"))
    offer(task, replace(FINAL, epoch=1, index=1))
    assert [(s.epoch, s.text) for s in task.segments(SOON_S)] == [(1, "mu(50);"), (1, "->True;")]


def test_a_failure_after_the_plan_was_complete_needs_a_new_task(task: PlanTask) -> None:
    offer(task, A, B, FINAL)
    task.finish(WHOLE)
    reading = task.segments(SOON_S)
    task.failed(next(reading), "no")
    with pytest.raises(PlanClientError, match="after its request had ended") as raised:
        next(reading)
    assert raised.value.code is ErrorCode.EXECUTION_FAILED


def test_an_error_is_raised_with_its_code_and_returned_by_the_result(task: PlanTask) -> None:
    offer(task, A)
    task.finish(replace(WHOLE, error_code=ErrorCode.TOO_LONG, error_msg="too long"))
    with pytest.raises(PlanClientError, match=r"^too long$") as raised:
        texts(task)
    assert raised.value.code is ErrorCode.TOO_LONG
    assert task.result(SOON_S).error_code is ErrorCode.TOO_LONG
    assert task.done


def test_every_wait_ends(task: PlanTask) -> None:
    with pytest.raises(PlanTimeout, match=r"'r' sent no segment within 0.05 s"):
        texts(task)
    with pytest.raises(TimeoutError, match=r"'r' did not end within 0.05 s"):
        task.result(SOON_S)


def test_closing_ends_a_wait(task: PlanTask) -> None:
    timer = threading.Timer(SOON_S, task.close, ("the client is closed",))
    timer.start()
    with pytest.raises(PlanClientError, match="the client is closed"):
        list(task.segments(30.0))
    timer.join()


def test_after_returning_no_segment_is_wanted(task: PlanTask, post: Post) -> None:
    offer(task, A, B)
    reading = task.segments(SOON_S)
    next(reading)
    task.returned()
    assert list(reading) == []
    assert post.reports[-1].state is ReportState.RETURNED


def test_durations_are_measured_unless_they_are_given(task: PlanTask, post: Post) -> None:
    task.started(A)
    task.finished(A)
    task.finished(B, 2.5, value="42")
    started, measured, given = post.reports
    assert (started.state, measured.state) == (ReportState.STARTED, ReportState.FINISHED)
    assert 0.0 <= measured.duration_s < 1.0
    assert (given.duration_s, given.value, given.index) == (2.5, "42", 1)


def test_an_executed_segment_is_not_reported_as_skipped_while_the_clock_stands_still(
    post: Post,
) -> None:
    task = PlanTask("r", "me", post, seconds=lambda: 5.0)
    task.started(A)
    task.finished(A)
    task.finished(B, 0.0)
    _, measured, skipped = post.reports
    assert (measured.duration_s, skipped.duration_s) == (SHORTEST_S, 0.0)


def test_canceling_says_whether_it_was_in_time(task: PlanTask, post: Post) -> None:
    task.finish(WHOLE)
    assert not task.cancel(SOON_S)
    assert post.canceled == []
    other = PlanTask("other", "me", post)
    other.finish(replace(WHOLE, error_code=ErrorCode.CANCELED))
    assert other.cancel(SOON_S)


def test_calls_are_found_in_text() -> None:
    found = calls_of("?s('cat (big)')|iv(\"cup\"){mf(50);};l('a, b');->True;")
    assert [(c.name, c.arguments) for c in found] == [
        ("s", ("cat (big)",)), ("iv", ("cup",)), ("mf", ("50",)), ("l", ("a, b",)),
    ]  # fmt: skip


def test_a_client_without_reports_does_not_wait_for_the_end_of_an_execution(
    task: PlanTask, post: Post
) -> None:
    offer(task, A, B, FINAL)
    assert len(texts(task)) == 3
    with pytest.raises(PlanTimeout):
        task.result(0.0)
    assert [report.state for report in post.reports] == [ReportState.RETURNED]


def test_the_result_waits_for_a_thread_that_reports(task: PlanTask, post: Post) -> None:
    offer(task, A, B, FINAL)
    for segment in task.segments(SOON_S):
        task.finished(segment)
    with pytest.raises(PlanTimeout):
        task.result(0.0)
    assert ReportState.RETURNED not in [report.state for report in post.reports]
