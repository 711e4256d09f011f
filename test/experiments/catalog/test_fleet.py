"""Fleets of several sizes at one server, and at servers of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.experiments.bursts import bursts_file
from timely_llm.experiments.catalog.fleet import DEDICATED
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render
from timely_llm.traces.files import write_trace
from timely_llm.traces.model import Conversation, Trace


def run(**options: object) -> RunDocument:
    found = experiment("fleet")
    given = {"robots": (2, 6), "seconds": 15.0, "seeds": 1, "jobs": 1, **options}
    return found.run(found.options(**given), lambda done, total: None)


def of(made: RunDocument, robots: int, policy: str) -> Row:
    (row,) = (row for row in made.rows if (row["robots"], row["policy"]) == (robots, policy))
    return row


def test_policies_are_measured_beside_dedicated_servers() -> None:
    made = run(policies=("stream", "deadline"))
    assert [(row["robots"], row["policy"]) for row in made.rows] == [
        (robots, policy) for robots in (2, 6) for policy in (DEDICATED, "stream", "deadline")
    ]
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    assert set(made.measures) <= made.definitions.keys()
    assert of(made, 6, DEDICATED)["servers"] == 6
    assert of(made, 6, "deadline")["servers"] == 1
    assert of(made, 6, "stream")["qualified_per_min_vs_stream"] == 1.0
    assert made == run(policies=("stream", "deadline")), "the same each time"
    assert "fleet" in render([LoadedRun.of(made)])


def test_one_robot_gets_the_same_from_a_server_of_its_own() -> None:
    made = run(policies=("stream",), robots=(1,))
    own, shared = of(made, 1, DEDICATED), of(made, 1, "stream")
    assert {k: v for k, v in own.items() if k != "policy"} == {
        k: v for k, v in shared.items() if k != "policy"
    }


def test_the_default_policy_earns_more_in_a_large_fleet_than_no_scheduler() -> None:
    made = run(policies=("stream", "deadline"), robots=(300,), seconds=30.0, first_seed=5)
    (earned, longest_s), (shared, _) = (
        [
            float(of(made, 300, policy)[name] or 0)
            for name in ("utility_per_min", "longest_response_s")
        ]
        for policy in ("deadline", "stream")
    )
    assert earned > shared
    assert longest_s < 4.0, "no robot waits for ever"


def test_without_the_baseline_there_is_no_column_of_it() -> None:
    made = run(policies=("deadline",), robots=(2,))
    assert "qualified_per_min_vs_stream" not in {*made.rows[0], *made.measures, *made.definitions}


def test_a_fleet_beyond_all_measure_is_refused() -> None:
    with pytest.raises(ExperimentError, match="a fleet of 2000 robots is too large: at most 1000"):
        run(robots=(2000,))


def test_robots_draw_the_jobs_of_a_trace(tmp_path: Path) -> None:
    file = bursts_file(tmp_path)
    made = run(policies=("stream",), robots=(2,), trace=file)
    assert made.setup["workload"] == "jobs of the trace small, drawn anew for each robot and seed"
    # Its tasks take 5 s to execute: with pauses and planning no robot asks more than three times.
    assert 0 < int(str(of(made, 2, "stream")["requests"])) <= 2 * 3
    talk = Conversation("a", 0.0, "person", 10, 10)
    write_trace(Trace("people", conversations=(talk,)), file)
    with pytest.raises(ExperimentError, match="fleet is about plans: the trace has no jobs"):
        run(trace=file)


def test_seeds_begin_with_the_first() -> None:
    both = run(policies=("stream",), robots=(2,), seeds=2)
    second = run(policies=("stream",), robots=(2,), first_seed=1)
    assert list(second.rows) == [row for row in both.rows if row["seed"] == 1]
    assert second.setup["seeds"] == "1 to 1"
