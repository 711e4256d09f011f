"""Least squares over measured steps, as the profiler of Huang et al. 2025 fits them."""

from __future__ import annotations

import dataclasses
import math
import random
from itertools import product

import pytest

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.latency import V100X2_QWEN25_7B as TABLE_2
from timely_llm.policies.annealing.latency import TimedStep, fit_latency

ROWS, LENGTHS = (1, 2, 4, 8, 16, 32), (100, 250, 500, 1000, 2000)


def measured(noise: float = 0.0, seed: int = 0) -> list[TimedStep]:
    """Return a prefill and a decode step of each batch size and length of Table 2's engine."""
    draw, steps = random.Random(seed), []
    for rows, length in product(ROWS, LENGTHS):
        tokens = rows * length
        for kind, (prompts, context) in zip(
            (TABLE_2.prefill, TABLE_2.decode), ((tokens, 0), (0, tokens)), strict=True
        ):
            seconds = kind.seconds(rows, length) * (1.0 + draw.gauss(0.0, noise))
            steps.append(TimedStep(rows, prompts, context, seconds))
    return steps


def test_the_coefficients_of_table_2_are_found_again() -> None:
    found = fit_latency(measured())
    assert dataclasses.astuple(found.prefill) == pytest.approx(dataclasses.astuple(TABLE_2.prefill))
    assert dataclasses.astuple(found.decode) == pytest.approx(
        dataclasses.astuple(TABLE_2.decode), rel=1e-5
    )


def test_noise_of_two_percent_moves_a_request_by_less_than_two_percent() -> None:
    found = fit_latency(measured(0.02))
    assert found.exec_s(4, 400, 200) == pytest.approx(TABLE_2.exec_s(4, 400, 200), rel=0.02)


def test_a_step_of_prompts_and_decoding_rows_is_left_out() -> None:
    steps = measured()
    assert fit_latency([*steps, TimedStep(2, 500, 500, 99.0)]) == fit_latency(steps)


@pytest.mark.parametrize("left_out", ["rows", "lengths", "decode"])
def test_steps_that_do_not_determine_the_coefficients_are_refused(left_out: str) -> None:
    some = [
        step
        for step in measured()
        if {
            "rows": step.rows == 1,
            "lengths": step.prompt_tokens + step.context_tokens == 100 * step.rows,
            "decode": bool(step.prompt_tokens),
        }[left_out]
    ]
    phase = "decode" if left_out == "decode" else "prefill"
    with pytest.raises(ConfigurationError, match=f"do not determine the time of {phase}"):
        fit_latency(some)


@pytest.mark.parametrize(
    "step",
    [
        TimedStep(0, 10, 0, 0.1),
        TimedStep(1, -1, 0, 0.1),
        TimedStep(1, 10, 0, math.nan),
        TimedStep(1, 10, 0, -0.1),
    ],
)
def test_an_impossible_step_is_refused(step: TimedStep) -> None:
    with pytest.raises(ConfigurationError):
        fit_latency([*measured(), step])
