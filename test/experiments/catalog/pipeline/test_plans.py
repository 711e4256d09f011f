"""Robots and people at stages."""

from __future__ import annotations

from pathlib import Path

from test.experiments.bursts import bursts_file
from timely_llm.experiments.registry import experiment
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render


def test_plans_and_conversations_are_served_at_two_and_four_stages(tmp_path: Path) -> None:
    found = experiment("pipeline-plans")
    options = found.options(
        trace=bursts_file(tmp_path), minutes=None, seeds=1, jobs=1, rates=(0.5,),
        policies=("stream", "deadline:micro-batches=cycle"),
    )  # fmt: skip
    made = found.run(options, lambda done, total: None)
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    assert [(row["pipeline"], row["policy"]) for row in made.rows] == [
        (pipeline, policy) for pipeline in options.pipelines for policy in options.policies
    ]
    assert all(row["share_served"] == row["share_answered"] == 1.0 for row in made.rows)
    assert any("micro-batches" in note for note in made.notes)
    assert "pipeline-plans" in render([LoadedRun.of(made)])


def test_a_pace_with_stages_keeps_its_own_links(tmp_path: Path) -> None:
    options = experiment("pipeline-plans").options(
        trace=bursts_file(tmp_path), minutes=None, seeds=1, jobs=1, rates=(0.0,),
        policies=("stream:micro-batches=cycle",), pipelines=("two-boxes",), bandwidths=(1.0, 1e5),
    )  # fmt: skip
    made = experiment("pipeline-plans").run(options, lambda done, total: None)
    slow, fast = made.rows
    assert slow["pipeline"] == "two-boxes" and slow["waiting_s"] == fast["waiting_s"]
    assert "`two-boxes`: Llama 3 8B on two boxes" in made.definitions["pipeline"]


def test_static_budgets_bound_the_steps_of_policies_without_a_rule(tmp_path: Path) -> None:
    options = experiment("pipeline-plans").options(
        trace=bursts_file(tmp_path), minutes=None, seeds=1, jobs=1, rates=(0.0,),
        policies=("stream", "stream:micro-batches=cycle"), pipelines=("boxes2-llama2-13b",),
        budgets=(2048, 32),
    )  # fmt: skip
    made = experiment("pipeline-plans").run(options, lambda done, total: None)
    assert [(row["budget"], row["policy"]) for row in made.rows] == [
        (2048, "stream"), (2048, "stream:micro-batches=cycle"), (32, "stream"),
    ]  # fmt: skip
    assert made.rows[0]["waiting_s"] != made.rows[-1]["waiting_s"]
    assert made.setup["most tokens of a step"] == "2048, 32"
