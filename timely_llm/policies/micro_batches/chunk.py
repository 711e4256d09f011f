"""Tokens of prompts in a micro-batch with which waiting prompts pass a pipeline soonest."""

from __future__ import annotations

from timely_llm.policies.micro_batches.flow_shop import FlowShop

LEAST = 64
"""Fewest prompt tokens of a micro-batch: a smaller one costs more steps than it saves seconds."""


def soonest_chunk(shop: FlowShop, tokens: int) -> int:
    """Return a power of two: the chunks of prompts after which the last of them ends first.

    Small chunks fill the pipeline sooner; each further one adds the fixed seconds of the busiest
    stage or link. Of equal ends the smallest chunk counts, so that decoding sequences wait least.

    Args:
        shop: the pipeline.
        tokens: prompt tokens that wait, at least 1.
    """

    def end_s(chunk: int) -> float:
        return (-(-tokens // chunk) - 1) * shop.busy_s(1, chunk) + shop.latency_s(chunk)

    most = max(tokens - 1, LEAST).bit_length()
    return min((1 << power for power in range(LEAST.bit_length() - 1, most + 1)), key=end_s)
