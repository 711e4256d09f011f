import pytest

from test.policies.deadline.test_streams import SLOW
from timely_llm.policies.engine_share import EngineShare, TokenCost


def test_shares_add_up_as_in_table_ii() -> None:
    share = EngineShare(SLOW.predict_s, [10.0] * 3 + [1 / 0.12] * 4)
    assert share.offer(4.0, 0.95) and share.offer(4.0, 0.95)
    assert share.used == pytest.approx(0.939, abs=0.001)
    assert not share.offer(12.0, 0.95)
    assert share.used == pytest.approx(0.939, abs=0.001)


def test_a_token_that_can_wait_for_company_is_cheap() -> None:
    cost = TokenCost(SLOW.predict_s, rows=20, util=0.95)
    assert (cost.alone_s, cost.most) == (0.026, 0.95 / 0.026)
    assert cost.seconds(1 / 0.0261) == 0.026, "no other stream has time in its steps"
    assert cost.seconds(1 / 0.060) == pytest.approx(0.054 / 4)
    assert cost.seconds(1 / 0.099) == pytest.approx(0.081 / 7), "cheaper than the eighth"
    assert cost.seconds(1 / 10.0) == pytest.approx((0.1286 + 11 * 0.0004) / 20)


def test_a_token_that_comes_too_late_even_alone_costs_a_whole_step() -> None:
    assert TokenCost(SLOW.predict_s, rows=20, util=0.95).seconds(1000.0) == 0.026


def test_company_is_never_more_than_there_is() -> None:
    assert TokenCost(SLOW.predict_s, rows=2, util=0.95).seconds(1.0) == pytest.approx(0.035 / 2)
