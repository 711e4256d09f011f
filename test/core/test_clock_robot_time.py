"""Robots' seconds on the loop's clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.clock import SAME, STILL, RobotTime
from timely_llm.core.generation import PlanGeneration
from timely_llm.core.request import PlanRequest
from timely_llm.core.segment import Segment
from timely_llm.core.time_utility import TimeUtility

moments = st.floats(-1e5, 1e5)
rates = st.floats(0.01, 100.0)
times = st.builds(RobotTime, rates, moments, moments)


def generation(utility: TimeUtility, robot_time: RobotTime = SAME) -> PlanGeneration:
    request = PlanRequest("r", "me", "drone", "fly", utility)
    return PlanGeneration("r", request, 10.0, 1, 1, robot_time=robot_time)


@given(times, moments)
def test_there_and_back_is_the_same_moment(robot_time: RobotTime, moment: float) -> None:
    assert robot_time.to_loop(robot_time.to_robot(moment)) == pytest.approx(moment, abs=1e-6)


@given(times, moments, moments)
def test_what_is_later_for_one_is_later_for_the_other(
    robot_time: RobotTime, one: float, other: float
) -> None:
    early, late = sorted((one, other))
    assert robot_time.to_robot(early) <= robot_time.to_robot(late)
    assert robot_time.to_loop(early) <= robot_time.to_loop(late)


@given(moments)
def test_robots_on_the_wall_cost_no_digit(moment: float) -> None:
    assert SAME.to_robot(moment) == moment == SAME.to_loop(moment)


slopes = st.floats(-4, -1e-6) | st.just(0.0)  # a smaller one reaches 0 after the end of time


@given(rates, st.floats(0, 5), slopes, st.floats(0, 5), st.floats(0, 20))
def test_a_worth_in_robots_seconds_is_the_same_on_the_loops_clock(
    rate: float, beta: float, alpha: float, ert_s: float, waited_s: float
) -> None:
    utility = TimeUtility(beta, alpha, ert_s)
    on_loop = utility.at_rate(rate)
    assert on_loop.value(waited_s / rate) == pytest.approx(utility.value(waited_s), abs=1e-6)
    assert on_loop.zero_s * rate == pytest.approx(utility.zero_s)


@given(st.lists(times, min_size=1, max_size=8))
def test_due_times_stay_as_many_robots_seconds_away_however_time_passes(
    changes: list[RobotTime],
) -> None:
    made = generation(TimeUtility(1.0, -2.0, 3.0))
    made.segments.append(Segment("r", "me", 0, "mf(50);"))
    made.robot_free_s = 25.0
    now = 20.0
    left_s = made.robot_free_s - now
    for change in changes:
        # A real clock goes on from where it was.
        change = RobotTime(change.rate, now, made.robot_time.to_robot(now))
        made.retime(change)
        assert (made.robot_free_s - now) * made.rate == pytest.approx(left_s, abs=1e-6)
        now += 0.5
        left_s -= 0.5 * change.rate


def test_nothing_becomes_due_while_robots_time_stands_still() -> None:
    made = generation(TimeUtility(1.0, -2.0, 3.0))
    made.retime(RobotTime(STILL, 11.0, 11.0))
    worth = made.utility_at(11.0)
    made.retime(RobotTime(STILL, 5000.0, 11.0))
    assert made.due_s - 5000.0 > 1e6
    assert made.zero_s > made.due_s
    assert made.utility_at(5000.0) == pytest.approx(worth)
    made.retime(RobotTime(1.0, 5000.0, 11.0))
    assert made.due_s - 5000.0 == pytest.approx(2.0, abs=1e-6)
