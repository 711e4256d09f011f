"""Robots' plans with the help of a cloud."""

from __future__ import annotations

from test.experiments.catalog.pice.short import short


def test_each_way_has_a_row_and_help_begins_no_later_than_the_edge_alone() -> None:
    made = short("pice-plans", minutes=None, rates=(0.5,))
    by = {row["policy"]: row for row in made.rows}
    assert len(by) == 6
    assert {row["per_min"] for row in made.rows} == {30.0}
    late_s = float(str(by["help"]["response_s"])) - float(str(by["edge-only"]["response_s"]))
    assert late_s < 0.01, "a step of the edge may have more rows"
    assert by["edge-only"]["cloud_tokens"] == 0.0
    assert float(str(by["help"]["cloud_tokens"])) > 0.0
