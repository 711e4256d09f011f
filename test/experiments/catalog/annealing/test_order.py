"""`annealing-order` on few requests."""

from __future__ import annotations

from statistics import fmean

import pytest

from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.virtual.annealing_testbeds import TESTBEDS

FOUND = experiment("annealing-order")


def quiet(done: int, total: int) -> None: ...


@pytest.mark.extended
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
            assert row["g_gain"] == 0.0


def test_gains_are_of_means_over_the_seeds() -> None:
    options = FOUND.options(policies=("fcfs", "sjf"), sizes=(6,), seeds=2, jobs=1)
    rows = [row for row in FOUND.run(options, quiet).rows if row["batch"] == 1]
    g = {
        name: [float(r["g"] or 0) for r in rows if r["policy"] == name] for name in ("fcfs", "sjf")
    }
    gain = fmean(float(r["g_gain"] or 0) for r in rows if r["policy"] == "sjf")
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


def test_figures_have_rows_of_their_own_beside_their_baseline() -> None:
    options = FOUND.options(policies=("fcfs", "sjf"), sizes=(8,), figures=(16, 18), seeds=2, jobs=1)
    made = FOUND.run(options, quiet)
    assert made.keys[0] == "figure"
    assert {row["figure"] for row in made.rows} == {16, 18}
    assert len(made.rows) == 2 * 3 * 2 * 2
    for row in made.rows:
        same = [
            other
            for other in made.rows
            if all(other[key] == row[key] for key in ("figure", "batch", "seed"))
            and other["policy"] == "fcfs"
        ]
        (base,) = [float(other["latency_s"] or 0) for other in same]
        assert row["latency_change"] == pytest.approx(float(row["latency_s"] or 0) / base - 1.0)
    latency = [[r["latency_s"] for r in made.rows if r["figure"] == one] for one in (16, 18)]
    assert all(float(fast or 0) < float(slow or 0) for fast, slow in zip(*latency, strict=True))
    notes = " ".join(made.notes)
    assert TESTBEDS[16].profile.source in notes
    assert TESTBEDS[18].profile.source in notes


def test_a_figure_without_a_testbed_or_beside_a_profile_is_refused() -> None:
    with pytest.raises(ExperimentError, match="Figure 7 has no testbed of its own: only 12 to 18"):
        FOUND.options(figures=(12, 7))
    with pytest.raises(ExperimentError, match="leave out the profile"):
        FOUND.options(figures=(12,), profile="millisecond")


def test_requests_with_a_rate_come_at_poisson_times() -> None:
    options = FOUND.options(policies=("fcfs",), sizes=(40,), rates=(0.2, 5.0), seeds=2, jobs=1)
    made = FOUND.run(options, quiet)
    assert made.keys == ("rate", "batch", "requests", "policy")
    assert made.papers == (), "the paper's requests come at once"
    assert "at Poisson times" in str(made.setup["workload"])
    latency = {
        rate: fmean(float(row["latency_s"] or 0) for row in made.rows if row["rate"] == rate)
        for rate in (0.2, 5.0)
    }
    assert latency[0.2] < latency[5.0]
    assert FOUND.options(sizes=(4,)).keys == ("batch", "requests", "policy")


def test_a_rate_of_no_requests_is_refused() -> None:
    with pytest.raises(ExperimentError, match="rates must be above 0 requests a second"):
        FOUND.options(rates=(1.0, 0.0))
