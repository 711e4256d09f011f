"""Algorithm 1, line by line."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.progressive.choice import JobLists, power_of_two, ratio_lists


def filled(*lengths: float) -> JobLists[str]:
    lists: JobLists[str] = JobLists()
    for place, tokens in enumerate(lengths):
        lists.put(f"{place}:{tokens:g}", tokens)
    return lists


def test_boundaries_are_powers_of_two() -> None:
    assert [power_of_two(n) for n in (0, 1, 2, 3, 4, 255, 256, 511, 512)] == [
        0, 0, 1, 1, 2, 7, 8, 8, 9,
    ]  # fmt: skip


def test_other_boundaries_have_a_ratio_of_their_own() -> None:
    assert [ratio_lists(4.0)(n) for n in (0, 3, 4, 15, 16, 63, 64)] == [0, 0, 1, 1, 2, 2, 3]
    assert [ratio_lists(2.0)(n) for n in (255, 256, 511)] == [power_of_two(255), 8, 8]
    assert {ratio_lists(math.inf)(n) for n in (1, 500, 10_000)} == {0}


def test_an_idle_edge_takes_a_batch_from_the_longest_list() -> None:
    lists = filled(100, 300, 400, 120, 500)
    assert lists.take(2) == ["1:300", "2:400"]
    assert lists.take(8) == ["0:100", "3:120"]
    assert lists.take(8) == ["4:500"]
    assert lists.take(8) == []


def test_of_equal_lists_the_one_with_the_oldest_job_is_taken() -> None:
    assert filled(600, 100).take(4) == ["0:600"]


def test_a_job_that_is_not_wanted_any_more_is_dropped() -> None:
    lists = filled(100, 120)
    assert lists.remove("0:100")
    assert not lists.remove("0:100")
    assert lists.take(4) == ["1:120"]
    assert len(lists) == 0


def test_other_boundaries_may_be_given() -> None:
    lists: JobLists[int] = JobLists(lambda tokens: 0)
    for job in range(3):
        lists.put(job, 10**job)
    assert lists.take(3) == [0, 1, 2]


@examples(60)
@given(st.lists(st.floats(1, 5000)), st.integers(1, 5))
def test_each_job_is_in_one_batch_with_jobs_of_its_list_alone(
    lengths: list[float], most: int
) -> None:
    lists: JobLists[int] = JobLists()
    for job, tokens in enumerate(lengths):
        lists.put(job, tokens)
    taken = []
    while batch := lists.take(most):
        assert len(batch) <= most
        assert len({power_of_two(lengths[job]) for job in batch}) == 1
        assert batch == sorted(batch)
        taken += batch
    assert sorted(taken) == list(range(len(lengths)))
