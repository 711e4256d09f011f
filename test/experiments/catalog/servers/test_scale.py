"""n servers at n times the load, beside servers of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.experiments.bursts import SIZE, bursts_file
from timely_llm.experiments.catalog.servers.scale import COPIES, GROUPS
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.sources import SKIP
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render


def run(**options: object) -> RunDocument:
    found = experiment("servers-scale")
    given = {"servers": (1, 3), "minutes": 0.6, "seeds": 1, "jobs": 1, **options}
    return found.run(found.options(**given), lambda done, total: None)


def test_a_request_is_worth_as_much_at_two_servers() -> None:
    rows = run(servers=(1, 2), dispatchers=("most-worth",)).rows
    assert [(row["robots"], row["servers"]) for row in rows] == [
        (robots, servers) for robots in (COPIES, GROUPS) for servers in (1, 2)
    ]
    assert all(row["share_finished"] == 1.0 for row in rows)
    assert all(float(str(row["utility_vs_one"])) >= 0.97 for row in rows)


@pytest.mark.extended
def test_a_request_is_worth_as_much_at_more_servers() -> None:
    made = run()
    assert [(row["robots"], row["servers"]) for row in made.rows[::2]] == [
        (robots, servers) for robots in (COPIES, GROUPS) for servers in (1, 3)
    ]
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    assert set(made.measures) <= made.definitions.keys()
    for row in made.rows:
        assert row["share_finished"] == 1.0
        share = row["utility_vs_one"]
        assert isinstance(share, float)
        if row["servers"] == 1:
            assert share == 1.0
        elif row["dispatcher"] == "most-worth":
            assert share >= 0.97
    assert "servers-scale" in render([LoadedRun.of(made)])


def test_g_stands_beside_that_of_fcfs() -> None:
    made = run(servers=(1,), policies=("fcfs", "annealing"), dispatchers=("largest-memory",))
    assert "goodput_vs_fcfs" in made.measures and "goodput_vs_fcfs" in made.definitions
    for fcfs, annealing in zip(made.rows[::2], made.rows[1::2], strict=True):
        assert fcfs["goodput_vs_fcfs"] == 1.0
        ratio = float(str(annealing["goodput"])) / float(str(fcfs["goodput"]))
        assert annealing["goodput_vs_fcfs"] == ratio


def test_too_many_servers_are_refused() -> None:
    with pytest.raises(ExperimentError, match="65 servers are too many: at most 64"):
        run(servers=(65,))


def test_each_job_of_a_trace_is_asked_as_often_as_there_are_servers(tmp_path: Path) -> None:
    made = run(trace=bursts_file(tmp_path), minutes=None, dispatchers=("round-robin",))
    assert [(row["robots"], row["servers"]) for row in made.rows] == [(COPIES, 1), (COPIES, 3)]
    assert [row["requests"] for row in made.rows] == [n * (4 * SIZE - SKIP) for n in (1, 3)]


def test_seeds_begin_with_the_first() -> None:
    given = {"servers": (2,), "dispatchers": ("round-robin",)}
    both, second = run(**given, seeds=2), run(**given, first_seed=1)
    assert list(second.rows) == [row for row in both.rows if row["seed"] == 1]
