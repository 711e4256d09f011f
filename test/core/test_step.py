from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.step import StageTimes, stage_uses

TIMES = StageTimes((0.0, 0.4), (0.3, 0.2), (0.1,), (0.1, 0.1), (0.0, 0.1))


def test_the_shares_of_stages_are_of_the_time_of_all_steps() -> None:
    later = StageTimes((), (0.1, 0.4), (0.2,), (0.2, 0.2), (0.3, 0.0))
    first, second = stage_uses([TIMES, later])
    assert first == pytest.approx((0.4, 0.3, 0.3, 1.0))
    assert second == pytest.approx((0.6, 0.1, 0.0, 1.0))


def test_steps_of_one_stage_have_no_shares() -> None:
    assert stage_uses([]) == []


@given(st.integers(1, 4), st.data())
def test_no_share_is_impossible(stages: int, data: st.DataObject) -> None:
    def seconds(count: int) -> st.SearchStrategy[tuple[float, ...]]:
        return st.lists(st.floats(0.0, 1e3), min_size=count, max_size=count).map(tuple)

    step = st.tuples(*map(seconds, (0, stages, stages - 1, stages, stages)))
    steps = [StageTimes(*one) for one in data.draw(st.lists(step, min_size=1, max_size=3))]
    assert all(one.fit for one in steps)
    uses = stage_uses(steps)
    assert len(uses) == stages
    assert all(use.compute >= 0.0 and use.compute + use.idle <= 1.0 + 1e-9 for use in uses)


@pytest.mark.parametrize(
    "change",
    [
        {"stage_s": ()}, {"link_s": ()}, {"begins_s": (0.0,)}, {"idle_s": (0.0,)},
        {"blocked_s": (0.0, -0.1)}, {"idle_s": (0.0, math.nan)}, {"link_s": (math.inf,)},
    ],
)  # fmt: skip
def test_impossible_times_do_not_fit(change: dict[str, tuple[float, ...]]) -> None:
    assert TIMES.fit and TIMES._replace(begins_s=()).fit
    assert not TIMES._replace(**change).fit
