"""Robots' plans with the help of a cloud."""

from __future__ import annotations

import pytest

from test.experiments.catalog.pice.short import short
from timely_llm.experiments.catalog.pice.plans import WAYS, PlanCase, measures
from timely_llm.experiments.contract import ExperimentError


def case(way: str, per_min: float = 60.0) -> PlanCase:
    return PlanCase(way, per_min, 0, {}, tasks=30)


def test_each_way_has_a_row_and_help_begins_no_later_than_the_edge_alone() -> None:
    made = short("pice-plans", minutes=None, rates=(0.5,))
    by = {row["policy"]: row for row in made.rows}
    assert len(by) == 6
    assert {row["per_min"] for row in made.rows} == {30.0}
    late_s = float(str(by["help"]["response_s"])) - float(str(by["edge-only"]["response_s"]))
    assert late_s < 0.01, "a step of the edge may have more rows"
    assert by["edge-only"]["cloud_tokens"] == 0.0
    assert float(str(by["help"]["cloud_tokens"])) > 0.0


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
