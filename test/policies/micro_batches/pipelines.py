"""Pipelines for tests, and a plain simulation of them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from timely_llm.policies.micro_batches.flow_shop import Affine, FlowShop


def simulated_ends_s(shop: FlowShop, sizes: Sequence[int], passes: int) -> list[float]:
    """Return when each pass of all micro-batches ends: every stage and link is a FIFO resource.

    A blocking transfer needs both its stages at once.
    """
    stage_free_s: dict[int, float] = {}
    link_free_s: dict[int, float] = {}
    ready_s = [0.0] * len(sizes)
    ends_s = []
    for _ in range(passes):
        for job, size in enumerate(sizes):
            now = ready_s[job]
            for stage, cost in enumerate(shop.stages):
                now = max(now, stage_free_s.get(stage, 0.0)) + cost.seconds(size)
                stage_free_s[stage] = now
                if stage == len(shop.links):
                    continue
                if shop.blocking:  # both ends meet
                    now = max(now, stage_free_s.get(stage + 1, 0.0))
                else:
                    now = max(now, link_free_s.get(stage, 0.0))
                now += shop.links[stage].seconds(size)
                if shop.blocking:
                    stage_free_s[stage] = stage_free_s[stage + 1] = now
                else:
                    link_free_s[stage] = now
            ready_s[job] = now + shop.overhead_s
        ends_s.append(now)
    return ends_s


_base_s = st.floats(0.0, 0.03)
_token_s = st.floats(1e-5, 2e-3)
_overhead_s = st.sampled_from([0.0, 0.0, 0.004, 0.05])


@st.composite
def shops(draw: st.DrawFn) -> FlowShop:
    """Return a strategy of pipelines of two to five stages, unlike each other."""
    stages = draw(st.integers(2, 5))
    costs = [Affine(draw(_base_s), draw(_token_s)) for _ in range(2 * stages - 1)]
    return FlowShop(
        tuple(costs[:stages]), tuple(costs[stages:]), draw(st.booleans()), draw(_overhead_s)
    )
