"""Equal and unlike servers, one of which dies, by rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.experiments.bursts import SIZE, bursts_file
from timely_llm.experiments.catalog.servers.mixed import EQUAL, UNLIKE
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.sources import SKIP
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render


def run(**options: object) -> RunDocument:
    found = experiment("servers-mixed")
    given = {"loads": (8,), "minutes": 0.6, "seeds": 1, "jobs": 1, **options}
    return found.run(found.options(**given), lambda done, total: None)


def test_the_default_rule_is_worth_most_where_servers_are_unlike() -> None:
    made = run(rates=(2.0,), dispatchers=("round-robin", "least-outstanding", "most-worth"))
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    assert set(made.measures) <= made.definitions.keys()
    worth = {
        (r["servers"], r["dies"], r["dispatcher"]): float(str(r["utility"])) for r in made.rows
    }
    for servers in (EQUAL, UNLIKE):
        for dies in (False, True):
            ours = worth[servers, dies, "most-worth"]
            least = 1.05 if servers == UNLIKE else 1.0
            assert ours >= least * worth[servers, dies, "round-robin"]
            assert ours >= worth[servers, dies, "least-outstanding"]
    assert all(row["share_finished"] == row["share_answered"] == 1.0 for row in made.rows)
    assert "servers-mixed" in render([LoadedRun.of(made)])


def test_without_people_and_the_baseline_their_columns_are_missing() -> None:
    made = run(rates=(0.0,), dispatchers=("two-choices",), loads=(1,))
    assert "attainment" not in made.measures
    assert not [name for name in made.rows[0] if "_vs_" in name]


def test_a_trace_takes_the_place_of_groups_of_robots(tmp_path: Path) -> None:
    file = bursts_file(tmp_path)
    made = run(rates=(0.0,), dispatchers=("two-choices",), trace=file, loads=(), minutes=None)
    assert {row["load"] for row in made.rows} == {1}
    assert {row["requests"] for row in made.rows} == {4 * SIZE - SKIP}
    assert made.setup["workload"] == "small"
    with pytest.raises(ExperimentError, match="a trace has its own length: leave out minutes"):
        run(trace=file)


def test_seeds_begin_with_the_first() -> None:
    given = {"rates": (2.0,), "dispatchers": ("two-choices",), "loads": (1,)}
    both, second = run(**given, seeds=2), run(**given, first_seed=1)
    assert list(second.rows) == [row for row in both.rows if row["seed"] == 1]
