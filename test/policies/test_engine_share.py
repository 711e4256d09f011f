import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.policies.deadline.test_streams import SLOW
from timely_llm.policies.engine_share import EngineShare

needs = st.lists(st.floats(0.5, 40.0), max_size=12)


def test_shares_add_up_as_in_table_ii() -> None:
    share = EngineShare(SLOW.steps_s, [10.0] * 3 + [1 / 0.12] * 4)
    assert share.offer(4.0, 0.95) and share.offer(4.0, 0.95)
    assert share.used == pytest.approx(0.939, abs=0.001)
    assert not share.offer(12.0, 0.95)
    assert share.used == pytest.approx(0.939, abs=0.001)


@given(needs, st.floats(0.2, 1.0))
def test_what_is_promised_fits_and_is_the_same_in_any_order(
    offered: list[float], most: float
) -> None:
    share = EngineShare(SLOW.steps_s)
    kept = [need for need in offered if share.offer(need, most)]
    assert share.used <= most
    for order in (kept, kept[::-1], sorted(kept)):
        assert EngineShare(SLOW.steps_s, order).used == pytest.approx(share.used)


def test_a_stream_costs_a_row_of_its_steps_and_alone_whole_steps() -> None:
    assert EngineShare(SLOW.steps_s, [10.0]).used == pytest.approx(10.0 * 0.026)
    assert EngineShare(SLOW.steps_s, [10.0, 4.0]).used == pytest.approx(6.0 * 0.026 + 4.0 * 0.035)
