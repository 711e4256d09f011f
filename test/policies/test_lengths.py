from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.policies.lengths import DecayingMean


def test_at_first_all_that_was_seen_counts_alike() -> None:
    recent = DecayingMean(window_s=100.0)
    for now, value in ((0.0, 9.0), (1.0, 1.0), (2.0, 1.0), (4.0, 4.0)):
        recent.saw(value, now)
    assert recent.mean == pytest.approx((1 + 1 + 2 * 4) / 4)
    assert recent.deviation == pytest.approx(1.5)


def test_what_is_long_past_is_forgotten() -> None:
    recent = DecayingMean(window_s=10.0)
    for second in range(100):
        recent.saw(5.0, float(second))
    assert recent.mean == pytest.approx(5.0)
    for second in range(100, 200):
        recent.saw(1.0, float(second))
    assert recent.mean == pytest.approx(1.0, abs=1e-3)
    assert recent.deviation < 0.05
    recent.saw(7.0, 300.0)
    assert recent.mean == pytest.approx(7.0), "nothing else was seen for ten windows"


def test_a_moment_without_length_counts_for_nothing() -> None:
    recent = DecayingMean(window_s=10.0)
    recent.saw(3.0, 1.0)
    recent.saw(8.0, 1.0)
    assert (recent.mean, recent.deviation) == (0.0, 0.0)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 5)), min_size=2, max_size=30))
def test_the_mean_lies_between_what_was_seen(seen: list[tuple[float, float]]) -> None:
    recent, now = DecayingMean(window_s=10.0), 0.0
    times = [now := now + gone_s for _, gone_s in seen]
    for (value, _), time_s in zip(seen, times, strict=True):
        recent.saw(value, time_s)
    counted = [seen[i][0] for i, (a, b) in enumerate(pairwise(times), start=1) if b > a]
    low, high = (min(counted), max(counted)) if counted else (0.0, 0.0)
    assert low - 1e-6 <= recent.mean <= high + 1e-6
    assert 0.0 <= recent.deviation <= (high - low) + 1e-3
