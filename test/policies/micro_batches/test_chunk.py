"""Chunks of prompts: small where the pipeline is long, large where each step costs much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from test.policies.micro_batches.pipelines import shops
from timely_llm.policies.micro_batches.chunk import LEAST, soonest_chunk
from timely_llm.policies.micro_batches.flow_shop import Affine, FlowShop

SLOW_LINKS = FlowShop((Affine(0.0153, 0.00015),) * 4, (Affine(0.0, 0.001305),) * 3)
FAST_LINKS = SLOW_LINKS._replace(links=(Affine(0.0, 0.00001305),) * 3)


def test_slow_links_get_smaller_chunks_than_fast_ones() -> None:
    assert LEAST < 2 * soonest_chunk(SLOW_LINKS, 2048) <= soonest_chunk(FAST_LINKS, 2048)
    assert soonest_chunk(FAST_LINKS, 16) == LEAST


@given(shops(), st.integers(1, 5000))
def test_a_chunk_ends_no_later_than_other_powers_of_two(shop: FlowShop, tokens: int) -> None:
    def end_s(chunk: int) -> float:
        return (-(-tokens // chunk) - 1) * shop.busy_s(1, chunk) + shop.latency_s(chunk)

    chunk = soonest_chunk(shop, tokens)
    assert chunk >= LEAST
    assert chunk.bit_count() == 1
    assert all(end_s(chunk) <= end_s(1 << power) for power in range(6, 13))
