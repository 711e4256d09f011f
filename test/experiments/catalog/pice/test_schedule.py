"""Schedulers of sketches, over all questions and by category."""

from __future__ import annotations

from test.experiments.catalog.pice.short import short


def test_each_category_has_a_row_and_a_net_win_rate_over_the_static_scheduler() -> None:
    made = short("pice-schedule", policies=("cloud-only", "pice-static"), minutes=0.5)
    by = {(row["category"], row["policy"]): row for row in made.rows}
    assert by["all", "pice-static"]["net_win_rate"] == 0.0
    assert by["all", "cloud-only"]["net_win_rate"] == by["all", "pice-static"]["sketched"]
    assert len(by) == 2 * 11
    counts = [int(str(row["count"])) for key, row in by.items() if key[1] == "cloud-only"]
    assert sum(counts) == 2 * max(counts) == 2 * 15
