"""A replayed job's robot: its calls, their durations and its reports. No ROS, no waiting."""

from __future__ import annotations

import pytest

from test.experiments.workloads import job
from timely_llm.core.request import ErrorCode, ExecutionReport, PlanResult, ReportState
from timely_llm.core.segment import Segment
from timely_llm.experiments.recorded.replay_script import request_of
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.resources import resource
from timely_llm.ros.bags.replayed import ReplayedJob
from timely_llm.skills.skill_set import load_skill_set

DRONE = load_skill_set(resource("config/skill_sets/drone.yaml"))
STARTED, FINISHED = ReportState.STARTED, ReportState.FINISHED


class Robot:
    """A job, its reports, and a clock that the test sets."""

    def __init__(self, *seconds: float) -> None:
        self.said: list[ExecutionReport] = []
        asked = job("j", seconds=seconds)
        work = JobInstance(asked.id, asked, asked.agent, 0.0, True, ())
        self.job = ReplayedJob(0, work, request_of(asked), DRONE, self.said.append)
        self.job.ask()

    def offer(self, index: int, text: str, final: bool = False, epoch: int = 0) -> None:
        self.job.offer(Segment("j", "agent-j", index, text, (), 0.0, final, epoch))

    def finish(
        self, plan: str, code: ErrorCode = ErrorCode.NONE, epoch: int = 0, segments: int = 1
    ) -> None:
        self.job.finish(
            PlanResult("j", "agent-j", code, "", plan, segments, 0.1, 0.1, 1.0, 9, 9, 0, epoch)
        )

    def pass_time(self) -> None:
        """Let the running skill end."""
        self.job.tick(self.job.wake_s)

    @property
    def states(self) -> list[tuple[ReportState, int]]:
        return [(report.state, report.index) for report in self.said]

    @property
    def durations_s(self) -> list[float]:
        return [round(r.duration_s, 6) for r in self.said if r.state is FINISHED]


def test_measured_times_go_to_segments_in_order_but_not_to_the_last_of_several() -> None:
    robot = Robot(2.0, 7.0, 9.0)
    robot.offer(0, "mf(50);")
    robot.offer(1, "?s('cat')|s('cup'){")
    robot.offer(2, "tc(90);};", final=True)
    for _ in range(3):
        robot.pass_time()
    assert robot.durations_s[:2] == [2.0, 7.0]
    assert 0.5 < robot.durations_s[2] < 5.0  # as the skill set says, about 2.3 s
    assert robot.states == [(kind, i) for i in range(3) for kind in (STARTED, FINISHED)]


def test_a_plan_of_one_segment_takes_the_measured_time() -> None:
    robot = Robot(2.0)
    robot.offer(0, "mf(50);", final=True)
    robot.pass_time()
    assert robot.durations_s == [2.0]


def test_it_is_done_when_the_result_has_come_and_all_is_executed() -> None:
    robot = Robot(2.0)
    robot.offer(0, "mf(50);")
    robot.finish("mf(50);->True;")  # the rest got lost on the way
    assert not robot.job.done
    robot.pass_time()
    assert robot.job.done
    assert robot.job.finished
    outcome = robot.job.outcome(robot.job.asked_s, robot.job.asked_s + 60.0)
    assert outcome.finished
    assert outcome.segments[0].end_s - outcome.segments[0].start_s == pytest.approx(2.0)
    assert outcome.response_s >= 0.0


def test_a_result_may_overtake_segments() -> None:
    robot = Robot(2.0, 3.0, 4.0)
    robot.finish("mf(50);tc(90);mf(100);", segments=3)
    for index, text in enumerate(("mf(50);", "tc(90);", "mf(100);")):
        assert not robot.job.done
        robot.offer(index, text, final=index == 2)
    while not robot.job.done:
        robot.pass_time()
    assert robot.states == [(kind, i) for i in range(3) for kind in (STARTED, FINISHED)]
    assert robot.job.finished


def test_what_does_not_come_after_the_result_is_made_up_for() -> None:
    robot = Robot(2.0, 3.0)
    robot.offer(0, "mf(50);")
    robot.finish("mf(50);tc(90);mf(100);", segments=3)
    robot.offer(1, "tc(90);")
    while not robot.job.done:
        robot.pass_time()
    assert robot.states == [(kind, i) for i in range(3) for kind in (STARTED, FINISHED)]


def test_segments_count_once_whichever_way_they_come() -> None:
    robot = Robot(2.0, 3.0)
    for _ in range(2):
        robot.offer(0, "mf(50);")
        robot.offer(1, "tc(90);")
    robot.pass_time()
    robot.offer(0, "mf(50);")
    robot.pass_time()
    robot.offer(1, "tc(90);", final=True)
    assert robot.states == [(STARTED, 0), (FINISHED, 0), (STARTED, 1), (FINISHED, 1)]


def test_a_plan_that_returns_needs_no_more() -> None:
    robot = Robot(2.0)
    robot.offer(0, "?s('cat'){->True;};")
    robot.pass_time()
    assert robot.states == [(STARTED, 0), (FINISHED, 0), (ReportState.RETURNED, 0)]
    robot.finish("?s('cat'){->True;};")
    assert robot.job.finished


def test_what_cannot_be_read_fails_and_the_next_epoch_is_followed() -> None:
    robot = Robot(2.0)
    robot.offer(0, "dance(50);")
    assert robot.states == [(ReportState.FAILED, 0)]
    robot.offer(1, "tc(90);")
    robot.offer(0, "mf(50);", final=True, epoch=1)
    robot.offer(1, "tc(90);")
    robot.pass_time()
    robot.finish("mf(50);", epoch=1)
    assert robot.states[1:] == [(STARTED, 0), (FINISHED, 0)]
    assert {report.epoch for report in robot.said[1:]} == {1}
    assert robot.job.finished


def test_an_error_ends_it_in_the_middle_of_a_segment() -> None:
    robot = Robot(2.0)
    robot.offer(0, "mf(50);")
    robot.finish("", ErrorCode.CANCELED)
    assert robot.job.done
    assert not robot.job.finished
    robot.offer(1, "tc(90);")
    outcome = robot.job.outcome(robot.job.asked_s, robot.job.asked_s + 1.0)
    assert [segment.end_s for segment in outcome.segments] == [1.0]
    assert not outcome.finished
