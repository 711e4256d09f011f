"""`annealing-fit` on one seed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from timely_llm.engines.paces import step_time_profile
from timely_llm.experiments.catalog.annealing.fit import (
    CHANGES,
    FEW,
    FITS,
    KNOWN,
    MANY,
    NOISES,
    PARAMETERS,
    Rounds,
    batch_s,
    changed,
    noisy,
    timed_steps,
)
from timely_llm.experiments.registry import experiment
from timely_llm.policies.annealing.latency import V100X2_QWEN25_7B as TABLE_2
from timely_llm.policies.annealing.latency import fit_latency

FOUND = experiment("annealing-fit")
PROFILE = step_time_profile("v100x2-qwen2.5-7b")


def test_one_coefficient_of_both_phases_is_changed() -> None:
    made = changed(TABLE_2, "beta", -0.2)
    assert made.prefill == replace(TABLE_2.prefill, beta=0.8 * TABLE_2.prefill.beta)
    assert made.decode == replace(TABLE_2.decode, beta=0.8 * TABLE_2.decode.beta)
    assert changed(TABLE_2, "delta", 0.0) == TABLE_2


def test_each_coefficient_has_a_row_for_each_change() -> None:
    options = FOUND.options(policies=("annealing",), seeds=1, jobs=1)
    made = FOUND.run(options, lambda done, total: None)
    names = [(row["parameter"], row["change"]) for row in made.rows]
    count = len(PARAMETERS) * len(CHANGES)
    assert names[:count] == [(parameter, change) for parameter in PARAMETERS for change in CHANGES]
    assert names[count:] == [(KNOWN, 0.0), *((fit, noise) for fit in FITS for noise in NOISES)]
    for row in made.rows:
        assert float(row["g_vs_fitted"] or 0) == pytest.approx(1.0, abs=0.5)


def test_a_fit_to_exact_steps_predicts_better_than_table_2_and_noise_costs_it() -> None:
    options = FOUND.options(policies=("annealing",), seeds=1, jobs=1)
    made = FOUND.run(options, lambda done, total: None)
    error = {
        (row["parameter"], row["change"]): float(row["latency_error"] or 0) for row in made.rows
    }
    assert 0.0 < error[KNOWN, 0.0] < 0.05
    for fit in FITS:
        assert error[fit, 0.0] < error[KNOWN, 0.0]
        assert error[fit, 0.0] < error[fit, 0.1]


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
