"""What nobody with a promise needs of the engine, for the streams that were promised nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from timely_llm.core.generation import StreamGeneration
from timely_llm.policies.contract import Capacity, StepPlan
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime

_LEAST_CHUNK = 16
"""Tokens of a prompt: beside others, to compute fewer is not worth while."""


def fill(
    waiting: Sequence[StreamGeneration],
    begins_s: Sequence[float],
    now: float,
    most_s: float,
    step_time: StepTime,
    capacity: Capacity,
) -> StepPlan:
    """Return a step of streams that would wait otherwise; empty if none of them may have a token.

    The first of them is taken in any case, the others while the step stays short enough. A prompt
    that is longer than that is computed in pieces, one prompt a step. Nobody gives up memory for
    them but those of them that come later in their order.

    Args:
        waiting: the streams, who comes first first.
        begins_s: when the next token of each may be begun.
        now: the time, seconds.
        most_s: seconds that the step may take.
        step_time: how long steps take.
        capacity: what the engine can take.
    """
    token_s = step_time.coefficients[2]
    lendable = sum(stream.kv_tokens for stream in waiting)
    free = capacity.free_tokens
    taken: list[StreamGeneration] = []
    rows = context = tokens = prompt = 0
    for stream, begin_s in zip(waiting, begins_s, strict=True):
        lendable -= stream.kv_tokens
        if begin_s > now or stream.to_compute > free + lendable or rows == capacity.max_rows:
            continue
        with_it = context + stream.context_tokens
        left_s = most_s - step_time.predict_s(rows + 1, prompt, with_it)
        chunk = stream.to_compute
        if chunk == 1:
            if taken and left_s < 0.0:
                break
        elif prompt:
            continue
        else:
            if chunk * token_s > left_s:
                least = _LEAST_CHUNK if taken else 1
                chunk = max(int(left_s / token_s), 0 if taken else 1)
                if chunk < least:
                    continue
            prompt = chunk
        taken.append(stream)
        free -= stream.to_compute
        rows, context, tokens = rows + 1, with_it, tokens + chunk
    # Prompts come last: the tokens that are left are theirs.
    taken.sort(key=lambda stream: stream.to_compute > 1)
    short = replace(capacity, max_step_tokens=max(min(tokens, capacity.max_step_tokens), 1))
    plan = pack(taken, waiting, short)
    places = {stream.key: place for place, stream in enumerate(waiting)}
    last_first = tuple(sorted(plan.evictable, key=places.__getitem__, reverse=True))
    wake_s = min((begin_s for begin_s in begins_s if begin_s > now), default=math.inf)
    return StepPlan(plan.entries, last_first, wake_s)
