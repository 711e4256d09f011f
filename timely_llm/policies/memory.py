"""Whether the KV memory can hold one more running generation (paper 001 §4.4)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import accumulate

from timely_llm.core.generation import Generation
from timely_llm.policies.contract import Capacity
from timely_llm.policies.step_time import StepTime


class Memory:
    """What is free, what is promised to the running batch, and what others may have to give up.

    A generation joins only if there is memory for all it may need until its next boundary, beside
    what the running ones may still need until theirs: so newcomers never push out running ones.
    Whose memory it may take depends on what it is for. A first segment may have that of everyone
    suspended. A later one may have only that of those who are needed after it is ready, and not
    before it is needed itself: else two plans that do not fit together would push each other out
    at every boundary, each time for a whole prefill.

    Args:
        running: the batch so far.
        resting: everyone else.
        capacity: what the engine can take.
        step_time: how long steps take.
        segment_tokens: the longest segment.
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

    def has_room(self, candidate: Generation, now: float) -> bool:
        """Return whether it can join the batch."""
        needed = self._needed(candidate)
        if needed <= self._free:
            return True
        if candidate.first:
            return needed <= self._free + self._held - candidate.kv_tokens
        if now < self._start_by_s(candidate):
            return False
        return needed <= self._free + self._held_after(now + self._segment_s(candidate))

    def has_room_alone(self, candidate: Generation, now: float) -> bool:
        """Return whether it can be the only one of the batch, for its next token at least.

        Then nobody else could go on, so it may take the memory of all.
        """
        room = self._free + self._held - candidate.kv_tokens
        return candidate.to_compute <= room and now >= self._start_by_s(candidate)

    def promise(self, joined: Generation) -> None:
        """Take note that a generation joins the batch."""
        self._free -= self._needed(joined)

    def next_start_s(self, queue: Iterable[Generation], now: float) -> float:
        """Return when the next one of a queue may take the memory of others."""
        starts_s = map(self._start_by_s, queue)
        return min((start_s for start_s in starts_s if start_s > now), default=math.inf)

    def _start_by_s(self, candidate: Generation) -> float:
        """Return from when on its next segment is needed: when it would be late otherwise."""
        return -math.inf if candidate.first else candidate.due_s - self._segment_s(candidate)

    def _needed(self, generation: Generation) -> int:
        """Return the tokens it may still store until its next boundary."""
        # The last token of a segment is computed only with the next segment.
        left = self._segment_tokens - generation.segment_tokens - 1
        return generation.to_compute + max(left, 0)

    def _segment_s(self, generation: Generation) -> float:
        """Return how long its longest next segment takes, with what must be prefilled for it."""
        prefill_s = self._step_time.predict_s(0, generation.to_compute)
        return prefill_s + (self._segment_tokens - 1) * self._step_time.predict_s(1)

    @cached_property
    def _held(self) -> int:
        return sum(g.kv_tokens for g in self._resting)

    def _held_after(self, ready_s: float) -> int:
        """Return the memory of those whose next segment is due only after `ready_s`."""
        dues, held = self._by_due
        return held[-1] - held[bisect_right(dues, ready_s)]

    @cached_property
    def _by_due(self) -> tuple[Sequence[float], Sequence[int]]:
        """Return due times in order, and the memory of all who are due before each."""
        order = sorted(self._resting, key=lambda g: g.due_s)
        held = accumulate((g.kv_tokens for g in order), initial=0)
        return [g.due_s for g in order], list(held)
