"""Metrics of fleets, by cases calculated by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.core.time_utility import NORMAL
from timely_llm.experiments.results.fleet import DEFINITIONS, fleet_row, in_time, jain, robot_time
from timely_llm.experiments.virtual.outcome import ExecutedSegment, JobOutcome
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.traces.model import Job


def plan(
    asked_s: float, *segments: tuple[float, float], robot: str = "a", finished: bool = True
) -> JobOutcome:
    """What a robot got: a request, and the times in which it executed segments."""
    name = f"{robot}.{asked_s}"
    job = Job(name, asked_s, robot, "1", "drone", "go", NORMAL)
    work = JobInstance(name, job, robot, asked_s, True)
    done = tuple(ExecutedSegment(start_s, start_s, end_s) for start_s, end_s in segments)
    return JobOutcome(work, finished, done)


def test_a_robot_is_starved_until_its_first_segment_and_between_segments() -> None:
    time = robot_time([plan(1.0, (1.5, 3.0), (4.0, 5.0))], until_s=10.0)
    assert time.asked_s == pytest.approx(4.0)
    assert time.starved_s == pytest.approx(0.5 + 1.0)
    assert time.progress == pytest.approx(2.5 / 4.0)


def test_the_pause_between_two_plans_is_not_starved() -> None:
    time = robot_time([plan(0.0, (0.0, 1.0)), plan(5.0, (6.0, 8.0))], until_s=10.0)
    assert [time.asked_s, time.starved_s] == pytest.approx([4.0, 1.0])


def test_what_happens_after_the_window_does_not_count() -> None:
    time = robot_time([plan(1.0, (2.0, 9.0))], until_s=4.0)
    assert [time.asked_s, time.starved_s] == pytest.approx([3.0, 1.0])
    row = fleet_row([plan(1.0, (2.0, 9.0), (9.0, 9.5))], until_s=4.0)
    assert (row["useful_actions"], row["tasks_per_min"]) == (1, 0.0)
    assert row["task_latency_s"] == pytest.approx(8.5)


def test_a_plan_without_an_end_starves_its_robot_until_its_next_request() -> None:
    lost = plan(0.0, (1.0, 2.0), finished=False)
    assert robot_time([lost, plan(5.0, (5.0, 6.0))], 10.0).starved_s == pytest.approx(4.0)
    assert robot_time([lost], 10.0).starved_s == pytest.approx(9.0)


def test_a_robot_without_requests_is_not_starved() -> None:
    assert robot_time([], 10.0).progress == 1.0


@pytest.mark.parametrize(
    ("shares", "index"),
    [([1.0, 1.0], 1.0), ([1.0, 0.0], 0.5), ([1.0, 0.5], 2.25 / 2.5), ([0.0, 0.0], 1.0)],
)
def test_fairness_is_one_for_equal_robots(shares: list[float], index: float) -> None:
    assert jain(shares) == pytest.approx(index)
    assert math.isnan(jain([]))


@examples(100)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=20))
def test_fairness_lies_between_one_robot_and_all(shares: list[float]) -> None:
    assert 1 / len(shares) - 1e-9 <= jain(shares) <= 1 + 1e-9


def test_a_fleets_row() -> None:
    outcomes = [
        plan(0.0, (0.5, 2.5), (2.5, 3.0), robot="a"),
        plan(0.0, (1.5, 3.5), robot="b"),  # late: due after 1 s
        plan(4.0, (4.5, 6.0), robot="a"),
    ]
    assert [in_time(one) for one in outcomes] == [True, False, True]
    row = fleet_row(outcomes, until_s=30.0, servers=2, policy="fcfs")
    assert row.keys() == {"policy", *DEFINITIONS} - {"robots"}
    assert row["slo_attainment"] == pytest.approx(2 / 3)
    assert row["utility_per_min"] == pytest.approx(2 * (1.0 + 0.0 + 1.0))  # after 1.5 s: nothing
    assert (row["tasks_per_min"], row["qualified_per_min"]) == (6.0, 4.0)
    assert row["qualified_per_server_min"] == 2.0
    assert row["useful_actions"] == 4
    assert row["starvation_duration_s"] == pytest.approx(0.5 + 1.5 + 0.5)
    assert row["starvation_frequency"] == pytest.approx(2.5 / (3.0 + 3.5 + 2.0))
    assert row["action_age_p50_s"] == pytest.approx(0.5)
    assert row["action_age_p95_s"] == pytest.approx(2.5)
    assert row["fairness"] == pytest.approx(jain([4 / 5, 2 / 3.5]))
    assert row["task_latency_s"] == pytest.approx((3.0 + 3.5 + 2.0) / 3)
