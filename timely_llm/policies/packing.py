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
    generations that take no part counts as free: where the step needs it they are evictable,
    latest due time first.
    """
    rows = capacity.max_rows if rows is None else min(rows, capacity.max_rows)
    room, counts_all = capacity.free_tokens, False
    tokens_left = capacity.max_step_tokens
    entries: dict[str, int] = {}
    for generation in order:
        if len(entries) == rows or tokens_left == 0:
            break
        # Whoever starts must fit whole: half a prompt in memory helps nobody.
        needed = to_compute = generation.to_compute
        if needed > room and not counts_all:
            # Only now does it matter what the others hold.
            room += sum(g.kv_tokens for g in everyone if g.key not in entries)
            counts_all = True
        if counts_all:
            needed += generation.kv_tokens
        if needed > room:
            continue
        room -= needed
        tokens = to_compute if to_compute < tokens_left else tokens_left
        entries[generation.key] = tokens
        tokens_left -= tokens
    planned = capacity.max_step_tokens - tokens_left
    evictable = _victims(everyone, entries) if planned > capacity.free_tokens else ()
    return StepPlan(tuple(entries.items()), evictable)


def _victims(everyone: Collection[Generation], entries: Collection[str]) -> tuple[str, ...]:
    """Return who can give up memory, the one whose next segment is due last first."""
    resting = [g for g in everyone if g.kv_tokens > 0 and g.key not in entries]
    resting.sort(key=lambda g: g.due_s, reverse=True)
    return tuple(g.key for g in resting)
