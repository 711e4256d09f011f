"""Predicted lengths of answers: learned from those that ended."""

from __future__ import annotations

from random import Random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.builders import stream
from timely_llm.core.generation import State, StreamGeneration
from timely_llm.policies.annealing.lengths import Gaussian, LearnedLengths, LengthModel
from timely_llm.policies.lengths import task_type


def asked(key: str, tokens: int = 0, bound: int = 500) -> StreamGeneration:
    made = stream(key, tokens=tokens)
    made.max_tokens = bound
    return made


def learned(model: LengthModel, *tokens: int) -> LearnedLengths:
    lengths = LearnedLengths(model, Random(0))
    for each in tokens:
        lengths.observe(task_type(asked("seen").request), each)
    return lengths


@given(st.lists(st.integers(1, 4096), min_size=2, max_size=60))
@examples(60)
def test_mean_and_deviation_are_those_of_all_lengths(tokens: list[int]) -> None:
    gaussian = Gaussian()
    for each in tokens:
        gaussian.observe(each)
    assert gaussian.mean == pytest.approx(fmean(tokens))
    assert gaussian.deviation == pytest.approx(stdev(tokens), abs=1e-6)


@pytest.mark.parametrize("model", LengthModel)
def test_until_two_lengths_are_known_the_declared_most_tokens_count(model: LengthModel) -> None:
    assert learned(model, 40).expected(asked("new")) == 500
    assert learned(model, 40, 40).expected(asked("new")) == 40


def test_the_gaussian_is_drawn_anew_for_each_request_and_bounded() -> None:
    lengths = learned(LengthModel.GAUSSIAN, *range(100, 300, 10))
    drawn = [lengths.expected(asked("new")) for _ in range(400)]
    assert len(set(drawn)) > 50
    assert fmean(drawn) == pytest.approx(195, abs=10)
    assert {lengths.expected(asked("new", bound=5)) for _ in range(20)} == {5}


def test_the_quantile_is_the_same_each_time() -> None:
    lengths = learned(LengthModel.QUANTILE, 10, 20, 300)
    assert [lengths.expected(asked("new")) for _ in range(5)] == [20] * 5


def test_an_answer_is_learned_once_when_it_has_ended() -> None:
    lengths = LearnedLengths(LengthModel.QUANTILE, Random(0))
    for key in "ab":
        one = asked(key, tokens=30)
        lengths.watch([one])
        lengths.watch([])  # not in the pool while a step is in flight
        assert lengths.expected(asked("new")) == 500
        one.state = State.ENDED
        lengths.watch([])
        lengths.watch([])
    assert lengths.expected(asked("new")) == 30


def test_the_number_of_types_is_bounded() -> None:
    lengths = LearnedLengths(LengthModel.GAUSSIAN, Random(0))
    for number in range(1000):
        lengths.observe(number, 10)
    assert len(lengths._gaussians) == 64
