"""Rows that expand a sketch."""

from __future__ import annotations

import pytest

from test.experiments.catalog.pice.short import short
from timely_llm.experiments.catalog.pice.parallel import ParallelCase, score
from timely_llm.experiments.contract import ExperimentError


def test_a_listener_needs_one_row_and_whole_answers_in_10_s_more() -> None:
    rows = {
        rule: score(ParallelCase("qwen2.5-7b", 1, 120, rule, 0))
        for rule in ("one", "all", "pairs", "just-in-time", "in-10-s")
    }
    assert rows["just-in-time"]["rows"] == rows["one"]["rows"] == 1
    assert rows["just-in-time"]["stalled_s"] == 0.0
    assert 1 < rows["in-10-s"]["rows"] < rows["all"]["rows"] == 10
    assert float(str(rows["in-10-s"]["latency_s"])) < 10.5
    assert rows["all"]["latency_s"] < rows["in-10-s"]["latency_s"] < rows["one"]["latency_s"]
    assert rows["one"]["kv_tokens"] < rows["in-10-s"]["kv_tokens"] < rows["all"]["kv_tokens"]


def test_each_setting_has_a_row() -> None:
    made = short("pice-parallel", policies=("one",), sizes=(2,), minutes=None)
    assert len(made.rows) == 2 * 5


def test_an_unknown_rule_is_refused_in_one_sentence() -> None:
    with pytest.raises(ExperimentError, match="unknown rule 'many': choose one of one, all"):
        short("pice-parallel", policies=("many",), minutes=None)
