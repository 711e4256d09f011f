"""Profiling rounds: the simulated engine's steps, their fit, and their noise."""

from __future__ import annotations

from random import Random

import pytest

from timely_llm.engines.paces import step_time_profile
from timely_llm.experiments.virtual.profiling_rounds import (
    FEW,
    MANY,
    Rounds,
    batch_s,
    noisy,
    timed_steps,
)
from timely_llm.policies.annealing.fit import fit_latency

PROFILE = step_time_profile("v100x2-qwen2.5-7b")


def test_a_batch_has_a_step_of_prompts_and_then_decodes() -> None:
    first, second, third = timed_steps(PROFILE, Rounds((2,), (100,), 2))
    assert (first.rows, first.prompt_tokens, first.context_tokens) == (2, 200, 0)
    assert first.seconds == pytest.approx(PROFILE.step_s(0, 200))
    assert (second.prompt_tokens, second.context_tokens, third.context_tokens) == (0, 200, 202)
    assert third.seconds == pytest.approx(PROFILE.step_s(2, 0, 202))


@pytest.mark.parametrize("rounds", [MANY, FEW])
def test_the_coefficients_of_the_engine_are_found(rounds: Rounds) -> None:
    steps = timed_steps(PROFILE, rounds)
    assert len(steps) == rounds.steps
    found = fit_latency(steps)
    assert found.prefill.alpha == pytest.approx(PROFILE.prefill_token_s)
    assert found.prefill.delta == pytest.approx(PROFILE.base_s + PROFILE.prefill_s)
    assert found.decode.alpha == pytest.approx(PROFILE.context_token_s)
    assert found.decode.beta == pytest.approx(PROFILE.row_s)
    assert found.decode.gamma == pytest.approx(0.0, abs=1e-12)


def test_a_batch_takes_as_long_as_its_steps() -> None:
    steps = timed_steps(PROFILE, Rounds((4,), (300,), 9))
    assert batch_s(PROFILE, 4, 300, 10) == pytest.approx(sum(step.seconds for step in steps))


def test_noise_changes_only_seconds_and_is_drawn_from_the_seed() -> None:
    steps = timed_steps(PROFILE, FEW)
    assert noisy(steps, 0.0, Random(1)) == list(steps)
    found = noisy(steps, 0.1, Random(1))
    assert found == noisy(steps, 0.1, Random(1)) != list(steps)
    assert [step[:3] for step in found] == [step[:3] for step in steps]
