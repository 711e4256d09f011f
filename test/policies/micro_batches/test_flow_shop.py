"""The cycle of a pipeline, by hand and beside a plain simulation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.micro_batches.pipelines import shops, simulated_ends_s
from timely_llm.policies.micro_batches.flow_shop import Affine, FlowShop, Rolled

TWO = (Affine(3.0, 0.0), Affine(3.0, 0.0))  # two stages of 3 s
LINK = (Affine(2.0, 0.0),)


def test_one_micro_batch_cycles_with_its_latency() -> None:
    for blocking in (True, False):
        assert FlowShop(TWO, LINK, blocking).roll([1]) == Rolled(8.0, 8.0)


def test_a_stage_that_sends_computes_nothing_where_sends_block() -> None:
    # Three micro-batches: each stage needs 3 * (3 + 2) s of each cycle.
    assert FlowShop(TWO, LINK, True).roll([1, 1, 1]) == Rolled(15.0, 18.0)


def test_a_stage_computes_the_next_micro_batch_during_a_send_where_they_overlap() -> None:
    assert FlowShop(TWO, LINK, False).roll([1, 1, 1]) == Rolled(9.0, 14.0)


def test_a_slow_link_is_the_bottleneck_where_sends_overlap() -> None:
    assert FlowShop(TWO, (Affine(4.0, 0.0),), False).roll([1, 1, 1]) == Rolled(12.0, 18.0)


def test_an_overhead_is_in_each_cycle_of_one_micro_batch_and_hidden_by_others() -> None:
    assert FlowShop(TWO, LINK, overhead_s=1.5).roll([1]) == Rolled(9.5, 8.0)
    assert FlowShop(TWO, LINK, overhead_s=1.5).roll([1, 1]) == Rolled(10.0, 13.0)


def test_seconds_grow_with_the_tokens() -> None:
    shop = FlowShop((Affine(1.0, 0.5), Affine(0.0, 1.0)), (Affine(0.5, 0.25),))
    assert shop.latency_s(4) == 3.0 + 4.0 + 1.5
    assert shop.busy_s(2, 8) == 2 * (1.5 + 4.0)  # the second stage receives and computes


def test_a_single_stage_needs_no_link() -> None:
    for blocking in (True, False):
        assert FlowShop((Affine(1.0, 1.0),), (), blocking).roll([2, 1]) == Rolled(5.0, 5.0)


@examples(200)
@given(shops(), st.integers(1, 12), st.integers(1, 300))
def test_micro_batches_of_one_size_have_the_cycle_of_the_bound(
    shop: FlowShop, count: int, size: int
) -> None:
    sizes = [size] * count
    ends_s = simulated_ends_s(shop, sizes, 12)
    rolled = shop.roll(sizes)
    assert rolled.first_s == pytest.approx(ends_s[0])
    assert rolled.cycle_s == pytest.approx((ends_s[-1] - ends_s[0]) / 11)
    assert rolled.cycle_s == pytest.approx(shop.bound_s(sizes))


@examples(200)
@given(shops(), st.lists(st.integers(1, 300), min_size=1, max_size=12))
def test_no_mean_cycle_of_any_sizes_is_below_the_bound(shop: FlowShop, sizes: list[int]) -> None:
    ends_s = simulated_ends_s(shop, sizes, 12)
    assert (ends_s[-1] - ends_s[0]) / 11 >= shop.bound_s(sizes) * (1 - 1e-9)
    assert shop.roll(sizes).cycle_s == pytest.approx(ends_s[1] - ends_s[0])


def test_rounded_seconds_are_near() -> None:
    shop = FlowShop((Affine(0.01234, 0.000987),) * 2, (Affine(0.0, 0.00555),), False, 0.0123)
    assert shop.rounded() == FlowShop(
        (Affine(0.012, 0.00099),) * 2, (Affine(0.0, 0.0056),), False, 0.012
    )
