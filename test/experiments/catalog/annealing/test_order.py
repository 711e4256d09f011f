"""`annealing-order` on few requests."""

from __future__ import annotations

import pytest

from timely_llm.experiments.registry import experiment

FOUND = experiment("annealing-order")


def quiet(done: int, total: int) -> None: ...


def test_each_policy_has_a_row_for_each_batch_and_size() -> None:
    options = FOUND.options(
        policies=("fcfs", "sjf", "annealing", "deadline"), sizes=(4, 10), seeds=2, jobs=1
    )
    made = FOUND.run(options, quiet)
    names = {(r["batch"], r["requests"], r["policy"]) for r in made.rows}
    assert len(names) == 3 * 2 * 4
    assert len(made.rows) == 2 * len(names)
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    for row in made.rows:
        assert 0.0 <= float(row["attainment"] or 0) <= 1.0
        if row["policy"] == "fcfs":
            assert row["attainment_points"] == 0.0
            assert row["g_gain"] in (0.0, None)


def test_gains_are_of_means_over_the_seeds() -> None:
    options = FOUND.options(policies=("fcfs", "sjf"), sizes=(6,), seeds=2, jobs=1)
    rows = [row for row in FOUND.run(options, quiet).rows if row["batch"] == 1]
    g = {
        name: [float(r["g"] or 0) for r in rows if r["policy"] == name] for name in ("fcfs", "sjf")
    }
    (gain,) = [r["g_gain"] for r in rows if r["policy"] == "sjf" and r["g_gain"] is not None]
    assert gain == pytest.approx(sum(g["sjf"]) / sum(g["fcfs"]) - 1.0)


def test_an_exhaustive_search_takes_part_where_it_is_possible() -> None:
    options = FOUND.options(
        policies=("annealing:search=exhaustive", "annealing:search=exact"), sizes=(6, 8, 10),
        seeds=1, jobs=1,
    )  # fmt: skip
    rows = FOUND.run(options, quiet).rows
    sizes = {(r["batch"], r["requests"]) for r in rows if "exhaustive" in str(r["policy"])}
    assert sizes == {(1, 6), (1, 8), (2, 6), (4, 6)}
    by_name = {(r["batch"], r["requests"], r["policy"]): r["g"] for r in rows}
    assert by_name[1, 6, "annealing:search=exhaustive"] == by_name[1, 6, "annealing:search=exact"]
