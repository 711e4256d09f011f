"""Equal and unlike servers, one of which dies, by rule."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import pytest

from test.experiments.bursts import SIZE, bursts_file
from timely_llm.experiments.catalog.servers.mixed import (
    COMPARED,
    EQUAL,
    KV_TOKENS,
    PROFILES_OF,
    UNLIKE,
)
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from timely_llm.experiments.sources import SKIP
from timely_llm.experiments.virtual.crowd import servers_of
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render


def run(**options: object) -> RunDocument:
    found = experiment("servers-mixed")
    given = {"loads": (8,), "minutes": 0.6, "seeds": 1, "jobs": 1, **options}
    return found.run(found.options(**given), lambda done, total: None)


AS_GOOD = 0.97
"""Share of a rule's utility from which on another one is as good: a run has one seed."""


@cache
def worth(rule: str) -> dict[tuple[RowValue, RowValue, RowValue], float]:
    """Return the utility by a rule, by the kind of servers, whether one dies, and moves."""
    rows = run(rates=(2.0,), dispatchers=(rule,)).rows
    assert all(row["share_finished"] == row["share_answered"] == 1.0 for row in rows)
    return {(row["servers"], row["dies"], row["moves"]): float(str(row["utility"])) for row in rows}


@pytest.mark.extended
@pytest.mark.timeout(600)  # the first one plays two rules
@pytest.mark.parametrize(
    ("rule", "gain"),
    [("round-robin", 1.05), ("least-outstanding", 1.0), ("two-choices", 1.0),
     ("largest-memory", 1.0)],
)  # fmt: skip
def test_the_default_rule_is_worth_most_and_with_moves_at_least_as_much(
    rule: str, gain: float
) -> None:
    ours, others = worth("most-worth"), worth(rule)
    assert others.keys() == set(product((EQUAL, UNLIKE), (False, True), (False, True)))
    for (servers, dies, moves), utility in others.items():
        alone = servers == UNLIKE and not moves
        assert ours[servers, dies, moves] >= (gain if alone else AS_GOOD) * utility


def is_plain(row: Row) -> bool:
    return row["dispatcher"] == "round-robin" and not row["moves"]


def test_each_rule_runs_without_moves_and_with_them() -> None:
    rules = ("round-robin", "most-worth", "most-worth+hedge")
    made = run(rates=(0.0,), dispatchers=rules, loads=(1,), minutes=0.2)
    unlike = [row for row in made.rows if row["servers"] == UNLIKE and not row["dies"]]
    assert [(row["moves"], row["dispatcher"]) for row in unlike] == [
        (False, "round-robin"), (False, "most-worth"),
        (True, "round-robin"), (True, "most-worth"), (True, "most-worth+hedge"),
    ]  # fmt: skip
    for row in made.rows:
        for other in COMPARED:
            ratios = row[f"utility_vs_{other}"], row[f"worth_vs_{other}"]
            assert row["dispatcher"] != other or ratios == (1.0, 1.0)
    plain = {(r["servers"], r["dies"], r["seed"]): r["worth"] for r in made.rows if is_plain(r)}
    for row in made.rows:
        worth = plain[row["servers"], row["dies"], row["seed"]]
        assert row["worth_vs_round-robin_moves=False"] == float(row["worth"] or 0) / float(
            worth or 0
        )


def test_unlike_servers_have_unlike_memory() -> None:
    servers = servers_of(PROFILES_OF[UNLIKE], 0.001, 0.2, kv_tokens=KV_TOKENS)
    kv = [one.settings.limits.kv_tokens for one in servers]
    assert kv == [KV_TOKENS[name] for name in PROFILES_OF[UNLIKE]]
    assert len(set(kv)) == len(kv)


def test_rules_stand_beside_the_baseline() -> None:
    made = run(rates=(2.0,), dispatchers=("round-robin", "most-worth"), loads=(1,), minutes=0.25)
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    assert set(made.measures) <= made.definitions.keys()
    assert "utility_vs_round-robin" in made.measures
    for row in made.rows:
        parts = [float(row[name] or 0.0) for name in ("earned_utility", "objective")]
        assert row["worth"] == pytest.approx(sum(parts))
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
