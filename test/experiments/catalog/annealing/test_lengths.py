"""`annealing-lengths` on few requests."""

from __future__ import annotations

from statistics import fmean

import pytest

from timely_llm.experiments.catalog.annealing.lengths import LENGTHS
from timely_llm.experiments.registry import experiment

FOUND = experiment("annealing-lengths")


@pytest.mark.extended
def test_known_lengths_are_worth_more_than_draws() -> None:
    made = FOUND.run(FOUND.options(sizes=(20,), seeds=3, jobs=1), lambda done, total: None)
    assert {row["policy"] for row in made.rows} == {"fcfs", *LENGTHS}
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()

    def g(policy: str) -> float:
        return fmean(float(row["g"] or 0) for row in made.rows if row["policy"] == policy)

    assert g("0%") > g("gaussian")
    assert g("0%") > g("fcfs")


@pytest.mark.extended
def test_known_lengths_are_worth_more_on_a_slower_testbed_too() -> None:
    options = FOUND.options(figures=(18,), sizes=(20,), seeds=2, jobs=1)
    rows = FOUND.run(options, lambda done, total: None).rows
    assert {row["figure"] for row in rows} == {18}
    of_one = [row for row in rows if row["batch"] == 1]

    def gain(policy: str) -> float:
        return fmean(float(r["attainment_gain"] or 0) for r in of_one if r["policy"] == policy)

    assert gain("fcfs") == 0.0
    assert gain("0%") > gain("gaussian")
