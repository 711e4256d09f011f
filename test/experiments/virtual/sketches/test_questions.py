"""Questions of known length, and how their sketches divide."""

from __future__ import annotations

from statistics import fmean

from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.experiments.virtual.sketches.questions import LENGTHS, BenchQuestion, questions


def test_answers_have_500_tokens_in_the_mean_and_each_category_comes_as_often() -> None:
    asked = [one for seed in range(10) for one in questions(30.0, seed)]
    assert abs(fmean(LENGTHS.values()) - 500.0) < 1e-9
    assert abs(fmean(one.tokens for one in asked) - 500.0) < 25.0
    assert {one.category for one in asked[:80]} == set(LENGTHS)


def test_they_come_at_the_rate_in_order_and_the_same_each_time() -> None:
    asked = questions(30.0, 3, 600)
    times = [one.at_s for one in asked]
    assert times == sorted(times)
    assert abs(times[-1] / 600 - 2.0) < 0.3
    assert asked == questions(30.0, 3, 600)


def test_a_model_that_underestimates_lengths_says_less() -> None:
    assert fmean(one.error for one in questions(30.0, 0, bias=0.5)) < 0.6


@examples(40)
@given(st.integers(1, 500), st.integers(20, 1000), st.integers(0, 99))
def test_parts_add_up_to_the_sketch_and_to_the_answer(sketch: int, tokens: int, seed: int) -> None:
    parts = BenchQuestion("q", "generic", 0.0, tokens, 1.0, seed).parts(sketch)
    assert sum(short for short, _ in parts) == sketch
    assert sum(whole for _, whole in parts) == max(tokens, len(parts))
    assert all(short >= 0 <= whole for short, whole in parts)
