"""KV that is found in vLLM's prefix cache or loaded by its connectors, instead of being computed.

Both store KV by its tokens. They are asked when a sequence begins, or goes on without its KV. A
prefix-cache hit, or a load that needs no waiting, counts in the same step. A load that finishes
later keeps its sequence out of steps until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from timely_llm.core.errors import EngineError
from timely_llm.core.step import StepPlan
from timely_llm.engines.ledger_engine import KvLedger, rounded
from timely_llm.engines.sequences import AdmittedSequence, AdmittedStep, Sequences, SequenceState

if TYPE_CHECKING:
    from timely_llm.engines.vllm.core import VllmCore

ROOM_S = 5.0
"""Longest wait of a step for blocks that vLLM still stores or loads, seconds."""


class KvLoads:
    """The KV loads of an engine's sequences, in its accounting and in vLLM.

    Args:
        core: vLLM, with a connector or a used prefix cache.
        sequences: the engine's sequences.
        ledger: the engine's accounting.
        begin: begins a request for a sequence with some tokens of KV.
    """

    def __init__(
        self,
        core: VllmCore,
        sequences: Sequences,
        ledger: KvLedger,
        begin: Callable[[SequenceState, int], None],
    ) -> None:
        self._core = core
        self._sequences = sequences
        self._ledger = ledger
        self._begin = begin
        self._starting: dict[str, int] = {}
        self._pending: dict[str, int] = {}
        self._finished: dict[str, int] = {}
        self._refused: set[str] = set()

    def fetch(self, plan: StepPlan) -> Callable[[AdmittedSequence, int], AdmittedSequence | None]:
        """Return the function `fetch` of `KvLedger.admit` for one plan.

        It takes a part and the tokens of its entry. It returns the part after a load, or None if
        the load finishes later. Loads take only KV that the plan leaves free: no sequence is
        evicted for a load.
        """
        spare, block = self._ledger.spare_tokens(plan), self._sequences.block_tokens

        def fetched(part: AdmittedSequence, wanted: int) -> AdmittedSequence | None:
            nonlocal spare
            sequence = part.sequence
            if not self._core.begins(sequence.key):
                return part
            if sequence.key in self._refused:
                self._refused.discard(sequence.key)
                return part
            self._begin(sequence, part.start)
            offered, later = self._core.ask(sequence.key, part.start)
            tokens = min(offered, sequence.to_compute - 1)
            if tokens < 1 or offered > sequence.to_compute - (not later):
                return part
            more_tokens = 0 if later else min(wanted, sequence.to_compute - tokens)
            loaded = AdmittedSequence.of(sequence, part.start + tokens, more_tokens, tokens)
            more = rounded(loaded.stop, block) - rounded(part.stop, block)
            if more > max(spare, 0):
                return part
            spare -= max(more, 0)
            self._core.take(sequence.key, offered, later)
            if not later:
                return loaded
            self._starting[sequence.key] = tokens
            return None

        return fetched

    def start(self, admitted: AdmittedStep) -> None:
        """Wait until vLLM has the blocks of a step, and begin its loads.

        Raises:
            EngineError: vLLM does not get the blocks within `ROOM_S`.
        """
        if self._core.connected:
            self._wait_for_room(admitted)
        if self._starting:
            begun = self._core.start(self._starting)
            starting, self._starting = self._starting, {}
            for key, tokens in starting.items():
                if key in begun:
                    sequence = self._sequences[key]
                    sequence.computed += tokens
                    sequence.loading = self._pending[key] = tokens
                else:
                    self._refuse(key)
        elif self._pending and not admitted.sequences:
            self._core.turn()

    def give_up(self, pinned: Iterable[str]) -> None:
        """Cancel the loads of a failed step, and remove its blocks from the prefix cache.

        Args:
            pinned: keys of pinned prefixes, which stay in the cache.
        """
        for key in self._starting:
            self._core.cancel(key)
        self._starting.clear()
        self._core.forget_prefix_hits(pinned)

    def settle(self, admitted: AdmittedStep) -> None:
        """Record finished loads of a step; invalidate parts with a failed load."""
        for key in list(self._pending):
            came = self._core.load_succeeded(key)
            if came is None:
                continue
            sequence, tokens = self._sequences[key], self._pending.pop(key)
            sequence.loading = 0
            self._finished[key] = tokens if came else 0
            if not came:
                sequence.computed -= tokens
                self._refuse(key)
        for part in admitted.sequences:
            if part.loaded and part.live and self._core.computed(part) < part.stop:
                self._refused.add(part.sequence.key)
                self._ledger.lose(part)
                self._core.hold(part.sequence.key, part.sequence.computed)

    def finished(self, admitted: AdmittedStep) -> dict[str, int]:
        """Return the loads that finished since the last step, tokens by key; 0: the load failed."""
        finished, self._finished = self._finished, {}
        parts = (part for part in admitted.sequences if part.loaded and part.live)
        return finished | {part.sequence.key: part.loaded for part in parts}

    def waiting(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the keys that wait for a load."""
        return tuple(key for key in keys if key in self._pending)

    def drop(self, sequence: SequenceState) -> None:
        """Cancel the running load of a sequence, if there is one."""
        tokens = self._pending.pop(sequence.key, 0)
        if tokens:
            sequence.loading = 0
            sequence.computed -= tokens
            self._finished[sequence.key] = 0
            self._core.cancel(sequence.key)

    def remove(self, key: str) -> None:
        """Drop a sequence."""
        self._pending.pop(key, None)
        self._finished.pop(key, None)
        self._refused.discard(key)

    def _refuse(self, key: str) -> None:
        """Make a sequence begin again without a load."""
        self._core.cancel(key)
        self._refused.add(key)

    def _wait_for_room(self, admitted: AdmittedStep) -> None:
        """Wait while vLLM stores evicted blocks, or loads into blocks of removed sequences."""
        block = self._sequences.block_tokens
        needed = sum(
            rounded(part.stop, block) - rounded(part.start - part.loaded, block)
            for part in admitted.sequences
        )
        needed += sum(rounded(tokens, block) for tokens in self._starting.values())
        end_s = time.monotonic() + ROOM_S
        while self._core.free_blocks * block < needed:
            if time.monotonic() > end_s:
                raise EngineError(
                    f"vLLM's KV connector has kept the blocks of other sequences for {ROOM_S:g} s"
                )
            self._core.turn()
            time.sleep(0.001)
