"""What fits into a step: its rows, its tokens and the KV memory."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import accumulate

from timely_llm.core.generation import Generation
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.step_time import StepTime


def pack(
    order: Collection[Generation],
    everyone: Collection[Generation],
    capacity: Capacity,
    rows: int | None = None,
    why: dict[str, Reason] | None = None,
    tokens: int | None = None,
    prompts_evict: bool = True,
) -> StepPlan:
    """Return the step plan with generations in `order` while rows, tokens and memory last.

    A prompt that exceeds the remaining tokens of the step is prefilled in chunks. Memory of other
    generations counts as free: where the step needs it, they are evictable, latest due time first.

    Args:
        order: generations that may take part, the first first.
        everyone: the pool.
        capacity: what the engine can take.
        rows: most generations in the step; None: as many as the engine takes.
        why: reasons by key: completed for the generations of `order` that the step cannot take,
            and carried by the plan; None: no reasons.
        tokens: most tokens of the step; None: as many as the engine takes.
        prompts_evict: a generation without KV may evict others. Else it waits for free memory, and
            those without KV behind it wait too.
    """
    rows = capacity.max_rows if rows is None else min(rows, capacity.max_rows)
    room, counts_all = capacity.free_tokens, False
    most_tokens = capacity.max_step_tokens
    if tokens is not None and tokens < most_tokens:
        most_tokens = tokens
    tokens_left = most_tokens
    entries: dict[str, int] = {}
    queued = False
    for generation in order:
        if not tokens_left or len(entries) == rows:
            break
        # A generation must fit whole: half a prompt in memory yields no token.
        needed = to_compute = generation.to_compute
        if (
            not prompts_evict
            and generation.kv_tokens <= 0
            and (queued or needed > capacity.free_tokens - most_tokens + tokens_left)
        ):
            queued = True
            if why is not None:
                why[generation.key] = Reason(Cause.MEMORY, needed - capacity.free_tokens)
            continue
        if needed > room and not counts_all:
            # Summed only where it is needed: most steps need no eviction.
            room += sum(g.kv_tokens for g in everyone if g.key not in entries)
            counts_all = True
        if counts_all:
            needed += generation.kv_tokens
        if needed > room:
            if why is not None:
                why[generation.key] = Reason(Cause.MEMORY, needed - room)
            continue
        room -= needed
        computed = to_compute if to_compute < tokens_left else tokens_left
        entries[generation.key] = computed
        tokens_left -= computed
    planned = most_tokens - tokens_left
    evictable = _victims(everyone, entries) if planned > capacity.free_tokens else ()
    if why is None:
        return StepPlan(tuple(entries.items()), evictable)
    full = (
        Reason(Cause.ROWS, rows) if len(entries) == rows else Reason(Cause.STEP_TOKENS, most_tokens)
    )
    for generation in order:
        key = generation.key
        if key not in entries and (key not in why or why[key].cause.joined):
            why[key] = full
    return StepPlan(tuple(entries.items()), evictable, reasons=tuple(why.items()))


def _victims(everyone: Collection[Generation], entries: Collection[str]) -> tuple[str, ...]:
    """Return the keys of evictable generations, latest due time first."""
    resting = [g for g in everyone if g.kv_tokens > 0 and g.key not in entries]
    resting.sort(key=lambda g: g.due_s, reverse=True)
    return tuple(g.key for g in resting)


class Memory:
    """KV memory: free tokens, tokens reserved for the batch, and tokens that evictions could free.

    It answers whether the batch can take one more generation. Ling et al. 2024, §4.4, says that the
    free memory is monitored for that, and no more. The rules below are this package's.

    A generation joins only if there is memory for all tokens until its next boundary, beside those
    that the running generations may still need. So a new generation never evicts a running one.
    A first segment may evict any suspended sequence. A later segment may evict only sequences due
    after it completes, and only once it is urgent itself. Otherwise two plans that do not fit
    together would evict each other at every boundary, each time for a whole prefill.

    Args:
        running: the batch so far.
        resting: all other generations.
        capacity: limits of the engine.
        step_time: predicted seconds of steps.
        segment_tokens: tokens of the longest segment.
    """

    def __init__(
        self,
        running: Collection[Generation],
        resting: Collection[Generation],
        capacity: Capacity,
        step_time: StepTime,
        segment_tokens: int,
    ) -> None:
        self._resting = resting
        self._step_time = step_time
        self._segment_tokens = segment_tokens
        self._free = capacity.free_tokens - sum(map(self._needed, running))

    def has_room(self, candidate: Generation, now: float, evicts: bool = True) -> bool:
        """Return whether the memory can hold it in the batch.

        Args:
            candidate: the generation.
            now: the time, seconds.
            evicts: a later segment may evict others, if it is urgent.
        """
        needed = self._needed(candidate)
        if needed <= self._free:
            return True
        if candidate.first:
            return needed <= self._free + self._held - candidate.kv_tokens
        if not evicts or now < self._start_by_s(candidate):
            return False
        return needed <= self._free + self._held_after(now + self._segment_s(candidate))

    def has_room_alone(self, candidate: Generation, now: float) -> bool:
        """Return whether a batch of it alone fits, for its next token at least.

        It may evict all others then, since none of them could go on.
        """
        room = self._free + self._held - candidate.kv_tokens
        return candidate.to_compute <= room and now >= self._start_by_s(candidate)

    def refusal(self, candidate: Generation) -> Reason:
        """Return why `has_room` is false: the tokens that are missing."""
        return Reason(Cause.MEMORY, self._needed(candidate) - self._free)

    def promise(self, joined: Generation) -> None:
        """Reserve the memory of a generation that joins the batch."""
        self._free -= self._needed(joined)

    def next_start_s(self, queue: Iterable[Generation], now: float) -> float:
        """Return when the next generation of a queue may evict others."""
        starts_s = map(self._start_by_s, queue)
        return min((start_s for start_s in starts_s if start_s > now), default=math.inf)

    def _start_by_s(self, candidate: Generation) -> float:
        """Return the latest start at which the next segment is in time."""
        return -math.inf if candidate.first else candidate.due_s - self._segment_s(candidate)

    def _needed(self, generation: Generation) -> int:
        """Return the tokens that it may still store until its next boundary."""
        # The last token of a segment is computed only with the next segment.
        left = self._segment_tokens - generation.segment_tokens - 1
        return generation.to_compute + max(left, 0)

    def _segment_s(self, generation: Generation) -> float:
        """Return the seconds of its longest next segment, prefill included."""
        prefill_s = self._step_time.first_s(0, generation.to_compute)
        return prefill_s + (self._segment_tokens - 1) * self._step_time.predict_s(1)

    @cached_property
    def _held(self) -> int:
        return sum(g.kv_tokens for g in self._resting)

    def _held_after(self, ready_s: float) -> int:
        """Return the memory of the generations that are due after `ready_s`."""
        dues, held = self._by_due
        return held[-1] - held[bisect_right(dues, ready_s)]

    @cached_property
    def _by_due(self) -> tuple[Sequence[float], Sequence[int]]:
        """Return due times in order, and the memory of all generations due before each."""
        order = sorted(self._resting, key=lambda g: g.due_s)
        held = accumulate((g.kv_tokens for g in order), initial=0)
        return [g.due_s for g in order], list(held)
