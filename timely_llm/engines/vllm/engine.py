"""The engine vllm: vLLM's V1 engine, which runs exactly the steps of the policy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from timely_llm.core.errors import EngineError
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult
from timely_llm.engines.contract import GREEDY, Decoding, Prefix
from timely_llm.engines.grammars import Grammars, Matcher
from timely_llm.engines.ledger_engine import KvLedger, allowed_speculation
from timely_llm.engines.sequences import (
    AdmittedStep,
    EngineLimits,
    InFlightSteps,
    Sequences,
    SequenceState,
)
from timely_llm.engines.tokenizer import HubTokenizer, most_positions
from timely_llm.engines.vllm.kv_loads import KvLoads
from timely_llm.engines.vllm.stage_times import StepTimes
from timely_llm.engines.vllm.version import import_core, reason

if TYPE_CHECKING:
    from timely_llm.engines.vllm.core import VllmCore

BLOCK_TOKENS = 32


class _InFlightStep(NamedTuple):
    """A step in flight.

    Attributes:
        admitted: the part of the plan that is carried out.
        speculative: speculative tokens by key.
        submitted_s: time of the submission, seconds.
        keys: keys of the plan; empty if there are no KV loads.
    """

    admitted: AdmittedStep
    speculative: Mapping[str, int]
    submitted_s: float
    keys: tuple[str, ...]


@dataclass
class _Preparing:
    """A prefix that is being prepared: its tokens, its key in `VllmCore`, its computed tokens."""

    token_ids: tuple[int, ...]
    key: str
    computed: int = 0


class VllmEngine:
    """Runs steps on vLLM, in this process.

    KV is kept in whole blocks. After a shared prefix, an eviction or tool output, a sequence goes
    on from the end of its last whole block; the tokens after it are computed again and counted.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: number type of weights and KV: float32, bfloat16, float16 or auto.
        limits: limits of the engine; a model for shorter sequences lowers `max_model_len`. None:
            the defaults.
        block_tokens: tokens of a KV block; on a CPU a multiple of 32, on a GPU of 16.
        engine_args: options of vLLM, by the names of its `EngineArgs`.
        micro_batches: most steps in flight of an engine in stages; 0: as many as stages.

    Raises:
        ModelError: the model cannot be loaded.
        EngineError: vLLM is missing or too old, or does not take the options.
    """

    def __init__(
        self,
        model: str | Path,
        dtype: str = "float32",
        limits: EngineLimits | None = None,
        block_tokens: int = BLOCK_TOKENS,
        engine_args: Mapping[str, Any] | None = None,
        micro_batches: int = 0,
    ) -> None:
        core = import_core()
        self.tokenizer = HubTokenizer(model)
        self.block_tokens = block_tokens
        limits = (limits or EngineLimits()).for_model(most_positions(model))
        try:
            self._core: VllmCore = core.VllmCore(
                str(model), dtype, limits, block_tokens, engine_args or {}, micro_batches
            )
        except EngineError:
            raise
        except Exception as error:  # vLLM can raise anything
            raise EngineError(f"vLLM does not start: {reason(error)}") from error
        self.in_flight = self._core.in_flight
        self.async_scheduling = self._core.async_scheduling
        self._sequences = Sequences(limits, block_tokens)
        self._ledger = KvLedger(
            self._sequences, self._core.speculative_tokens, self.async_scheduling
        )
        self._grammars = Grammars(
            self.tokenizer.backend, self.tokenizer.eos_ids, self._core.vocabulary
        )
        self._matchers: dict[str, Matcher] = {}
        self._loads: KvLoads | None = None
        if self._core.finds_kv:
            self._loads = KvLoads(self._core, self._sequences, self._ledger, self._begin)
        self._prefix_keys: dict[Prefix, str] = {}
        self._preparing: _Preparing | None = None
        self._pins = 0
        self._in_flight = InFlightSteps[_InFlightStep](self.in_flight)
        self._ended_s = 0.0

    @property
    def capacity(self) -> Capacity:
        """Limits of the next step."""
        self._core.check()
        capacity = self._ledger.capacity
        if self._core.stages == 1:
            return capacity
        return replace(capacity, stages=self._core.stages, micro_batches=self.in_flight)

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute the whole blocks of a prefix and keep them; a second call returns the same.

        Raises:
            EngineError: it is too long, there is no room for its KV, or a step is in flight.
        """
        known = self._sequences.prefix(token_ids)
        if known is not None:
            return known
        while self.prepare_prefix(token_ids, self._sequences.limits.max_step_tokens):
            pass
        prepared, self._preparing = self._preparing, None
        assert prepared is not None
        self._core.hold(prepared.key, prepared.computed)
        prefix = self._sequences.pin(token_ids)
        self._prefix_keys[prefix] = prepared.key
        return prefix

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute a part of a prefix like a sequence; see `Engine.prepare_prefix`.

        Raises:
            EngineError: as `pin_prefix`.
        """
        if self._sequences.prefix(token_ids) is not None:
            return 0
        if self._in_flight:
            raise EngineError("collect the submitted steps before a prefix is pinned")
        self._sequences.reserve(token_ids)
        whole = self._sequences.whole_blocks(len(token_ids))
        try:
            if self._preparing is None:
                self._pins += 1
                self._preparing = _Preparing(
                    tuple(token_ids), f"\0{self._pins}"
                )  # no sequence's key
                if whole:
                    ids = token_ids[:whole]
                    self._core.begin(self._preparing.key, ids, 0, None, GREEDY, None)
            most = self._sequences.limits.max_step_tokens
            tokens = min(tokens, whole - self._preparing.computed, most)
            if tokens:
                self._core.submit({self._preparing.key: tokens})
                self._core.collect()
        except Exception:
            self.unpin_prefix(token_ids)
            if self._loads:
                self._loads.give_up(self._prefix_keys.values())
            raise
        self._preparing.computed += tokens
        return whole - self._preparing.computed

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Free the blocks of a prefix; see `Engine.unpin_prefix`."""
        prefix = self._sequences.unpin(token_ids)
        if prefix is not None:
            self._core.end(self._prefix_keys.pop(prefix))
        elif self._preparing is not None and self._preparing.token_ids == tuple(token_ids):
            key, self._preparing = self._preparing.key, None
            self._core.end(key)

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> SequenceProgress:
        """Add a sequence; see `Engine.add`."""
        sequence = self._sequences.add(key, token_ids, prefix, decoding)
        try:
            if decoding.grammar is not None:
                self._matchers[key] = self._grammars.matcher(decoding.grammar, decoding.read)
        except EngineError:
            self._sequences.remove(key)
            raise
        return self._ledger.progress(sequence)

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        """Start one forward pass; see `Engine.submit`."""
        self._in_flight.check_capacity()
        submitted_s = time.monotonic()
        fetch = self._loads.fetch(plan) if self._loads else None
        admitted = self._ledger.admit(plan, fetch)
        for sequence in admitted.evicted:
            self._core.end(sequence.key)
        if self._core.slots is not None:
            self._free_slots(admitted)
        speculative = self._speculate(plan, admitted)
        keys = tuple(key for key, _ in plan.entries) if self._loads else ()
        self._in_flight.add(_InFlightStep(admitted, speculative, submitted_s, keys))
        try:
            if self._loads:
                self._loads.start(admitted)
            for part in admitted.sequences:
                if self._core.begins(part.sequence.key):
                    self._begin(part.sequence, part.start)
            if admitted.sequences:
                self._core.submit(_tokens(admitted, speculative))
        except Exception:
            self._give_up()
            raise
        self._ledger.start(admitted)
        return self._ledger.planned(plan, admitted) if self.in_flight > 1 else {}

    def collect(self) -> StepResult:
        """Wait for the oldest step; see `Engine.collect`."""
        admitted, speculative, submitted_s, keys = self._in_flight.oldest
        new_tokens: dict[str, list[int]] = {}
        logprobs: dict[str, list[float]] = {}
        try:
            if admitted.sequences:
                new_tokens, logprobs = self._core.collect()
        except Exception:
            self._give_up()
            raise
        self._in_flight.pop_oldest()
        begun_s = max(submitted_s, self._ended_s) if self.async_scheduling else submitted_s
        self._ended_s = time.monotonic()
        loaded: dict[str, int] = {}
        loading: tuple[str, ...] = ()
        if self._loads:
            self._loads.settle(admitted)
            loaded, loading = self._loads.finished(admitted), self._loads.waiting(keys)
        duration_s = self._ended_s - begun_s
        times = StepTimes()
        if admitted.sequences:
            times = self._core.stage_times(submitted_s, self._ended_s)
        result = self._ledger.commit(admitted, new_tokens, duration_s, speculative, loaded, loading)
        if times.stages is None and not logprobs:
            return result
        return replace(result, stages=times.stages, overhead_s=times.overhead_s, logprobs=logprobs)

    def take_back(self, key: str, tokens: int) -> SequenceProgress:
        """Remove the newest tokens of a sequence; see `Engine.take_back`."""
        self._drop_load(key)
        in_flight = self._sequences[key].steps_in_flight
        sequence = self._sequences.take_back(key, tokens)
        if tokens or in_flight:
            self._begin_anew(key, sequence)
        return self._ledger.progress(sequence)

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> SequenceProgress:
        """Add tool output; see `Engine.append`. A last block that is not full is computed again."""
        sequence = self._sequences[key]
        self._drop_load(key)
        newest = sequence.token_ids[-1]
        self._sequences.append(key, token_ids, drop)
        if drop and key in self._matchers:
            self._matchers[key].replace(newest, list(token_ids))
        self._begin_anew(key, sequence)
        return self._ledger.progress(sequence)

    def resume(
        self,
        key: str,
        new_key: str,
        token_ids: Sequence[int],
        decoding: Decoding = GREEDY,
        keep: int | None = None,
    ) -> SequenceProgress:
        """Rename a sequence and add tokens; see `Engine.resume` and `append`."""
        grammar = decoding.grammar
        matcher = None if grammar is None else self._grammars.matcher(grammar)
        self._drop_load(key)
        sequence = self._sequences.resume(key, new_key, token_ids, decoding, keep)
        self._matchers.pop(key, None)
        if matcher is not None:
            self._matchers[new_key] = matcher
        self._begin_anew(key, sequence)
        self._core.rename(key, new_key)
        return self._ledger.progress(sequence)

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._sequences.remove(key)
        self._matchers.pop(key, None)
        if self._loads:
            self._loads.remove(key)
        self._core.end(key)

    def close(self) -> None:
        """Free the engine."""
        self._ledger.clear()
        self._matchers.clear()
        self._prefix_keys.clear()
        self._preparing = None
        self._in_flight.clear()
        self._core.close()

    def _begin_anew(self, key: str, sequence: SequenceState) -> None:
        """Keep the whole blocks of a sequence for its next request."""
        sequence.computed = self._sequences.whole_blocks(sequence.computed)
        self._core.hold(key, sequence.computed)

    def _free_slots(self, admitted: AdmittedStep) -> None:
        """End requests of suspended sequences if the step lacks slots; their whole blocks stay."""
        by_key = self._sequences.by_key
        keys = frozenset(part.sequence.key for part in admitted.sequences)
        rests = {key for key, sequence in by_key.items() if not sequence.steps_in_flight}
        for key in self._core.crowded_out(keys, rests):
            sequence = by_key[key]
            self._ledger.shorten(sequence)
            self._core.hold(key, sequence.computed)

    def _speculate(self, plan: StepPlan, admitted: AdmittedStep) -> dict[str, int]:
        """Return the speculative tokens of each sequence in a step, by key."""
        if not self._core.speculative_tokens:
            return {}
        offered = self._core.drafted(part.sequence.key for part in admitted.sequences)
        return allowed_speculation(
            plan, admitted, offered, self._sequences.limits, self.block_tokens
        )

    def _drop_load(self, key: str) -> None:
        if self._loads:
            self._loads.drop(self._sequences[key])

    def _begin(self, sequence: SequenceState, known: int) -> None:
        """Begin a request for a sequence with `known` tokens of KV."""
        prefix = self._prefix_keys[sequence.prefix] if sequence.prefix else None
        self._core.begin(
            sequence.key, sequence.token_ids, known, prefix, sequence.decoding,
            self._matchers.get(sequence.key),
        )  # fmt: skip

    def _give_up(self) -> None:
        """Evict all sequences in flight, since their progress is unknown."""
        for step in self._in_flight:
            for part in step.admitted.sequences:
                if part.live:
                    self._core.end(part.sequence.key)
                    self._ledger.evict(part.sequence)
        self._in_flight.clear()
        if self._loads:
            self._loads.give_up(self._prefix_keys.values())


def _tokens(admitted: AdmittedStep, speculative: Mapping[str, int]) -> dict[str, int]:
    """Return the tokens that each sequence of a step computes, speculative tokens included."""
    tokens = {part.sequence.key: part.tokens for part in admitted.sequences}
    for key, number in speculative.items():
        tokens[key] += number
    return tokens
