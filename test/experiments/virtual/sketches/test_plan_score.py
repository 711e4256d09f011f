"""Ways to plans, and the row of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.virtual.sketches.plan_score import WAYS, PlanCase, measures
from timely_llm.experiments.virtual.sketches.recorded_plans import (
    recorded_plans,
    tokens_of,
    write_plans,
)


def case(way: str, per_min: float = 60.0) -> PlanCase:
    return PlanCase(way, per_min, 0, {}, tasks=30)


def test_an_oracle_routes_to_the_cloud_what_the_small_model_gets_wrong() -> None:
    for robot in case("routing").robots():
        plan = robot.asked.plan
        assert (robot.cloud_tokens > 0) == (plan.small != plan.right)
        assert robot.exact == (plan.right in (plan.small, plan.large))


def test_help_by_rules_asks_less_than_help() -> None:
    rows = {way: measures(case(way, 600.0).robots()) for way in ("help", "help:auto", "edge-only")}
    tokens = [rows[way]["cloud_tokens"] for way in ("help", "help:auto", "edge-only")]
    assert tokens[0] > tokens[1] >= tokens[2] == 0.0
    assert rows["edge-only"]["repaired"] == 0.0


def test_an_unknown_way_is_refused_in_one_sentence() -> None:
    with pytest.raises(ExperimentError, match="unknown method 'luck': choose one of edge-only"):
        case("luck").robots()
    assert "help" in WAYS


def test_recorded_plans_are_read_as_they_were_written(tmp_path: Path) -> None:
    plans = recorded_plans()
    assert {one.robot for one in plans} == {"drone", "arm"}
    write_plans(tmp_path / "plans.jsonl", plans[:3])
    assert recorded_plans(tmp_path / "plans.jsonl") == plans[:3]
    (tmp_path / "bad.jsonl").write_text('{"family": "move"}\n')
    with pytest.raises(ExperimentError, match="no recorded plan"):
        recorded_plans(tmp_path / "bad.jsonl")


def test_the_tokens_of_a_text_are_all_of_it() -> None:
    text = "1. go to the cat\nmf(50);?s('red cup'){->True;};"
    assert "".join(tokens_of(text)) == text
