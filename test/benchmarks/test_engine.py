"""The benchmark measures something; how fast the machine is, no test may ask."""

from __future__ import annotations

import pytest

from timely_llm.benchmarks.engine import rows
from timely_llm.resources import resource


def test_a_row_for_each_batch() -> None:
    model = resource("models/tiny_planner")
    found = rows(
        model, (1, 3), devices=["cpu"], prompt_tokens=8, pinned_tokens=5, steps=4, repetitions=2
    )
    assert [(row["device"], row["batch"]) for row in found] == [("cpu", 1), ("cpu", 3)]
    for row in found:
        assert row["step_ms"] > 0
        assert row["times_as_fast"] == pytest.approx(row["generate_step_ms"] / row["step_ms"])
