"""Fits find the truth behind noise and mishaps, and no more than the data allow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from test.skills.plans import DRONE
from timely_llm.profiling.fitting import fit_polynomial, fit_skill
from timely_llm.profiling.measurements import Measurement

MOVE, SEARCH, GO = DRONE.skills["mf"], DRONE.skills["s"], DRONE.skills["g"]


def moves(
    truth: Callable[[float], float], count: int, noise: float, mishaps: int = 0, seed: int = 0
) -> list[Measurement]:
    """Return executions of a move, the first of them mishaps that took six times as long."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        cm = int(rng.integers(10, 501))
        seconds = truth(cm) * float(rng.lognormal(0, noise)) * (6 if number < mishaps else 1)
        found.append(Measurement("mf", (cm,), seconds))
    return found


@pytest.mark.parametrize(
    ("coefficients", "degree"),
    [((4.0,), 0), ((2.0, 0.01), 1), ((2.0, 0.0, 5e-5), 2), ((6.0, 0.1, -6e-4, 9e-7), 3)],
)
def test_the_degree_is_that_of_the_truth(coefficients: tuple[float, ...], degree: int) -> None:
    fit = fit_skill("mf", MOVE, moves(np.polynomial.Polynomial(coefficients), 80, 0.03))
    assert fit.after.polynomial is not None
    assert len(fit.after.polynomial) == degree + 1
    for cm in (50, 250, 450):
        true_s = np.polynomial.Polynomial(coefficients)(cm)
        assert fit.after.predict_s((cm,)) == pytest.approx(true_s, rel=0.03)
    assert fit.error_after_s < fit.error_before_s


def test_mishaps_are_left_out() -> None:
    fit = fit_skill("mf", MOVE, moves(lambda cm: 2.0 + 0.01 * cm, 50, 0.03, mishaps=7))
    assert np.flatnonzero(fit.outliers).tolist() == list(range(7))
    assert fit.after.polynomial == pytest.approx((2.0, 0.01), rel=0.06)
    assert fit.after.longest_s((100,)) < 3.5


def test_a_duration_that_predicts_as_well_is_kept() -> None:
    fit = fit_skill("mf", MOVE, moves(lambda cm: MOVE.duration.predict_s((cm,)), 30, 0.1))
    assert fit.after.polynomial == MOVE.duration.polynomial
    assert fit.error_after_s == fit.error_before_s


def test_the_spread_is_what_was_measured_if_that_is_enough() -> None:
    truth = np.polynomial.Polynomial((2.0, 0.01))
    many, few = (fit_skill("mf", MOVE, moves(truth, count, 0.1)) for count in (400, 19))
    assert few.after.spread is None
    assert many.after.spread == pytest.approx(
        {0.05: np.exp(-0.1645), 0.5: 1.0, 0.95: np.exp(0.1645)}, rel=0.04
    )


@pytest.mark.parametrize("places", [(100, 100, 100), (100, 100, 300), (10, 250, 500)])
def test_few_executions_give_no_wild_curve(places: tuple[int, ...]) -> None:
    noisy = [Measurement("mf", (cm,), 2.0 + 0.01 * cm + 0.1 * n) for n, cm in enumerate(places)]
    fit = fit_skill("mf", MOVE, noisy)
    assert fit.after.polynomial is not None
    assert len(fit.after.polynomial) <= 2
    assert all(0 < fit.after.predict_s((cm,)) < 20 for cm in (10, 500))


def test_one_of_few_that_is_far_out_of_line_is_left_out() -> None:
    fit = fit_skill("mf", MOVE, moves(lambda cm: 2.0 + 0.01 * cm, 9, 0.05, mishaps=1))
    assert np.flatnonzero(fit.outliers).tolist() == [0]


@pytest.mark.parametrize("count", [5, 9, 14])
def test_few_executions_give_no_curve_that_leaves_some_out(count: int) -> None:
    for seed in range(20):
        truth = np.polynomial.Polynomial((2.0, 0.02, -1e-4, 2e-7))
        fit = fit_skill("mf", MOVE, moves(truth, count, 0.08, seed=seed))
        assert fit.after.polynomial is not None
        assert len(fit.after.polynomial) <= 2
        assert not fit.outliers.any()


def test_a_curve_that_leaves_the_ground_where_nothing_was_measured_is_refused() -> None:
    rng = np.random.default_rng(0)
    near = [
        Measurement("mf", (int(cm),), 2 + 0.02 * cm - 1e-4 * cm**2 + float(rng.normal(0, 0.02)))
        for cm in rng.integers(10, 120, 60)
    ]
    fit = fit_skill("mf", MOVE, near)
    assert all(fit.after.predict_s((cm,)) > 0 for cm in range(10, 501, 10))


def test_a_skill_without_a_number_gets_a_constant() -> None:
    rng = np.random.default_rng(0)
    fit = fit_skill("g", GO, [Measurement("g", ("a",), float(s)) for s in rng.normal(4, 0.3, 40)])
    assert fit.after.polynomial == pytest.approx((4.0,), abs=0.1)
    assert fit.model.startswith(("4", "3.9"))


def test_a_search_gets_quantiles() -> None:
    seconds = np.random.default_rng(0).uniform(2, 12, 400)
    fit = fit_skill("s", SEARCH, [Measurement("s", ("a",), float(s)) for s in seconds])
    assert fit.after.scene_dependent
    assert fit.after.predict_s(()) == pytest.approx(2.5, abs=0.3)
    assert fit.after.longest_s(()) == pytest.approx(11.5, abs=0.3)
    assert not fit.outliers.any()


@pytest.mark.parametrize("seconds", [[0.0] * 5, [1.0] * 30, [3600.0, 0.0, 1.0]])
@pytest.mark.parametrize("name", ["mf", "s", "tp"])
def test_whatever_was_measured_gives_a_valid_duration(name: str, seconds: list[float]) -> None:
    arguments: tuple[int | str, ...] = (100,) if name == "mf" else ("cat",) if name == "s" else ()
    found = [Measurement(name, arguments, s) for s in seconds]
    fit = fit_skill(name, DRONE.skills[name], found)
    assert 0 <= fit.after.predict_s(arguments) <= fit.after.longest_s(arguments) <= 3600
    assert fit.model


def test_many_executions_are_fitted_from_a_part_of_them() -> None:
    fit = fit_skill("mf", MOVE, moves(lambda cm: 2.0 + 0.01 * cm, 25_000, 0.1))
    assert len(fit.seconds) == 20_000
    assert fit.after.polynomial == pytest.approx((2.0, 0.01), rel=0.02)


def test_the_words_of_a_model() -> None:
    fit = fit_skill("mf", MOVE, moves(lambda cm: 2.0 + 0.01 * cm, 40, 1e-6))
    assert fit.model == "2 + 0.01 x"
    assert fit_polynomial(np.array([1.0, 2, 3]), np.array([5.0, 4, 3]), 1) == pytest.approx([6, -1])
