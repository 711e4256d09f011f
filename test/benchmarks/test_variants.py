"""The benchmark of two engines measures what they say; how fast, no test may ask."""

from __future__ import annotations

from timely_llm.benchmarks.variants import rows
from timely_llm.core.clock import VirtualClock
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.simulated import SimulatedEngine


def make() -> SimulatedEngine:
    return SimulatedEngine(
        step_time_profile("millisecond"), lambda key, prompt: "mf(50);tp();->True;", VirtualClock()
    )


def test_a_row_for_each_engine_and_batch() -> None:
    found = rows({"one": make, "other": make}, batches=(1, 3), groups=2)
    assert [(row["engine"], row["batch"]) for row in found] == [
        ("one", 1), ("other", 1), ("one", 3), ("other", 3),
    ]  # fmt: skip
    for row in found:
        assert row["tokens"] == row["steps"] * row["batch"] > 0
        assert row["step_ms"] > 0
        assert (row["guessed"], row["right"]) == (0, 0.0)
