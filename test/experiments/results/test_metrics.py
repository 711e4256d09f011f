import math

import pytest

from test.experiments.workloads import job
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.experiments.results.metrics import (
    DEFINITIONS,
    MeasuredRow,
    interval,
    plain,
    relative,
    row,
    student_t,
    summary,
    task_rows,
    total_utility,
    utility_unclamped,
)
from timely_llm.experiments.virtual.outcome import ExecutedSegment, JobOutcome, Run
from timely_llm.experiments.virtual.workload import JobInstance


def outcome(
    task: str,
    *starts_s: float,
    utility: TimeUtility = NORMAL,
    finished: bool = True,
    measured: bool = True,
) -> JobOutcome:
    """Return the outcome of a plan with segments that start at `starts_s` and take 1 s each."""
    work = JobInstance(task, job(task, utility=utility, task=task), "a", 0.0, measured, ())
    executed = tuple(ExecutedSegment(s, s, s + 1.0) for s in starts_s)
    return JobOutcome(work, finished, executed)


def run(*outcomes: JobOutcome) -> Run:
    return Run(outcomes, 1, 1.0, 1.0, 1)


def test_waiting_is_the_response_and_the_gaps() -> None:
    one = outcome("0", 0.3, 1.3, 2.8)
    assert one.response_s == 0.3
    assert one.waiting_s == pytest.approx(0.8)


def test_a_row_is_the_mean_of_the_means_of_each_kind_of_task() -> None:
    got = row(
        run(
            outcome("0", 0.5),
            outcome("0", 1.25),
            outcome("7", 0.35, utility=URGENT),
            outcome("9", 9.0, measured=False),
        ),
        policy="p",
        load=2,
        seed=3,
    )
    assert (got["policy"], got["load"], got["seed"], got["requests"]) == ("p", 2, 3, 3)
    assert got["share_served"] == 1.0
    assert got["normal_utility"] == pytest.approx(0.75)
    assert got["urgent_utility"] == pytest.approx(1.0)
    assert got["utility"] == pytest.approx(0.875)
    assert got["response_s"] == pytest.approx((0.875 + 0.35) / 2)


def test_a_request_that_is_not_served_has_utility_0_and_no_times() -> None:
    got = row(run(outcome("0", 0.5), outcome("0", finished=False)))
    assert (got["utility"], got["share_served"], got["waiting_s"]) == (0.5, 0.5, 0.5)
    assert math.isnan(row(run(outcome("0", finished=False)))["response_s"])


def test_utility_is_clamped_and_beside_it_is_not() -> None:
    got = row(run(outcome("0", 3.0)))
    assert (got["utility"], got["utility_unclamped"]) == (0.0, -3.0)


def test_each_kind_of_task_has_its_row() -> None:
    urgent, normal = task_rows(run(outcome("1", 0.5), outcome("0", 0.2, utility=URGENT)), seed=1)
    assert (urgent["task"], urgent["urgent"], urgent["utility"], urgent["seed"]) == (
        "0",
        True,
        2,
        1,
    )
    assert (normal["task"], normal["urgent"], normal["response_s"]) == ("1", False, 0.5)


@pytest.mark.parametrize(
    ("freedom", "confidence", "t"),
    [(1, 0.95, 12.7062), (2, 0.95, 4.30265), (4, 0.95, 2.77645), (9, 0.99, 3.24984)],
)
def test_students_t_is_that_of_the_tables(freedom: int, confidence: float, t: float) -> None:
    assert student_t(freedom, confidence) == pytest.approx(t, rel=1e-5)


def test_an_interval_holds_the_mean_of_the_seeds() -> None:
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.48414), rel=1e-5)
    assert interval([1.0, math.nan]) == (1.0, math.inf)
    assert all(map(math.isnan, interval([])))


def test_a_summary_is_over_the_seeds() -> None:
    rows = [{"policy": "p", "load": 1, "seed": s, "utility": 1.0 + s} for s in range(3)]
    (one,) = summary(rows, ("policy", "load"))
    assert (one["policy"], one["seeds"], one["utility"]) == ("p", 3, 2.0)
    assert one["utility_ci"] == pytest.approx(2.48414, rel=1e-5)
    assert "seed" not in one


def test_what_a_seed_lacks_is_that_of_the_others() -> None:
    values = (None, 1.0, 3.0)
    rows = [{"policy": "p", "seed": s, "x": x, "y": None} for s, x in enumerate(values)]
    (one,) = summary(rows, ("policy",))
    assert (one["x"], one["seeds"]) == (2.0, 3)
    assert "y" not in one


def test_every_column_is_defined() -> None:
    assert row(run(outcome("0", 0.5))).keys() == DEFINITIONS.keys()


def test_the_longest_response_is_that_of_one_request() -> None:
    got = row(run(outcome("0", 0.5), outcome("0", 1.5), outcome("1", 9.0, finished=False)))
    assert got["longest_response_s"] == 1.5


def test_a_measure_is_compared_with_a_policy_of_the_same_setting_and_seed() -> None:
    known = (("a", 1, 2.0), ("b", 1, 3.0), ("a", 2, 0.0), ("b", 2, 1.0), ("b", 4, 1.0))
    rows: list[MeasuredRow] = [{"policy": p, "load": n, "seed": 0, "x": x} for p, n, x in known]
    rows.append({"policy": "c", "load": 1, "seed": 0, "x": None})
    found = [plain(one)["x_vs_a"] for one in relative(rows, ("load", "policy"), "x", "a")]
    assert found == [1.0, 1.5, None, None, None, None]
    assert relative(rows, ("load", "policy"), "x", "nobody") == rows


def test_total_utility_is_the_sum_over_all_segments() -> None:
    # Normal: 1 until 1 s, then 2 less a second; urgent: 2 until 0.2 s, 0 at 0.5 s.
    normal = outcome("0", 1.25, 2.5, 3.5)  # 0.5 first, then idle for 0.25 s and 0 s: 0.5 + 1
    urgent = outcome("7", 0.35, 2.35, utility=URGENT)  # 1 first, then idle for 1 s: 2 - 20 / 3
    never = outcome("0", finished=False)
    cut = outcome("9", 0.5, finished=False)
    ignored = outcome("9", 0.5, measured=False)
    outcomes = (normal, urgent, never, cut, ignored)
    expected = [2.0, 1.0 + 2.0 - 20.0 / 3.0, 0.0, 1.0]
    assert [total_utility(one) for one in outcomes[:4]] == pytest.approx(expected)
    got = run(*outcomes)
    assert row(got)["total_utility"] == pytest.approx(sum(expected))
    assert {one["task"]: one["total_utility"] for one in task_rows(got)} == pytest.approx(
        {"0": 2.0, "7": expected[1], "9": 1.0}
    )
    assert plain(row(run()))["total_utility"] is None


def test_earned_utility_is_the_sum_over_requests_without_debts() -> None:
    got = run(outcome("0", 0.5), outcome("0", 9.0), outcome("1"))
    assert row(got)["earned_utility"] == pytest.approx(
        sum(max(0.0, utility_unclamped(one)) for one in got.outcomes)
    )
    assert row(got)["earned_utility"] > row(got)["total_utility"]
    assert plain(row(run()))["earned_utility"] is None


def test_shares_of_first_segments_and_of_whole_plans_differ() -> None:
    got = run(outcome("0", 0.5), outcome("0", 9.0, finished=False), outcome("0", finished=False))
    for one in (row(got), *task_rows(got)):
        assert one["share_first"] == pytest.approx(2 / 3)
        assert one["share_finished"] == one["share_served"] == pytest.approx(1 / 3)
