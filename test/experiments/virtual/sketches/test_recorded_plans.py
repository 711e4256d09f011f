"""Recorded plans are read as they were written, and their tokens are all of a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.virtual.sketches.recorded_plans import (
    recorded_plans,
    tokens_of,
    write_plans,
)


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
