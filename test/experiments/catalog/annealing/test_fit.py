"""`annealing-fit` on one seed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from timely_llm.experiments.catalog.annealing.fit import (
    CHANGES,
    FITS,
    KNOWN,
    NOISES,
    PARAMETERS,
    changed,
)
from timely_llm.experiments.registry import experiment
from timely_llm.policies.annealing.latency import V100X2_QWEN25_7B as TABLE_2

FOUND = experiment("annealing-fit")


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
