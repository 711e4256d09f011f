"""`annealing-lengths` on few requests."""

from __future__ import annotations

from statistics import fmean

from timely_llm.experiments.catalog.annealing.lengths import LENGTHS
from timely_llm.experiments.registry import experiment

FOUND = experiment("annealing-lengths")


def test_known_lengths_are_worth_more_than_draws() -> None:
    made = FOUND.run(FOUND.options(sizes=(20,), seeds=3, jobs=1), lambda done, total: None)
    assert {row["policy"] for row in made.rows} == {"fcfs", *LENGTHS}
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()

    def g(policy: str) -> float:
        return fmean(float(row["g"] or 0) for row in made.rows if row["policy"] == policy)

    assert g("0%") > g("gaussian")
    assert g("0%") > g("fcfs")
