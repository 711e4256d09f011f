import os

import pytest

from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import parse

TEXTS = [f"timely:rows={rows}" for rows in range(1, 7)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_are_in_order_however_many_work(jobs: int) -> None:
    seen: list[tuple[int, int]] = []
    results = run_all(parse, TEXTS, jobs, lambda *done: seen.append(done))
    assert [spec.text for spec in results] == TEXTS
    assert [spec.values["rows"] for spec in results] == [1, 2, 3, 4, 5, 6]
    assert seen == [(done, 6) for done in range(7)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_other_processes_work_unless_one_is_enough(jobs: int) -> None:
    workers = run_all(eval, ["__import__('os').getpid()"] * 4, jobs)
    assert (os.getpid() in workers) == (jobs == 1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_error_of_a_part_is_the_error_of_all(jobs: int) -> None:
    with pytest.raises(ExperimentError, match="unknown policy 'best'"):
        run_all(parse, [*TEXTS, "best", *TEXTS], jobs)


def test_a_process_that_is_killed_is_an_error_and_no_endless_wait() -> None:
    killed = "__import__('os').kill(__import__('os').getpid(), 9)"
    with pytest.raises(ExperimentError, match="a worker process of the experiment was killed"):
        run_all(eval, ["1", killed, "2", "3"], 2)


def test_without_parts_there_are_no_results() -> None:
    assert run_all(parse, [], 2) == []
