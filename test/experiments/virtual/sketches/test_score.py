"""Rows of runs."""

from __future__ import annotations

import math

import pytest

from timely_llm.experiments.virtual.sketches.bench import ShownAnswer
from timely_llm.experiments.virtual.sketches.questions import BenchQuestion
from timely_llm.experiments.virtual.sketches.score import (
    DEFINITIONS,
    SketchCase,
    measures,
    score,
    stalled_s,
    versus,
)


def answer(at_s: float, end_s: float, *shown_s: float) -> ShownAnswer:
    made = ShownAnswer(BenchQuestion("q", "stem", at_s, len(shown_s), 1.0, 7))
    made.shown_s, made.end_s = list(shown_s), end_s
    return made


def test_a_listener_stalls_where_words_come_later_than_they_are_spoken() -> None:
    assert stalled_s(answer(0, 2, 1.0, 1.0, 1.0)) == 0.0
    assert stalled_s(answer(0, 2, 1.0, 1.1, 3.0)) == pytest.approx(3.0 - 1.5)
    assert math.isnan(stalled_s(answer(0, 1)))


def test_columns_are_means_over_answers() -> None:
    found = measures([answer(0.0, 30.0, 10.0), answer(10.0, 60.0, 40.0)])
    assert found["throughput"] == 2.0
    assert found["latency_s"] == 40.0
    assert found["first_words_s"] == 20.0
    assert found["rouge_1"] == 1.0


def test_a_case_has_all_columns_and_is_the_same_each_time() -> None:
    case = SketchCase("sketches", 0, {"policy": "sketches"}, minutes=0.1)
    row = score(case)
    assert set(DEFINITIONS) < set(row)
    assert row == score(case)


def test_methods_are_compared_with_the_same_questions() -> None:
    rows = [
        {"policy": name, "seed": seed, "throughput": fast, "latency_s": late}
        for name, seed, fast, late in (("a", 0, 1.0, 8.0), ("a", 1, 2.0, 4.0), ("b", 1, 3.0, 2.0))
    ]
    last = versus(rows, ("policy",), "a")[-1]
    assert (last["throughput_vs_cloud"], last["latency_vs_cloud"]) == (1.5, -0.5)
