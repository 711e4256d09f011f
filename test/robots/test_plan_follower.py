"""Which segments a robot executes, which it ignores, what a failure does, and when a plan ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.request import SHORTEST_S, ErrorCode, ExecutionReport, PlanResult, ReportState
from timely_llm.core.segment import Segment, Value
from timely_llm.resources import resource
from timely_llm.robots.epoch_run import EpochRun, ExecutionEvent, value_text
from timely_llm.robots.execution import PlanExecution
from timely_llm.robots.plan_epochs import PlanEpochs
from timely_llm.robots.plan_follower import PlanFollower
from timely_llm.robots.world import World
from timely_llm.skills.minispec.interpreter import Do
from timely_llm.skills.skill_set import load_skill_set

DRONE = load_skill_set(resource("config/skill_sets/drone.yaml"))
PLANS = ("mf(50);mf(60);mf(70);", "tc(30);mf(80);tc(45);", "mf(100);tc(90);mf(200);")
"""The plan of each epoch; every statement is a segment."""
ENDED = PlanResult("r", "robot", ErrorCode.NONE, "", PLANS[0], segments=3)


def texts(epoch: int) -> list[str]:
    return [f"{words};" for words in PLANS[epoch].split(";")[:-1]]


def segment(epoch: int, index: int, text: str | None = None) -> Segment:
    words = texts(epoch)[index] if text is None else text
    return Segment("r", "robot", index, words, final=index == 2, epoch=epoch)


class Robot:
    """A follower, its time, and its events with the epochs in which they happened."""

    def __init__(self, *refused: int, overtaken_s: float = 0.0, replaced: bool = False) -> None:
        self.now = 0.0
        self.events: list[tuple[int, ExecutionEvent]] = []
        self.plan = PlanFollower(
            lambda: PlanExecution(DRONE, World(), np.random.default_rng(0), self.now),
            lambda event: "in the way" if event.index in refused else "",
            overtaken_s,
            lambda: replaced,
        )

    def offer(self, epoch: int, index: int, text: str | None = None) -> bool:
        followed = self.plan.offer(segment(epoch, index, text), self.now)
        self._note()
        return followed

    def finish(self, result: PlanResult) -> None:
        self.plan.finish(result, self.now)
        self._note()

    def go_on(self) -> None:
        """Let the running call end, if one runs."""
        if self.plan.wake_s < np.inf:
            self.now = max(self.now, self.plan.wake_s)
            self.plan.wake(self.now)
            self._note()

    def rest(self) -> None:
        while self.plan.wake_s < np.inf:
            self.go_on()

    def _note(self) -> None:
        self.events += [(self.plan.epoch, event) for event in self.plan.drain()]

    def of(self, kind: str) -> list[tuple[int, int]]:
        return [(epoch, event.index) for epoch, event in self.events if event.kind == kind]


@pytest.mark.parametrize("epoch", range(3))
def test_every_segment_of_a_plan_is_executed_once(epoch: int) -> None:
    robot = Robot(replaced=True)
    for index in (0, 0, 1, 0, 2, 1):
        robot.offer(epoch, index)
    robot.rest()
    assert "".join(f"{event.call};" for _, event in robot.events if event.call) == PLANS[epoch]


def test_a_newer_epoch_makes_older_ones_void() -> None:
    robot = Robot(replaced=True)
    robot.offer(0, 0)
    assert robot.offer(1, 0)
    assert not robot.offer(0, 1)
    robot.rest()
    assert robot.of("started") == [(0, 0), (1, 0)]
    assert len(robot.plan.runs) == 2


def test_a_failed_segment_makes_its_epoch_void() -> None:
    robot = Robot(0)
    robot.offer(0, 0)
    robot.offer(0, 1)
    robot.rest()
    assert robot.of("failed") == [(0, 0)]
    assert robot.events[-1][1].reason == "in the way"
    assert robot.events[-1][1].duration_s > 0
    assert robot.plan.wake_s == np.inf
    assert not robot.offer(0, 2)
    assert not robot.of("finished")
    assert robot.offer(1, 0)


@pytest.mark.parametrize("epoch", [1, 5])
def test_a_segment_of_an_epoch_that_the_robot_did_not_cause_changes_nothing(
    epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    robot = Robot()
    robot.offer(0, 0)
    for _ in range(3):
        forged = Segment("r", "robot", 0, "mf(999);", final=True, epoch=epoch)
        assert not robot.plan.offer(forged, robot.now)
    assert caplog.messages == [
        f"epoch {epoch} of request 'r' is not executed: its robot reported no failure of epoch"
        f" {epoch - 1}"
    ]
    robot.offer(0, 1)
    robot.offer(0, 2)
    robot.finish(ENDED)
    robot.rest()
    assert robot.plan.ending == "finished"
    assert "".join(f"{event.call};" for _, event in robot.events if event.call) == PLANS[0]


def test_a_failure_leads_to_the_next_epoch_only() -> None:
    robot = Robot(0)
    robot.offer(0, 0)
    robot.rest()
    assert not robot.offer(2, 0)
    assert robot.offer(1, 0)


def test_a_result_of_an_epoch_that_the_robot_did_not_cause_ends_its_plan_as_failed() -> None:
    robot = Robot()
    robot.offer(0, 0)
    robot.finish(replace(ENDED, plan=PLANS[1], epoch=1))
    robot.rest()
    assert robot.plan.ending == "failed"
    assert [str(event.call) for _, event in robot.events if event.call] == ["mf(50)"]


def test_a_segment_that_comes_again_with_other_words_fails_and_is_not_executed() -> None:
    robot = Robot()
    robot.offer(0, 0)
    robot.offer(0, 0, "tc(45);")
    assert robot.of("failed") == [(0, 0)]
    assert robot.events[-1][1].unreadable
    assert "other words" in robot.events[-1][1].reason
    assert robot.plan.wake_s == np.inf


def test_a_segment_that_cannot_be_read_is_not_made_up_for_by_the_result() -> None:
    robot = Robot(overtaken_s=1.0)
    robot.finish(replace(ENDED, segments=1))
    robot.offer(0, 0, "dance(50);")
    robot.rest()
    assert [event.kind for _, event in robot.events] == ["failed"]
    assert robot.plan.ending == "failed"


def test_the_whole_plan_makes_up_for_lost_segments() -> None:
    robot = Robot()
    robot.offer(0, 0)
    robot.finish(ENDED)
    robot.rest()
    calls = [str(event.call) for _, event in robot.events if event.call]
    assert calls == ["mf(50)", "mf(60)", "mf(70)"]
    assert robot.plan.ending == "finished"


def test_segments_that_the_result_has_overtaken_are_waited_for() -> None:
    robot = Robot(overtaken_s=1.0)
    robot.finish(ENDED)
    assert not robot.plan.ending
    for index in range(3):
        robot.offer(0, index)
    robot.rest()
    assert robot.of("finished") == [(0, 0), (0, 1), (0, 2)]


def test_a_result_with_an_error_ends_the_plan_at_once() -> None:
    robot = Robot()
    robot.offer(0, 0)
    robot.finish(PlanResult("r", "robot", ErrorCode.CANCELED, "canceled"))
    assert robot.plan.ending == "error"
    assert not robot.offer(0, 1)
    assert not robot.offer(1, 0)


def test_only_the_first_result_counts() -> None:
    robot = Robot()
    robot.finish(ENDED)
    robot.finish(PlanResult("r", "robot", ErrorCode.CANCELED, "canceled"))
    robot.rest()
    assert robot.plan.ending == "finished"


def test_a_plan_that_returns_says_so_once_and_only_before_the_result() -> None:
    robot = Robot()
    robot.offer(0, 0, "->True;")
    robot.offer(0, 0, "->True;")
    assert robot.of("returned") == [(0, 0)]
    late = Robot()
    late.finish(PlanResult("r", "robot", ErrorCode.NONE, "", "->True;", segments=1))
    assert not late.of("returned")
    assert late.plan.ending == "finished"


class LeftToTheCaller(EpochRun):
    """An epoch with calls that its caller makes."""

    def _begin(self, call: Do, now: float) -> None: ...


def test_a_caller_makes_the_calls_itself_and_passes_on_what_came_of_them() -> None:
    plan = PlanFollower(lambda: LeftToTheCaller(DRONE))
    plan.offer(segment(0, 0), 1.0)
    plan.offer(segment(0, 1), 2.0)
    assert plan.run.call is not None and str(plan.run.call.call) == "mf(50)"
    assert plan.wake_s == np.inf, "only the caller ends the call"
    plan.resume(True, 3.0)
    assert str(plan.run.call.call) == "mf(60)"
    plan.fail("in the way", 5.0)
    assert [(e.kind, e.index, e.duration_s, e.reason) for e in plan.drain()] == [
        ("started", 0, 0.0, ""), ("finished", 0, 2.0, ""), ("started", 1, 0.0, ""),
        ("failed", 1, 2.0, "in the way"),
    ]  # fmt: skip
    assert plan.failed and not plan.offer(segment(0, 2), 6.0)
    assert plan.offer(segment(1, 0), 7.0) and str(plan.run.call.call) == "tc(30)"


def test_an_epoch_that_is_given_up_ends_without_an_event() -> None:
    plan = PlanFollower(lambda: LeftToTheCaller(DRONE))
    plan.offer(segment(0, 0), 1.0)
    plan.drain()
    plan.give_up()
    plan.finish(ENDED, 2.0)
    assert (plan.drain(), plan.ending) == ([], "failed")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (True, "True"), (3, "3"), ("pen, cup", "pen, cup"), ("two\nlines", "two lines")],
)
def test_a_value_is_a_text_in_a_report(value: Value | None, text: str) -> None:
    assert value_text(value) == text
    event = ExecutionEvent("finished", 2, 9.0, 1.5, value=value)
    assert event.report("r", "robot", 1) == ExecutionReport(
        "r", "robot", ReportState.FINISHED, 2, 1.5, text, 1
    )


@pytest.mark.parametrize(("skipped", "reported_s"), [(False, SHORTEST_S), (True, 0.0)])
def test_only_a_skipped_segment_is_reported_with_0_seconds(
    skipped: bool, reported_s: float
) -> None:
    report = ExecutionEvent("finished", 0, 9.0, 0.0, skipped).report("r", "robot", 0)
    assert report is not None
    assert report.duration_s == reported_s


def test_a_failure_is_reported_with_its_reason_and_a_call_not_at_all() -> None:
    failed = ExecutionEvent("failed", 1, 9.0, 0.5, reason="it is locked")
    report = failed.report("r", "robot", 0)
    assert report is not None
    assert (report.state, report.value) == (ReportState.FAILED, "it is locked")
    assert ExecutionEvent("call", 1, 9.0).report("r", "robot", 0) is None


epochs = st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=30)


@given(epochs)
def test_epochs_only_go_up_and_a_void_one_is_never_valid_again(
    steps: list[tuple[bool, int]],
) -> None:
    rule, void = PlanEpochs(), set[int]()
    for fails, epoch in steps:
        before = rule.newest
        if fails:
            rule.fail(epoch)
        else:
            caused = epoch <= before or epoch == rule.failed + 1
            assert rule.follow(epoch) == (epoch not in void and caused)
        void |= {one for one in range(8) if rule.void(one)}
        assert void == {one for one in range(8) if rule.void(one)}
        assert rule.newest >= before


@dataclass(frozen=True)
class Step:
    """What reaches a robot next: a segment, with other words if it is garbled, or time."""

    epoch: int
    index: int
    garbled: bool
    time: bool


STEPS = st.lists(
    st.builds(
        Step, st.integers(0, 2), st.integers(0, 2), st.sampled_from([False] * 9 + [True]),
        st.booleans(),
    ),
    max_size=40,
)  # fmt: skip


@given(STEPS, st.sets(st.integers(0, 2), max_size=1), st.booleans())
def test_whatever_comes_in_any_order_a_robot_does_only_what_its_plan_says(
    steps: list[Step], refused: set[int], ends: bool
) -> None:
    robot, newest = Robot(*refused, replaced=True), 0
    for step in steps:
        if step.time:
            robot.go_on()
            continue
        before = len(robot.events)
        known = bool(robot.plan.failed) and step.epoch <= robot.plan.epoch
        followed = robot.offer(step.epoch, step.index, "tc(-3);dance(" if step.garbled else None)
        assert followed == (step.epoch >= newest and not known)
        newest = max(newest, step.epoch)
        assert robot.plan.epoch == newest
        if not followed:
            assert len(robot.events) == before
    if ends:
        robot.finish(
            PlanResult("r", "robot", ErrorCode.NONE, "", PLANS[newest], segments=99, epoch=newest)
        )
    robot.rest()

    assert [epoch for epoch, _ in robot.events] == sorted(epoch for epoch, _ in robot.events)
    for epoch in range(3):
        of_epoch = [event for number, event in robot.events if number == epoch]
        made = [str(event.call) for event in of_epoch if event.call]
        assert PLANS[epoch].startswith("".join(f"{call};" for call in made))
        started = [event.index for event in of_epoch if event.kind == "started"]
        assert started == sorted(set(started))
        failures = [event.kind for event in of_epoch].count("failed")
        assert failures <= 1
        if failures:
            assert of_epoch[-1].kind == "failed"
    if ends:
        assert robot.plan.ending == ("failed" if robot.plan.failed else "finished")
    else:
        assert not robot.plan.ending
