"""Fits of a skill's duration to measured times: robust, and as simple as the data allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from timely_llm.profiling.measurements import Measurement
from timely_llm.profiling.step_profile import Array, four_digits
from timely_llm.skills.skill import Duration, Skill

Model = Callable[[Array], Array]

MIN_SAMPLES = 3
MAX_DEGREE = 3
MAX_SAMPLES = 20_000
MANY = 20
FOLDS = 10
CURVE_SAMPLES = 5
"""Least executions for each coefficient of a curve. Fewer would fit by chance."""

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
SPREAD_SHARES = (0.05, 0.5, 0.95)
SPREAD_SAMPLES = 20
"""Least executions for a spread; fewer have no 5 % quantile."""

OUTLIER = 6.0
"""Deviation from which an execution is an outlier, in usual deviations."""

SMALLEST_S = 1e-4


@dataclass(frozen=True)
class Fit:
    """The fitted duration of one skill.

    Attributes:
        name: the skill's name.
        before: its duration in the skill set.
        after: its fitted duration.
        x: the first numeric argument of each execution; 0 without one.
        seconds: time of each execution.
        outliers: mask of the executions that were left out.
        error_before_s: mean |true - predicted| of the other executions with `before`, seconds.
        error_after_s: the same with a duration fitted to other executions (cross-validation). Both
            errors of a scene-dependent skill are those of its median.
    """

    name: str
    before: Duration
    after: Duration
    x: Array
    seconds: Array
    outliers: NDArray[np.bool_]
    error_before_s: float
    error_after_s: float

    @property
    def model(self) -> str:
        """The fitted duration in words, such as "1.81 + 0.0072 x"."""
        if self.after.quantiles is not None:
            low, high = min(self.after.quantiles.values()), max(self.after.quantiles.values())
            return f"{low:.3g} to {high:.3g}, by the scene"
        words = ""
        for power, coefficient in enumerate(self.after.polynomial or ()):
            if coefficient:
                variable = ("", " x", " x²", " x³")[power] if power <= MAX_DEGREE else f" x^{power}"
                sign = " - " if coefficient < 0 else " + "
                words += (sign if words else sign.strip(" +")) + f"{abs(coefficient):.3g}{variable}"
        return words or "0"


def fit_skill(name: str, skill: Skill, measurements: Sequence[Measurement]) -> Fit:
    """Fit a skill's duration to at least `MIN_SAMPLES` measurements.

    A scene-dependent skill gets quantiles. Any other skill gets a polynomial of its first number,
    of degree 0 to 3: the lowest degree with a cross-validated error within one standard error of
    the best, fitted robustly (Huber, then Tukey weights). It keeps its present polynomial if that
    predicts as well. From `SPREAD_SAMPLES` executions on, it gets the quantiles of true over
    predicted seconds.
    """
    x, seconds = _data(skill, measurements)
    if skill.duration.scene_dependent:
        after = Duration(quantiles=_quantiles(seconds, SHARES))
        outliers = np.zeros(len(seconds), bool)
        before = np.full(len(seconds), skill.duration.quantile_s((), 0.5))
        losses = _cross_validate(x, seconds, _median)
    else:
        degree = _choose_degree(x, seconds, skill)
        after = Duration(polynomial=_rounded(fit_polynomial(x, seconds, degree)))
        outliers = _outliers(_values(after, x), seconds)
        before = _values(skill.duration, x)
        losses = _cross_validate(x, seconds, lambda a, b: _polynomial(a, b, degree))
        as_it_was = np.abs(before - seconds)
        if np.mean(as_it_was[~outliers]) <= np.mean(losses[~outliers]):
            after, losses = skill.duration, as_it_was
        after = after.model_copy(update={"spread": _spread(after, x, seconds, outliers)})
    return Fit(
        name=name,
        before=skill.duration,
        after=after,
        x=x,
        seconds=seconds,
        outliers=outliers,
        error_before_s=float(np.mean(np.abs(before - seconds)[~outliers])),
        error_after_s=float(np.mean(losses[~outliers])),
    )


def fit_polynomial(x: Array, y: Array, degree: int) -> Array:
    """Return the coefficients of a robust fit, the constant first.

    Iteratively reweighted least squares: Huber's weights first, which always converge; then, from
    `MANY` points on, Tukey's weights, which are 0 for far points.
    """
    scale = float(np.max(np.abs(x))) or 1.0
    powers: Array = np.vander(x / scale, degree + 1, increasing=True)
    weights: Array = np.ones(len(y))
    found: Array = np.zeros(degree + 1)
    for turn in range(30 if len(y) >= MANY else 15):
        root = np.sqrt(weights)
        found = np.asarray(np.linalg.lstsq(powers * root[:, None], y * root, rcond=None)[0], float)
        away = np.abs(y - powers @ found)
        unit = 1.4826 * float(np.median(away))
        if unit <= 1e-9 * float(np.max(np.abs(y)) or 1.0):
            break
        if turn < 15:
            weights = np.minimum(1.0, 1.345 * unit / np.maximum(away, 1e-300))
        else:
            weights = np.maximum(0.0, 1.0 - (away / (4.685 * unit)) ** 2) ** 2
    return np.asarray(found / scale ** np.arange(degree + 1), float)


def _data(skill: Skill, measurements: Sequence[Measurement]) -> tuple[Array, Array]:
    """Return the numeric arguments and the seconds of at most `MAX_SAMPLES` executions."""
    if len(measurements) > MAX_SAMPLES:
        chosen = np.random.default_rng(0).choice(len(measurements), MAX_SAMPLES, replace=False)
        measurements = [measurements[place] for place in sorted(chosen)]
    numbers = [
        next((float(a) for a in m.arguments if isinstance(a, int | float)), 0.0)
        for m in measurements
    ]
    return np.array(numbers), np.array([m.seconds for m in measurements])


def _values(duration: Duration, x: Array) -> Array:
    return np.array([duration.predict_s((float(value),)) for value in x])


def _polynomial(x: Array, y: Array, degree: int) -> Model:
    coefficients = fit_polynomial(x, y, degree)
    return lambda at: np.maximum(0.0, np.polynomial.polynomial.polyval(at, coefficients))


def _median(x: Array, y: Array) -> Model:
    middle = float(np.median(y))
    return lambda at: np.full(len(at), middle)


def _cross_validate(x: Array, y: Array, fit: Callable[[Array, Array], Model]) -> Array:
    """Return |true - predicted| of each execution, by models that were fitted without it."""
    order = np.random.default_rng(0).permutation(len(y))
    losses = np.zeros(len(y))
    for fold in np.array_split(order, min(FOLDS, len(y))):
        others = np.setdiff1d(order, fold)
        losses[fold] = np.abs(fit(x[others], y[others])(x[fold]) - y[fold])
    return losses


def _choose_degree(x: Array, y: Array, skill: Skill) -> int:
    """Return the lowest degree within one standard error of the best."""
    values = len(np.unique(x))
    found: dict[int, Array] = {}
    for degree in range(min(MAX_DEGREE, values - 1, len(y) - 2) + 1):
        enough = values > degree + 1 and len(y) >= CURVE_SAMPLES * (degree + 1)
        if degree < 2 or (enough and _sane(fit_polynomial(x, y, degree), x, y, skill)):
            found[degree] = _cross_validate(x, y, lambda a, b, d=degree: _polynomial(a, b, d))  # type: ignore[misc]
    cap = OUTLIER * min(float(np.median(losses)) for losses in found.values())
    capped = {degree: np.minimum(losses, cap or math.inf) for degree, losses in found.items()}
    best = min(capped.values(), key=lambda losses: float(np.mean(losses)))
    limit = float(np.mean(best)) + float(np.std(best)) / math.sqrt(len(y))
    return min(degree for degree, losses in capped.items() if np.mean(losses) <= limit)


def _sane(coefficients: Array, x: Array, y: Array, skill: Skill) -> bool:
    """Return whether a curve is positive and bounded over all arguments that the skill allows."""
    number = next((a for a in skill.arguments if a.type != "text"), None)
    low = float(np.min(x)) if number is None or number.minimum is None else number.minimum
    high = float(np.max(x)) if number is None or number.maximum is None else number.maximum
    curve = np.polynomial.polynomial.polyval(np.linspace(low, high, 101), coefficients)
    return bool(np.min(curve) > 0 and np.max(curve) <= 5 * np.max(y))


def _outliers(predicted: Array, seconds: Array) -> NDArray[np.bool_]:
    """Return a mask of outliers. With fewer than `MANY` executions, only extreme ones count."""
    away = np.abs(seconds - predicted)
    unit = max(1.4826 * float(np.median(away)), 1e-3, 0.03 * float(np.median(seconds)))
    far = away > OUTLIER * unit
    if len(seconds) < MANY:
        far &= np.maximum(seconds, predicted) > 3 * np.minimum(seconds, predicted)
    return far if np.mean(far) <= 0.3 else np.zeros(len(seconds), bool)


def _spread(
    duration: Duration, x: Array, seconds: Array, outliers: NDArray[np.bool_]
) -> dict[float, float] | None:
    """Return the quantiles of true over predicted seconds; None with too few executions."""
    predicted = _values(duration, x)
    usable = ~outliers & (predicted >= SMALLEST_S)
    if np.count_nonzero(usable) < SPREAD_SAMPLES:
        return None
    return _quantiles(seconds[usable] / predicted[usable], SPREAD_SHARES)


def _quantiles(values: Array, shares: Sequence[float]) -> dict[float, float]:
    found = np.quantile(values, shares)
    return {s: max(four_digits(v), SMALLEST_S) for s, v in zip(shares, found, strict=True)}


def _rounded(coefficients: Array) -> tuple[float, ...]:
    return tuple(four_digits(value) for value in coefficients)
