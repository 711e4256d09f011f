"""Six cloud models by method."""

from __future__ import annotations

import pytest

from test.experiments.catalog.pice.short import short
from timely_llm.experiments.contract import ExperimentError


def test_sketches_are_ahead_of_pice_and_pice_of_the_cloud_in_latency() -> None:
    made = short(
        "pice-throughput", models=("llama3-70b",), policies=("cloud-only", "pice", "sketches"),
        minutes=1.0,
    )  # fmt: skip
    by = {row["policy"]: row for row in made.rows}
    late = {name: row["latency_s"] for name, row in by.items()}
    assert late["sketches"] < 0.62 * late["cloud-only"]  # type: ignore[operator]
    assert late["sketches"] < late["pice"] < late["cloud-only"]  # type: ignore[operator]
    assert by["cloud-only"]["throughput_vs_cloud"] == 1.0


def test_the_papers_table_has_a_row_for_each_cell_with_numbers() -> None:
    made = short("pice-throughput", models=("qwen2.5-1.5b",), policies=("cloud-only",))
    rows = {(row["model"], row["policy"]): row for row in made.papers[0].rows}
    assert len(rows) == 6 * 4 - 3  # no edge holds the three largest models
    best = rows["llama3-70b", "pice"]
    assert best["throughput_vs_cloud"] == pytest.approx(1.59, abs=0.005)
    assert best["latency_vs_cloud"] == pytest.approx(-0.38, abs=0.005)


def test_an_unknown_model_is_refused_in_one_sentence() -> None:
    with pytest.raises(ExperimentError, match=r"unknown cloud model 'gpt': choose one of qwen2\.5"):
        short("pice-throughput", models=("gpt",))
