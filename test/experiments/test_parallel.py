import os
from collections.abc import Iterator

import pytest

from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.parallel import run_all, run_each
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


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_part_is_taken_when_a_process_is_free_for_it(jobs: int) -> None:
    taken: list[str] = []
    done: list[str] = []

    def parts() -> Iterator[str]:
        for text in TEXTS:
            if len(done) == 3:  # as when the time is over
                return
            taken.append(text)
            yield text

    for number, spec in run_each(parse, parts(), jobs):
        assert spec.text == TEXTS[number]
        done.append(spec.text)
    assert sorted(done) == sorted(taken)
    assert len(taken) == {1: 3, 2: 5}[jobs]


def test_more_processes_than_parts_end_too() -> None:
    assert sorted(run_each(eval, ["1", "2"], 3)) == [(0, 1), (1, 2)]


def test_without_parts_there_are_no_results() -> None:
    assert run_all(parse, [], 2) == []
