"""How many micro-batches share the tokens of a cycle."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.micro_batches.flow_shop import FlowShop
from timely_llm.policies.micro_batches.token_budget import even


def smallest_gap(
    stages: int,
    most: int,
    tokens: float,
    compute_s: Callable[[float], float],
    link_s: Callable[[float], float],
) -> int:
    """Return the number of micro-batches by Algorithm 2 of Ahn et al. 2025.

    It minimizes the difference between the first token's time (Eq. 1) and the time that the first
    stage computes (Eq. 2). Of equal differences the smallest number counts, by the strict
    comparison of line 9. A limit below the number of stages leaves that number, by line 1. Sizes
    are not rounded to whole tokens, by line 4.

    Args:
        stages: stages of the pipeline.
        most: most micro-batches.
        tokens: tokens of all micro-batches together.
        compute_s: seconds of a stage by the tokens of a micro-batch.
        link_s: seconds of a link by the tokens of a micro-batch.
    """
    best, best_gap_s = stages, inf
    for count in range(stages, most + 1):
        one_s, sent_s = compute_s(tokens / count), link_s(tokens / count)
        first_token_s = stages * one_s + (stages - 1) * sent_s
        gap_s = abs(first_token_s - count * one_s)
        if gap_s < best_gap_s:
            best, best_gap_s = count, gap_s
    return best


def shortest_cycle(shop: FlowShop, tokens: int, most: int, least: int = 1) -> int:
    """Return the number of even micro-batches with the shortest cycle, by rolls of the flow shop.

    Of cycles that differ by less than a hundredth the largest number counts: its micro-batches are
    the smallest, so the pipeline fills first, and new work can enter soonest. There are at most as
    many micro-batches as tokens, or `least`. The choice is cached by the shop and by the tokens,
    which are rounded up to five binary digits: exact up to 32, else at most a sixteenth more.

    Args:
        shop: the pipeline; `FlowShop.rounded` makes learned seconds cacheable.
        tokens: tokens of all micro-batches together.
        most: most micro-batches.
        least: fewest micro-batches, at least 1 and at most `most`.

    Raises:
        ConfigurationError: if `least` is not in 1 to `most`.
    """
    if not 1 <= least <= most:
        raise ConfigurationError(f"at least {least} micro-batches: allowed are 1 to {most}")
    shift = max(tokens.bit_length() - 5, 0)
    return _shortest_cycle(shop, -(-tokens >> shift) << shift, most, least)


@lru_cache(maxsize=4096)
def _shortest_cycle(shop: FlowShop, tokens: int, most: int, least: int) -> int:
    cycles_s: dict[int, float] = {}
    shortest_s = inf
    for count in range(least, max(min(most, tokens), least) + 1):
        sizes = even(tokens, count)
        if shop.bound_s(sizes) <= shortest_s * _ALIKE:
            cycles_s[count] = shop.roll(sizes).cycle_s
            shortest_s = min(shortest_s, cycles_s[count])
    return max(count for count, cycle_s in cycles_s.items() if cycle_s <= shortest_s * _ALIKE)


_ALIKE = 1.01
