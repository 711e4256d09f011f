"""How many micro-batches: Algorithm 2 of Ahn et al. 2025, and the shortest cycle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.micro_batches.pipelines import shops, simulated_ends_s
from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.micro_batches.flow_shop import (
    Affine,
    FlowShop,
    shortest_cycle,
    smallest_gap,
)
from timely_llm.policies.micro_batches.token_budget import even

COMPUTE, LINK = Affine(0.0153, 0.0001), Affine(0.0, 0.001455)  # seconds at 100 Mbit/s


def cycle_s(shop: FlowShop, tokens: int, count: int) -> float:
    ends_s = simulated_ends_s(shop, even(tokens, count), 40)
    return (ends_s[-1] - ends_s[9]) / 30


def test_the_gap_is_that_of_equations_1_and_2() -> None:
    # 4 stages of 1 + 64 / n s and 3 links of 3 s. n = 4: 77 s until the first token, 68 s on the
    # first stage; n = 5: 64.2 s and 69 s; n = 6: 55.7 s and 70 s.
    assert smallest_gap(4, 16, 64, lambda tokens: 1.0 + tokens, lambda _: 3.0) == 5


def test_a_tie_goes_to_the_smaller_number() -> None:
    # 11 s until the first token lie between 10 s and 12 s.
    assert smallest_gap(4, 16, 64, lambda _: 2.0, lambda _: 1.0) == 5


def test_links_without_cost_need_as_many_micro_batches_as_stages() -> None:
    assert smallest_gap(4, 16, 64, lambda tokens: 1.0 + 0.1 * tokens, lambda _: 0.0) == 4


def test_slow_links_bring_as_many_micro_batches_as_are_allowed() -> None:
    assert smallest_gap(4, 16, 64, lambda _: 1.0, lambda _: 100.0) == 16


def test_a_limit_below_the_stages_leaves_the_number_of_stages() -> None:
    assert smallest_gap(4, 2, 64, COMPUTE.seconds, LINK.seconds) == 4


def test_tokens_of_a_micro_batch_are_not_rounded() -> None:
    def compute_s(tokens: float) -> float:
        assert tokens == 16.5
        return 1.0

    assert smallest_gap(4, 4, 66, compute_s, lambda _: 1.0) == 4


@examples(150)
@given(
    st.integers(1, 6), st.integers(0, 16), st.integers(0, 4096),
    st.floats(0, 0.1), st.floats(0, 0.01), st.floats(0, 0.1), st.floats(0, 0.01),
)  # fmt: skip
def test_no_allowed_number_has_a_smaller_gap(
    stages: int, more: int, tokens: int, base_s: float, token_s: float, link: float, sent_s: float
) -> None:
    compute, send = Affine(base_s, token_s), Affine(link, sent_s)

    def gap_s(count: int) -> float:
        one_s, link_s = compute.seconds(tokens / count), send.seconds(tokens / count)
        return abs(one_s * stages + link_s * (stages - 1) - one_s * count)

    chosen = smallest_gap(stages, stages + more, tokens, compute.seconds, send.seconds)
    counts = range(stages, stages + more + 1)
    assert gap_s(chosen) <= min(map(gap_s, counts)) + 1e-12


def test_blocking_sends_need_fewer_micro_batches_than_algorithm_2_has() -> None:
    shop = FlowShop((COMPUTE,) * 4, (LINK,) * 3, blocking=True)
    theirs, ours = (
        smallest_gap(4, 16, 64, COMPUTE.seconds, LINK.seconds),
        shortest_cycle(shop, 64, 16),
    )
    assert (theirs, ours) == (7, 2)
    assert cycle_s(shop, 64, theirs) > 1.25 * cycle_s(shop, 64, ours)


def test_overlapped_sends_need_as_many_as_algorithm_2_has() -> None:
    shop = FlowShop((COMPUTE,) * 4, (LINK,) * 3, blocking=False)
    assert (
        shortest_cycle(shop, 64, 16) == smallest_gap(4, 16, 64, COMPUTE.seconds, LINK.seconds) == 7
    )


def test_of_equal_cycles_the_one_that_fills_the_pipeline_first_counts() -> None:
    # The link needs 256 * 0.001455 s for any number from 4 on: smaller pieces reach its end sooner.
    shop = FlowShop((COMPUTE,) * 4, (LINK,) * 3, blocking=False)
    assert shop.roll(even(256, 4)).first_s > shop.roll(even(256, 16)).first_s
    assert shortest_cycle(shop, 256, 16) == 16


def test_a_link_slow_in_any_case_needs_fewer_micro_batches_than_stages() -> None:
    shop = FlowShop((Affine(0.0153, 0.0003),) * 4, (Affine(0.03, 0.001455),) * 3, blocking=True)
    assert shortest_cycle(shop, 16, 16) == 2
    assert shortest_cycle(shop, 16, 16, least=4) == 4
    assert cycle_s(shop, 16, 4) > 1.1 * cycle_s(shop, 16, 2)


def test_an_overhead_needs_a_second_micro_batch_that_passes_meanwhile() -> None:
    # 32 rows in one step: 2 * 4 + 14 ms. In two steps: 2 * (3.5 + 7.75) ms.
    shop = FlowShop((Affine(0.003, 0.00003125),) * 2, (Affine(0.0015, 0.000390625),))
    assert shortest_cycle(shop, 32, 4) == 1
    assert shortest_cycle(shop._replace(overhead_s=0.003), 32, 4) == 2


def test_no_micro_batch_is_empty() -> None:
    shop = FlowShop((COMPUTE,) * 4, (LINK,) * 3)
    assert shortest_cycle(shop, 1, 16) == shortest_cycle(shop, 0, 16) == 1


@examples(150)
@given(shops(), st.integers(1, 31), st.integers(1, 12))
def test_no_allowed_number_has_a_shorter_cycle(shop: FlowShop, tokens: int, most: int) -> None:
    chosen = shortest_cycle(shop, tokens, most)
    counts = range(1, min(most, tokens) + 1)
    assert chosen in counts
    shortest_s = min(shop.roll(even(tokens, count)).cycle_s for count in counts)
    assert shop.roll(even(tokens, chosen)).cycle_s <= shortest_s * 1.01 * (1 + 1e-9)


@examples(100)
@given(shops(), st.integers(6, 31), st.booleans())
def test_neither_rule_has_a_shorter_cycle_in_the_long_run(
    shop: FlowShop, tokens: int, blocking: bool
) -> None:
    compute, link = shop.stages[0], shop.links[0]
    stages = len(shop.stages)
    alike = FlowShop((compute,) * stages, (link,) * (stages - 1), blocking)
    by_gap = smallest_gap(stages, min(16, tokens), tokens, compute.seconds, link.seconds)
    by_bound = min(range(stages, 7), key=lambda count: alike.bound_s(even(tokens, count)))
    ours_s = cycle_s(alike, tokens, shortest_cycle(alike, tokens, 16))
    assert ours_s <= 1.011 * min(cycle_s(alike, tokens, by_gap), cycle_s(alike, tokens, by_bound))


@given(shops(), st.integers(32, 5000))
def test_tokens_count_up_to_a_sixteenth(shop: FlowShop, tokens: int) -> None:
    counted = [t for t in range(tokens, tokens + tokens // 16 + 1) if bin(t).rindex("1") <= 6]
    assert shortest_cycle(shop, tokens, 16) == shortest_cycle(shop, counted[0], 16)


def test_limits_without_a_number_are_refused_in_a_sentence() -> None:
    shop = FlowShop((COMPUTE,) * 4, (LINK,) * 3)
    with pytest.raises(ConfigurationError, match="at least 5 micro-batches: allowed are 1 to 4"):
        shortest_cycle(shop, 64, 4, least=5)
