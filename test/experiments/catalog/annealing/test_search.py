"""`annealing-search` on few instances."""

from __future__ import annotations

import pytest

from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment

FOUND = experiment("annealing-search")
EXACT, EXHAUSTIVE = "annealing:search=exact", "annealing:search=exhaustive"
WALK = "annealing:accept=metropolis:best=off:reset=on"


def quiet(done: int, total: int) -> None: ...


def test_shares_are_of_the_exact_optimum() -> None:
    options = FOUND.options(
        policies=("annealing", "annealing:reset=on", WALK, EXACT, EXHAUSTIVE), sizes=(6,), seeds=1,
        jobs=1,
    )  # fmt: skip
    made = FOUND.run(options, quiet)
    rows = {(row["batch"], row["policy"]): row for row in made.rows}
    for batch in (1, 2, 4):
        for policy in (EXACT, EXHAUSTIVE):
            assert rows[batch, policy]["worst_share"] == pytest.approx(1.0)
            assert rows[batch, policy]["share_optimal"] == 1.0
        evaluations = [rows[batch, one]["evaluations"] for one in (EXACT, EXHAUSTIVE)]
        assert float(evaluations[0] or 0) < float(evaluations[1] or 0)
    assert rows[1, EXHAUSTIVE]["evaluations"] == 720
    shares = [float(rows[1, one]["share_of_best"] or 0) for one in (WALK, "annealing")]
    assert shares[0] < shares[1] <= 1.0
    for row in made.rows:
        assert row["worst_share"] <= row["low_share"] <= row["median_share"] <= 1.0 + 1e-9  # type: ignore[operator]


def test_without_an_optimum_the_gain_over_the_order_of_arrival_is_left() -> None:
    options = FOUND.options(policies=("annealing", EXACT), sizes=(20,), seeds=1, jobs=1)
    (row,) = FOUND.run(options, quiet).rows
    assert row["policy"] == "annealing"
    assert row["share_of_best"] is None
    assert float(row["g_gain"] or 0) > 0.0


def test_branch_and_bound_proves_what_the_exact_search_finds_and_says_its_nodes() -> None:
    options = FOUND.options(
        policies=("annealing:search=branch", "annealing:reset=on", EXACT), sizes=(10,), seeds=1,
        jobs=1,
    )  # fmt: skip
    rows = {row["policy"]: row for row in FOUND.run(options, quiet).rows}
    branched, annealed = rows["annealing:search=branch"], rows["annealing:reset=on"]
    assert branched["share_of_best"] == pytest.approx(1.0)
    assert branched["proven"] == rows[EXACT]["proven"] == 1.0
    assert annealed["proven"] < 1.0  # type: ignore[operator]
    assert annealed["nodes"] is None
    assert 0 < branched["nodes"] < rows[EXACT]["evaluations"]  # type: ignore[operator]
    assert 0.0 < branched["g_gain_on_start"] <= branched["most_gain_on_start"]  # type: ignore[operator]


@pytest.mark.parametrize(("policy", "size"), [(EXHAUSTIVE, 8), (EXACT, 10)])
def test_a_search_takes_more_requests_than_in_a_server(policy: str, size: int) -> None:
    options = FOUND.options(policies=(policy,), sizes=(size,), seeds=1, jobs=1)
    row = next(one for one in FOUND.run(options, quiet).rows if one["batch"] == 1)
    assert row["share_optimal"] == 1.0


def test_a_policy_without_a_search_is_refused() -> None:
    with pytest.raises(ExperimentError, match="fcfs has no search: name annealing"):
        FOUND.run(FOUND.options(policies=("fcfs",)), quiet)
