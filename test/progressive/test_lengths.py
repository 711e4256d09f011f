"""Levels of sketch length by Eq. 2, with the times of the paper's tables."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.core.errors import ConfigurationError
from timely_llm.progressive.lengths import SecondsOf, SketchLevels, SketchTimes

ALONE_S, LOADED_S = 1 / 18.82, 0.147
"""Seconds of a token of Llama 3 70B: Table I, and 20 rows at 16.33 queries a minute (Table III)."""
QWEN_1_5B_S, QWEN_7B_S = 0.0226, 0.0718
"""Seconds of a token on an Orin, from Table III."""


def linear(token_s: float) -> SecondsOf:
    return lambda tokens: token_s * tokens


def times(cloud_s: float, edge_s: float, queued_s: float = 0.0) -> SketchTimes:
    return SketchTimes(linear(cloud_s), lambda tokens: 0.02, linear(edge_s), queued_s, edges=4)


def test_the_left_side_of_the_equation_adds_sketch_transfer_expansion_and_waiting() -> None:
    made = SketchTimes(linear(0.1), lambda tokens: 0.5, linear(0.05), 80.0, edges=4, parallel=2)
    assert made.total_s(200, 500) == pytest.approx(20.0 + 0.5 + 25.0 / 2 + 80.0 / 8)
    assert made.allow(200, 500)
    assert not made.allow(290, 500)


def test_with_the_latency_of_an_idle_cloud_only_the_smallest_model_is_quick_enough() -> None:
    levels = SketchLevels(margin_tokens=0)
    assert levels.choose(500, times(ALONE_S, QWEN_1_5B_S)) == 200  # 10.6 + 11.3 <= 26.6 s
    assert levels.choose(500, times(ALONE_S, QWEN_7B_S)) == 0


def test_with_the_latency_of_a_loaded_cloud_a_larger_model_is_quick_enough_too() -> None:
    levels = SketchLevels(margin_tokens=0)
    assert levels.choose(500, times(LOADED_S, QWEN_7B_S)) == 200  # 29.4 + 35.9 <= 73.5 s
    assert levels.choose(500, times(LOADED_S, QWEN_7B_S, queued_s=40.0)) == 0


def test_a_more_capable_model_gets_a_shorter_sketch() -> None:
    chosen = [SketchLevels().choose(500, times(LOADED_S, QWEN_7B_S), able) for able in (0.0, 1.0)]
    assert chosen == [200, 100]


def test_a_sketch_that_may_be_too_long_by_its_margin_is_not_asked_for() -> None:
    just = SketchTimes(linear(0.1), lambda tokens: 0.0, linear(0.06))
    assert SketchLevels(margin_tokens=0).choose(500, just) == 200
    assert SketchLevels(margin_tokens=10).choose(500, just) == 0


def test_levels_divide_the_answer() -> None:
    assert SketchLevels().of(500) == (100, 200, 300, 400, 500)
    assert SketchLevels(count=3).of(10) == (4, 7, 10)


def test_impossible_options_are_refused() -> None:
    for count, least, capable in ((0, 0.4, 0.2), (5, 1.5, 0.2), (5, 0.4, 0.5)):
        with pytest.raises(ConfigurationError, match="count must be at least 1"):
            SketchLevels(count, least, capable)
    with pytest.raises(ConfigurationError, match="at least one edge"):
        SketchTimes(linear(1), linear(0), linear(1), edges=0)


@examples(60)
@given(
    st.floats(1, 4000),
    st.floats(0.001, 1),
    st.floats(0.001, 1),
    st.floats(0, 1000),
    st.floats(0, 1),
)
def test_a_chosen_sketch_is_a_level_and_meets_the_equation(
    tokens: float, cloud_s: float, edge_s: float, queued_s: float, ability: float
) -> None:
    levels, now = SketchLevels(), times(cloud_s, edge_s, queued_s)
    found = levels.choose(tokens, now, ability)
    assert found == 0 or (found in levels.of(tokens) and now.allow(found, tokens))
    assert found <= math.ceil(tokens)
