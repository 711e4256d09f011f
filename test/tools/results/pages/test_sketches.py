"""The page of Table III of Zhan et al. 2025: what the package promises of sketches."""

from __future__ import annotations

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[4] / "docs" / "results" / "pice_throughput.md"
MODELS = (
    "qwen2.5-72b", "llama3-70b", "qwen2.5-32b", "llama3-8b", "qwen2.5-7b", "qwen2.5-1.5b",
)  # fmt: skip


def rows() -> dict[tuple[str, str], dict[str, float]]:
    """Return the measured means by model and policy."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    names: list[str] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[:2] == ["model", "policy"]:
            names = cells
        elif names and len(cells) == len(names) and cells[0] in MODELS and "paper" not in cells[1]:
            means = {n: float(c.split(" ")[0]) for n, c in zip(names[2:], cells[2:], strict=True)}
            found[cells[0], cells[1]] = means
    return found


@pytest.mark.parametrize("model", MODELS)
def test_sketches_have_more_throughput_and_less_latency_than_pice(model: str) -> None:
    ours, theirs = rows()[model, "sketches"], rows()[model, "pice"]
    assert ours["throughput"] > theirs["throughput"]
    assert ours["latency (s)"] < theirs["latency (s)"]


@pytest.mark.parametrize("model", MODELS[:2])
def test_sketches_beat_a_large_cloud_as_the_paper_says(model: str) -> None:
    ours = rows()[model, "sketches"]
    assert ours["throughput vs cloud"] >= 1.5
    assert ours["latency vs cloud"] <= -0.43
