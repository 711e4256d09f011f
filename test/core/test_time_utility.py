"""The time-utility function (Ling et al. 2024, Eq. 1 and §4.2)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import RequestError
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility

utilities = st.builds(
    TimeUtility, beta=st.floats(0, 1e6), alpha=st.floats(-1e6, 0), ert_s=st.floats(0, 1e6)
)


def test_the_papers_normal_task_is_worth_nothing_after_one_and_a_half_seconds() -> None:
    assert NORMAL.value(0.3) == NORMAL.value(1.0) == 1.0
    assert NORMAL.value(1.25) == pytest.approx(0.5)
    assert NORMAL.zero_s == pytest.approx(1.5)
    assert NORMAL.value(2.0) == pytest.approx(-1.0)
    assert NORMAL.clamped(2.0) == 0.0


def test_the_papers_urgent_task() -> None:
    assert URGENT.alpha == pytest.approx(-6.67, abs=0.01)
    assert URGENT.value(0.2) == 2.0
    assert URGENT.value(0.5) == pytest.approx(0.0)


def test_later_segments_fall_from_the_moment_the_robot_is_idle() -> None:
    assert NORMAL.later_value(-3.0) == 1.0
    assert NORMAL.later_value(0.0) == 1.0
    assert NORMAL.later_value(0.25) == pytest.approx(0.5)


def test_a_utility_that_never_falls_has_no_zero() -> None:
    assert TimeUtility(beta=1.0, alpha=0.0, ert_s=1.0).zero_s == math.inf


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"beta": -1.0}, "beta"),
        ({"beta": math.nan}, "beta"),
        ({"alpha": 0.5}, "alpha"),
        ({"alpha": -math.inf}, "alpha"),
        ({"ert_s": -0.1}, "ert_s"),
        ({"ert_s": math.nan}, "ert_s"),
    ],
)
def test_numbers_that_make_no_sense_are_named(values: dict[str, float], wrong: str) -> None:
    with pytest.raises(RequestError, match=f"{wrong} must be a finite number"):
        TimeUtility(**values)


@given(utilities, st.floats(0, 1e6), st.floats(0, 1e6))
def test_utility_never_rises(utility: TimeUtility, a: float, b: float) -> None:
    early, late = sorted((a, b))
    assert utility.value(early) >= utility.value(late)
    assert utility.later_value(early) >= utility.later_value(late)
