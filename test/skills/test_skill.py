"""How long skills take: the execution-time model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.skills.plans import DRONE
from timely_llm.skills.skill import Duration

STEP_S = 1.5275


@pytest.mark.parametrize("name", ["mf", "mb", "ml", "mr"])
@pytest.mark.parametrize(("cm", "seconds"), [(10, 1.8864), (100, 2.5344), (500, 5.4144)])
def test_a_horizontal_move_takes_time_in_proportion(name: str, cm: int, seconds: float) -> None:
    assert DRONE.skills[name].duration.predict_s((cm,)) == pytest.approx(seconds)
    assert seconds == pytest.approx(0.0072 * cm + 1.8144)


@pytest.mark.parametrize("name", ["mu", "md"])
@pytest.mark.parametrize(("cm", "seconds"), [(10, 1.6783), (100, 2.9995), (300, 7.5595)])
def test_a_vertical_move_takes_time_by_a_cubic(name: str, cm: int, seconds: float) -> None:
    assert DRONE.skills[name].duration.predict_s((cm,)) == pytest.approx(seconds)
    assert seconds == pytest.approx(8e-7 * cm**3 - 3e-4 * cm**2 + 0.0388 * cm + 1.3195)


@pytest.mark.parametrize("name", ["tc", "tu"])
@pytest.mark.parametrize(("degrees", "seconds"), [(1, 0.8005), (90, 2.269), (360, 6.724)])
def test_a_turn_takes_time_in_proportion(name: str, degrees: int, seconds: float) -> None:
    assert DRONE.skills[name].duration.predict_s((degrees,)) == pytest.approx(seconds)


def test_waiting_takes_its_seconds_and_going_to_something_2_5() -> None:
    assert DRONE.skills["d"].duration.predict_s((7,)) == 7
    assert DRONE.skills["g"].duration.predict_s(("cat",)) == 2.5


def test_a_search_is_predicted_by_one_step_and_takes_at_most_a_whole_turn() -> None:
    search = DRONE.skills["s"].duration
    assert search.scene_dependent
    assert search.predict_s(("cat",)) == STEP_S
    assert search.longest_s(("cat",)) == pytest.approx(8 * STEP_S)


def test_a_search_takes_any_number_of_its_steps() -> None:
    rng, search = np.random.default_rng(0), DRONE.skills["s"].duration
    steps = {search.sample_s(("cat",), rng) / STEP_S for _ in range(300)}
    assert sorted(steps) == pytest.approx(range(1, 9))


def test_a_move_takes_as_long_as_predicted_give_or_take_the_spread() -> None:
    rng, move = np.random.default_rng(0), DRONE.skills["mf"].duration
    assert not move.scene_dependent
    assert move.longest_s((100,)) == move.predict_s((100,))
    assert move.sample_s((100,), rng) == move.predict_s((100,))
    ratios = [move.sample_s((100,), rng, 0.1) / move.predict_s((100,)) for _ in range(2000)]
    assert np.mean(np.log(ratios)) == pytest.approx(0, abs=0.01)
    assert np.std(np.log(ratios)) == pytest.approx(0.1, rel=0.1)


def test_the_first_number_decides() -> None:
    assert Duration(polynomial=(1, 2)).predict_s(("fast", 3, 100)) == 7
    assert Duration(polynomial=(1, 2)).predict_s(("fast",)) == 1


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(st.lists(finite, min_size=1, max_size=5), finite | st.integers(-(10**15), 10**15))
def test_no_duration_is_below_zero_or_without_end(
    coefficients: list[float], argument: int | float
) -> None:
    seconds = Duration(polynomial=tuple(coefficients)).predict_s((argument,))
    assert 0 <= seconds < float("inf")


def test_a_measured_skill_is_predicted_by_its_lowest_quantile() -> None:
    search = Duration(quantiles={0.05: 1.6, 0.5: 3.1, 0.95: 9.0})
    assert search.scene_dependent
    assert search.predict_s(("cat",)) == 1.6
    assert search.longest_s(("cat",)) == 9.0
    assert search.quantile_s((), 0.0) == search.quantile_s((), 0.05) == 1.6
    assert search.quantile_s((), 0.275) == pytest.approx((1.6 + 3.1) / 2)
    assert search.quantile_s((), 1.0) == 9.0


def test_a_measured_skill_takes_as_long_as_was_measured() -> None:
    rng, search = np.random.default_rng(0), Duration(quantiles={0.05: 1.6, 0.5: 3.1, 0.95: 9.0})
    seconds = [search.sample_s((), rng) for _ in range(4000)]
    assert np.quantile(seconds, [0.0, 0.5, 1.0]) == pytest.approx([1.6, 3.1, 9.0], rel=0.05)


def test_a_spread_is_of_the_ratio_to_what_is_predicted() -> None:
    move = Duration(polynomial=(1.0, 0.1), spread={0.1: 0.9, 0.9: 1.2})
    assert not move.scene_dependent
    assert move.predict_s((10,)) == 2.0
    assert move.quantile_s((10,), 0.1) == pytest.approx(1.8)
    assert move.quantile_s((10,), 0.5) == pytest.approx(2.1)
    assert move.longest_s((10,)) == pytest.approx(2.4)
    rng = np.random.default_rng(0)
    seconds = [move.sample_s((10,), rng, spread=5.0) for _ in range(1000)]
    assert (min(seconds), max(seconds)) == pytest.approx((1.8, 2.4), rel=0.01)


def test_the_shares_of_steps_are_equal() -> None:
    search = DRONE.skills["s"].duration
    steps = [search.quantile_s((), share) / STEP_S for share in (0, 0.124, 0.126, 0.5, 0.99, 1)]
    assert steps == pytest.approx([1, 1, 2, 5, 8, 8])


shares = st.dictionaries(st.floats(0, 1), st.floats(0.01, 100), min_size=1, max_size=5)


@settings(deadline=None)
@given(shares, st.floats(0, 1), st.floats(0, 1))
def test_quantiles_rise(values: dict[float, float], one: float, other: float) -> None:
    ordered = dict(zip(sorted(values), sorted(values.values()), strict=True))
    low, high = sorted((one, other))
    for duration in (Duration(quantiles=ordered), Duration(polynomial=(2.0,), spread=ordered)):
        assert duration.quantile_s((), low) <= duration.quantile_s((), high) * (1 + 1e-12)
