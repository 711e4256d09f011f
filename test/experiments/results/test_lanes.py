"""Rows of runs with plans, with conversations, or with both, and experiments on such traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.experiments.test_sweep import DUMMY, quiet
from test.experiments.workloads import job
from timely_llm.experiments.contract import ExperimentError, WorkloadOptions
from timely_llm.experiments.results.lanes import (
    TALK_COLUMNS,
    TALK_DEFINITIONS,
    TALK_MEASURES,
    run_row,
)
from timely_llm.experiments.results.metrics import row
from timely_llm.experiments.results.talks import DEFINITIONS, talk_row
from timely_llm.experiments.sweep import document
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.fcfs import Stream
from timely_llm.traces.files import write_trace
from timely_llm.traces.model import Conversation, Trace

JOBS = tuple(job(f"j{i}", i / 2) for i in range(12))
TALKS = tuple(Conversation(f"t{i}", i / 3, "ann", 20, 10, tpot_s=0.1) for i in range(6))


def test_every_column_of_people_has_a_name_beside_those_of_robots() -> None:
    run = simulate(Trace("both", "", JOBS, TALKS), Stream(), SimulationSettings(skip=0))
    both, people = run_row(run, policy="stream"), talk_row(run.conversations)
    assert (both["requests"], both["conversations"]) == (12, 6)
    assert {new: both[new] for new in TALK_COLUMNS.values()} == pytest.approx(
        {new: people[old] for old, new in TALK_COLUMNS.items()}, nan_ok=True
    )
    of_plans = row(run, policy="stream")
    assert {name: both[name] for name in of_plans} == of_plans
    assert set(TALK_COLUMNS) <= people.keys() & DEFINITIONS.keys()
    assert set(TALK_MEASURES) <= set(TALK_DEFINITIONS) == both.keys() - of_plans.keys()


def test_without_people_no_column_is_about_them() -> None:
    run = simulate(Trace("robots", "", JOBS), Stream(), SimulationSettings(skip=0))
    assert run_row(run, load=1) == row(run, load=1)


@pytest.mark.parametrize("jobs", [JOBS, ()])
def test_a_users_trace_brings_its_conversations(tmp_path: Path, jobs: tuple[()]) -> None:
    file = tmp_path / "both.jsonl"
    write_trace(Trace("both", "", jobs, TALKS), file)
    options = WorkloadOptions(policies=("stream",), seeds=1, trace=file, jobs=1)
    made = DUMMY.run(options, quiet)
    (one,) = made.rows
    assert (one["requests"], one["conversations"]) == (max(len(jobs) - 10, 0), 6)
    assert (one["attainment"], one["share_answered"]) == (1.0, 1.0)
    assert made.measures[-1] == "share_answered"
    assert made.definitions["conversations"] == DEFINITIONS["requests"]
    assert {span.agent for span in made.timelines[0].spans} >= {"ann"}
    assert not made.notes


def test_an_experiment_about_plans_needs_plans() -> None:
    with pytest.raises(ExperimentError, match="dummy is about plans: the trace has no jobs"):
        document(DUMMY, WorkloadOptions(), ())
