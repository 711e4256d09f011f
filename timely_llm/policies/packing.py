"""Turning an order of generations into a step plan that fits the engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from timely_llm.core.generation import Generation
from timely_llm.policies.contract import Capacity, StepPlan


def pack(
    order: Iterable[Generation],
    everyone: Collection[Generation],
    capacity: Capacity,
    rows: int | None = None,
) -> StepPlan:
    """Return the plan that takes generations in `order` while rows, tokens and memory last.

    A prompt longer than what is left of the step's tokens is prefilled in chunks. Memory of
    generations that take no part counts as free: they are evictable, latest due time first.
    """
    order = list(order)
    rows = capacity.max_rows if rows is None else min(rows, capacity.max_rows)
    resting = {g.key: g for g in everyone if g.kv_tokens > 0}
    free = capacity.free_tokens + sum(g.kv_tokens for g in resting.values())
    tokens_left = capacity.max_step_tokens
    entries: list[tuple[str, int]] = []
    for generation in order:
        if len(entries) == rows or tokens_left == 0:
            break
        tokens = min(generation.to_compute, tokens_left)
        # Whoever starts must fit whole: half a prompt in memory helps nobody.
        needed = generation.to_compute + generation.kv_tokens
        if needed > free:
            continue
        entries.append((generation.key, tokens))
        resting.pop(generation.key, None)
        free -= needed
        tokens_left -= tokens
    victims = sorted(resting.values(), key=lambda g: g.due_s, reverse=True)
    return StepPlan(tuple(entries), tuple(g.key for g in victims))
