"""Equal and unlike servers, one of which dies, by rule."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from test.experiments.bursts import SIZE, bursts_file
from timely_llm.experiments.catalog.servers.mixed import EQUAL, UNLIKE
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import RowValue, RunDocument
from timely_llm.experiments.sources import SKIP
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render


def run(**options: object) -> RunDocument:
    found = experiment("servers-mixed")
    given = {"loads": (8,), "minutes": 0.6, "seeds": 1, "jobs": 1, **options}
    return found.run(found.options(**given), lambda done, total: None)


@cache
def worth(rule: str) -> dict[tuple[RowValue, RowValue], float]:
    """Return the utility by a rule, by the kind of servers and by whether one dies."""
    rows = run(rates=(2.0,), dispatchers=(rule,)).rows
    assert all(row["share_finished"] == row["share_answered"] == 1.0 for row in rows)
    return {(row["servers"], row["dies"]): float(str(row["utility"])) for row in rows}


@pytest.mark.extended
@pytest.mark.timeout(400)  # the first one plays two rules
@pytest.mark.parametrize(
    ("rule", "gain"),
    [("round-robin", 1.05), ("least-outstanding", 1.0), ("two-choices", 1.0),
     ("largest-memory", 1.0)],
)  # fmt: skip
def test_the_default_rule_is_worth_most_in_every_cell(rule: str, gain: float) -> None:
    ours, others = worth("most-worth"), worth(rule)
    assert others.keys() == {(kind, dies) for kind in (EQUAL, UNLIKE) for dies in (False, True)}
    for (servers, dies), utility in others.items():
        assert ours[servers, dies] >= (gain if servers == UNLIKE else 1.0) * utility


def test_rules_stand_beside_the_baseline() -> None:
    made = run(rates=(2.0,), dispatchers=("round-robin", "most-worth"), loads=(1,))
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    assert set(made.measures) <= made.definitions.keys()
    assert "utility_vs_round-robin" in made.measures
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


@pytest.mark.extended
def test_seeds_begin_with_the_first() -> None:
    given = {"rates": (2.0,), "dispatchers": ("two-choices",), "loads": (1,)}
    both, second = run(**given, seeds=2), run(**given, first_seed=1)
    assert list(second.rows) == [row for row in both.rows if row["seed"] == 1]
