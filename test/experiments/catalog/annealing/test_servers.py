"""`annealing-servers` on one seed."""

from __future__ import annotations

from collections import Counter

import pytest

from timely_llm.core.errors import ConfigurationError
from timely_llm.experiments.catalog.annealing.servers import REQUESTS, copies
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.reported import HUANG_FIGURE_11
from timely_llm.experiments.virtual.annealing_workload import mixed

EXACT = "annealing:search=exact"


def run(name: str = "annealing-servers", **options: object) -> RunDocument:
    found = experiment(name)
    return found.run(found.options(**{"seeds": 1, "jobs": 1, **options}), lambda done, total: None)


def at(made: RunDocument, **setting: object) -> Row:
    (row,) = (row for row in made.rows if all(row[key] == setting[key] for key in setting))
    return row


def test_one_server_is_that_of_the_experiment_with_one_engine() -> None:
    policies = ("fcfs", "annealing")
    made = run(policies=policies, servers=(1,))
    alone = run("annealing-order", policies=policies, sizes=(REQUESTS,))
    for policy in policies:
        here = at(made, lengths="learned", dispatcher="largest-memory", policy=policy)
        there = at(alone, batch=1, policy=policy)
        for measure in ("g", "attainment", "latency_s"):
            assert here[measure] == pytest.approx(there[measure])
    assert {(row["lengths"], row["dispatcher"]) for row in made.rows} == {
        ("learned", "largest-memory"), ("learned", "most-worth"), ("known", "largest-memory"),
    }  # fmt: skip


def test_each_server_has_a_copy_of_each_request_and_searches_once() -> None:
    made = run(policies=("fcfs", EXACT), dispatchers=("largest-memory",), servers=(1, 2))
    one, two = (at(made, lengths="known", servers=count, policy=EXACT) for count in (1, 2))
    for measure in ("g", "attainment", "latency_s", "g_gain"):
        assert two[measure] == pytest.approx(one[measure])
    assert two["evaluations"] == 2 * int(one["evaluations"] or 0)
    assert float(two["search_ms"] or 0) > float(one["search_ms"] or 0) > 0.0
    assert all(float(row["assign_ms"] or 0) > 0.0 for row in made.rows)
    fcfs = at(made, lengths="known", servers=2, policy="fcfs")
    assert fcfs["search_ms"] is fcfs["evaluations"] is None
    assert fcfs["g_gain"] == 0.0
    assert float(two["g"] or 0) > float(fcfs["g"] or 0)
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    assert set(made.measures) <= made.definitions.keys()
    assert made.papers == (HUANG_FIGURE_11,)


def test_draws_of_lengths_differ_between_servers() -> None:
    made = run(policies=(EXACT,), dispatchers=("largest-memory",), servers=(1, 2))
    one, two = (at(made, lengths="learned", servers=count) for count in (1, 2))
    assert two["latency_s"] != one["latency_s"]


def test_copies_stand_one_behind_the_other() -> None:
    trace = mixed(REQUESTS, 0)
    made = copies(trace, 3).conversations
    assert len({talk.id for talk in made}) == 3 * REQUESTS
    assert [talk.output_tokens for talk in made[::3]] == [
        talk.output_tokens for talk in trace.conversations
    ]
    assert set(Counter(talk.id.split(".")[0] for talk in made).values()) == {3}


def test_an_unknown_rule_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigurationError, match="fastest"):
        run(dispatchers=("fastest",))
