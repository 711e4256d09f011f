from dataclasses import replace
from pathlib import Path

import pytest

from test.experiments.bursts import bursts, bursts_file
from test.experiments.workloads import job, trace
from timely_llm.core.time_utility import URGENT
from timely_llm.experiments.catalog.timelyllm.trace import EXPERIMENT, find
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.sources import composed


def quiet(done: int, total: int) -> None:
    pass


def test_the_first_burst_counts_in_which_two_urgent_requests_follow_a_normal_one() -> None:
    # The first ten jobs do not count: nine of the first burst, and the normal one of the next.
    assert find(bursts()) == ("b1j3", "b1j4", "b1j5")


def test_requests_of_different_bursts_do_not_belong_together() -> None:
    alone = trace(
        *(job(f"j{i}", i / 1.0) for i in range(11)),
        job("u1", 11.0, utility=URGENT),
        job("u2", 12.0, utility=URGENT),
    )
    with pytest.raises(ExperimentError, match="no burst in which two urgent requests"):
        find(alone)


@pytest.mark.parametrize("seed", range(8))
def test_the_papers_workload_has_such_a_burst(seed: int) -> None:
    made = composed("wid2", seed)
    jobs = {one.id: one for one in made.jobs}
    normal, urgent, other = (jobs[one] for one in find(made))
    assert (normal.urgent, urgent.urgent, other.urgent) == (False, True, True)
    assert normal.arrival_s <= urgent.arrival_s <= other.arrival_s < normal.arrival_s + 0.1


def test_rows_are_of_two_requests_and_timelines_of_three(tmp_path: Path) -> None:
    options = EXPERIMENT.options(trace=bursts_file(tmp_path), seeds=2, jobs=1)
    run = EXPERIMENT.run(options, quiet)
    assert [row["policy"] for row in run.rows] == [p for p in options.policies for _ in range(2)]
    assert all(row["requests"] == 2 for row in run.rows)
    assert [one.requests for one in run.timelines] == [("b1j3", "b1j4", "b1j5")] * len(
        options.policies
    )
    assert run.timelines[0].urgent == (False, True, True)
    assert run.task_rows == ()
    assert run == EXPERIMENT.run(replace(options, jobs=2), quiet)


def test_the_urgent_request_waits_for_the_normal_one_under_fcfs_and_not_under_timely(
    tmp_path: Path,
) -> None:
    options = EXPERIMENT.options(trace=bursts_file(tmp_path), seeds=1, jobs=1)
    urgent = {
        row["policy"]: float(row["urgent_utility"] or 0.0)
        for row in EXPERIMENT.run(options, quiet).rows
    }
    assert urgent["fcfs"] < urgent["timely"] <= urgent["deadline"]
