"""The latency predictor of Huang et al. 2025, with the coefficients of Table 2."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.policies.annealing.latency import V100X2_QWEN25_7B as TABLE_2
from timely_llm.policies.annealing.latency import LatencyPredictor
from timely_llm.policies.step_time import StepTime

TOKENS = st.integers(1, 2000)


def test_a_prompt_takes_the_seconds_of_equation_14() -> None:
    ms = 0.1 * 2 * 500 + 5.7 * 2 + 0.01 * 500 + 43.67
    assert TABLE_2.prefill_s(2, 500) == pytest.approx(1e-3 * ms)


def test_a_token_takes_the_seconds_of_equation_15() -> None:
    ms = 0.0002 * 4 * 1000 + 0.275 * 4 + 0.00088 * 1000 + 15.85
    assert TABLE_2.decode.seconds(4, 1000) == pytest.approx(1e-3 * ms)


@given(st.integers(1, 32), TOKENS, st.integers(0, 400))
@examples(60)
def test_the_closed_form_of_equation_16_is_its_sum(batch: int, prompt: int, output: int) -> None:
    summed = math.fsum(TABLE_2.decode.seconds(batch, prompt + k) for k in range(1, output + 1))
    assert TABLE_2.decode_s(batch, prompt, output) == pytest.approx(summed)


def test_a_request_is_its_prompt_and_its_tokens() -> None:
    prefill_s, decode_s = TABLE_2.prefill_s(1, 300), TABLE_2.decode_s(1, 300, 180)
    assert TABLE_2.exec_s(1, 300, 180) == pytest.approx(prefill_s + decode_s)
    assert TABLE_2.tpot_s(1, 300, 180) == pytest.approx(decode_s / 180)
    assert TABLE_2.tpot_s(1, 300, 0) == 0.0


def test_code_of_about_180_tokens_takes_the_three_seconds_of_the_paper() -> None:
    assert TABLE_2.exec_s(1, 100, 180) == pytest.approx(3.0, abs=0.1)


def test_the_50_ms_of_a_token_never_bind_in_batches_of_up_to_four() -> None:
    assert TABLE_2.tpot_s(4, 2000, 1) < 0.021


@given(st.integers(1, 32), TOKENS)
@examples(60)
def test_a_decode_step_is_as_the_step_time_model_predicts(batch: int, context: int) -> None:
    step_time = StepTime(0.02, 0.001, 0.0001, 1e-6)
    predictor = LatencyPredictor.of_step(step_time.coefficients)
    expected = step_time.predict_s(batch, 0, batch * context)
    assert predictor.decode.seconds(batch, context) == pytest.approx(expected)
    prompts_s = step_time.predict_s(0, batch * context)
    assert predictor.prefill_s(batch, context) == pytest.approx(prompts_s)
