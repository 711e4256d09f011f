"""How long skills take: the execution-time model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.skills.plans import DRONE
from timely_llm.skills.durations import Duration

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
