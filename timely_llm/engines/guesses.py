"""How many guessed tokens a step may compute beside what its plan asks for."""

from __future__ import annotations

from collections.abc import Mapping

from timely_llm.engines.track import Admission, Limits
from timely_llm.policies.contract import StepPlan


def allowed(
    plan: StepPlan,
    admission: Admission,
    offered: Mapping[str, int],
    limits: Limits,
    block_tokens: int,
) -> dict[str, int]:
    """Return how many guessed tokens each sequence of a step computes, none left out.

    They fill what the plan leaves of the step, and of the block of KV that their sequence's own
    token is stored in: wrong ones hold no block, and nobody gives up KV for a guess.

    Args:
        plan: what was asked.
        admission: what of the plan is carried out.
        offered: how many tokens are guessed, by key.
        limits: what the engine can take.
        block_tokens: tokens of a block of KV.
    """
    wanted = dict(plan.entries)
    left = limits.max_step_tokens - sum(part.tokens for part in admission.parts)
    guesses = {}
    for part in admission.parts:
        track = part.track
        if part.tokens > 1 or not part.finishes:
            continue
        in_block = -part.stop % block_tokens
        in_length = limits.max_model_len - 1 - len(track.token_ids)
        tokens = min(offered.get(track.key, 0), wanted[track.key] - 1, in_block, in_length, left)
        if tokens > 0:
            guesses[track.key] = tokens
            left -= tokens
    return guesses
