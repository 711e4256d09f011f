"""The embedded engine: decoders of the library transformers, in packed steps."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from timely_llm.core.errors import EngineError, ModelError
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult
from timely_llm.engines.contract import GREEDY, Decoding, Prefix
from timely_llm.engines.grammars import Grammars
from timely_llm.engines.ledger_engine import KvLedger
from timely_llm.engines.sequences import (
    AdmittedSequence,
    EngineLimits,
    InFlightSteps,
    Sequences,
    SequenceState,
)
from timely_llm.engines.tokenizer import HubTokenizer
from timely_llm.engines.transformers.attention import PackedSequence, PackedStep
from timely_llm.engines.transformers.kv_pool import KvPool, PrefixKv
from timely_llm.engines.transformers.model import PackedModel, alike, check_model, choose_device
from timely_llm.engines.transformers.sampling import ChosenTokens, Sampler

_PREFIX = "\0prefix"  # no sequence has this key
_NO_SLOTS = np.empty(0, dtype=np.int64)


class TransformersEngine:
    """Runs the tokens of all sequences of a step as one row, without padding.

    A sequence keeps its KV until it is removed or evicted. The KV of a pinned prefix is stored
    once. In float32 the tokens of a sequence, sampled or most likely ones, do not depend on the
    other sequences in its steps.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: of weights and KV: float32, bfloat16 or float16.
        device: cpu, cuda, or auto: cuda where there is one.
        threads: CPU threads of torch, in the whole process.
        limits: limits of the engine; a model for shorter sequences lowers `max_model_len`. None:
            the defaults.

    Raises:
        ModelError: the model cannot be loaded or is not supported.
        EngineError: the device, the dtype or a limit is impossible.
    """

    in_flight = 1
    async_scheduling = False

    def __init__(
        self,
        model: str | Path,
        dtype: str = "float32",
        device: str = "auto",
        threads: int = 1,
        limits: EngineLimits | None = None,
    ) -> None:
        if threads < 1:
            raise EngineError(f"threads must be at least 1, not {threads}")
        torch.set_num_threads(threads)
        self._model = PackedModel(model, dtype, choose_device(device))
        self.tokenizer = HubTokenizer(model)
        self._sampler = Sampler(
            Grammars(self.tokenizer.backend, self.tokenizer.eos_ids, self._model.vocabulary)
        )
        limits = (limits or EngineLimits()).for_model(self._model.max_positions)
        self._sequences = Sequences(limits)
        self._ledger = KvLedger(self._sequences)
        self._slots: dict[str, np.ndarray] = {}
        self._prefixes: dict[Prefix, PrefixKv] = {}
        self._shared: dict[str, PrefixKv] = {}
        self._preparing: SequenceState | None = None
        self._pool = self._new_pool(64)
        self._check()
        self._pool = self._new_pool(self._sequences.limits.kv_tokens)
        self._in_flight = InFlightSteps[StepResult]()

    @property
    def capacity(self) -> Capacity:
        """Limits of the next step."""
        return self._ledger.capacity

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute a prefix and keep its KV; a second call returns the same.

        Raises:
            EngineError: it is too long, or there is no room for its KV.
        """
        known = self._sequences.prefix(token_ids)
        if known is not None:
            return known
        while self.prepare_prefix(token_ids, self._sequences.limits.max_step_tokens):
            pass
        kv = self._pool.prefix(self._slots[_PREFIX]) if token_ids else None
        self._drop_prepared()
        prefix = self._sequences.pin(token_ids)
        if kv is not None:
            self._prefixes[prefix] = kv
        return prefix

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute a part of a prefix like a sequence; see `Engine.prepare_prefix`."""
        if self._sequences.prefix(token_ids) is not None:
            return 0
        self._sequences.reserve(token_ids)
        sequence = self._preparing or SequenceState(_PREFIX, list(token_ids), None, 0, 0, 0)
        self._preparing = sequence
        tokens = min(tokens, sequence.to_compute, self._sequences.limits.max_step_tokens)
        if tokens:
            try:
                self._forward([AdmittedSequence.of(sequence, sequence.computed, tokens)])
            except Exception:
                self.unpin_prefix(token_ids)
                raise
            sequence.computed += tokens
        return sequence.to_compute

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Free the KV of a prefix; see `Engine.unpin_prefix`."""
        prefix = self._sequences.unpin(token_ids)
        if prefix is not None:
            self._prefixes.pop(prefix, None)
        elif self._preparing is not None and self._preparing.token_ids == list(token_ids):
            self._drop_prepared()

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
            self._sampler.begin(sequence)
        except EngineError:
            self._sequences.remove(key)
            raise
        if sequence.prefix:
            self._shared[key] = self._prefixes[sequence.prefix]
        return self._ledger.progress(sequence)

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        """Run one forward pass; see `Engine.submit`."""
        self._in_flight.check_capacity()
        start_s = time.perf_counter()
        admitted = self._ledger.admit(plan)
        for sequence in admitted.evicted:
            self._free(sequence.key)
        chosen = self._compute(admitted.sequences)
        admitted = admitted.without(chosen.failures)
        duration_s = time.perf_counter() - start_s
        new_tokens = {key: (token_id,) for key, token_id in chosen.tokens.items()}
        result = self._ledger.commit(admitted, new_tokens, duration_s)
        if chosen.logprobs:
            result = replace(result, logprobs={key: (of,) for key, of in chosen.logprobs.items()})
        self._in_flight.add(result)
        return {}

    def collect(self) -> StepResult:
        """Return the result of the submitted step."""
        return self._in_flight.pop_oldest()

    def take_back(self, key: str, tokens: int) -> SequenceProgress:
        """Remove the newest tokens of a sequence; see `Engine.take_back`."""
        return self._ledger.progress(self._sequences.take_back(key, tokens))

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> SequenceProgress:
        """Add tool output; see `Engine.append`."""
        sequence = self._sequences[key]
        newest = sequence.token_ids[-1]
        self._sequences.append(key, token_ids, drop)
        if drop:
            self._sampler.replace(key, newest, token_ids)
        return self._ledger.progress(sequence)

    def resume(
        self,
        key: str,
        new_key: str,
        token_ids: Sequence[int],
        decoding: Decoding = GREEDY,
        keep: int | None = None,
    ) -> SequenceProgress:
        """Rename a sequence and add tokens; see `Engine.resume`."""
        self._sampler.check(decoding.grammar)
        sequence = self._sequences.resume(key, new_key, token_ids, decoding, keep)
        self._sampler.end(key)
        self._sampler.begin(sequence)
        if key in self._slots:
            slots, own = self._slots.pop(key), sequence.kv_tokens
            self._slots[new_key] = slots[:own]
            if own < len(slots):
                self._pool.give_back(slots[own:])
        if key in self._shared:
            self._shared[new_key] = self._shared.pop(key)
        return self._ledger.progress(sequence)

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._sequences.remove(key)
        self._shared.pop(key, None)
        self._sampler.end(key)
        self._free(key)

    def close(self) -> None:
        """Free the KV; the weights are freed with the object."""
        self._ledger.clear()
        self._slots.clear()
        self._shared.clear()
        self._prefixes.clear()
        self._preparing = None
        self._sampler.clear()
        self._pool = self._new_pool(0)
        self._in_flight.clear()

    def _check(self) -> None:
        """Check that the model can be served; run its fused decoder if that has the same logits."""
        expected = self._logits_of_check()
        self._model.fuse(True)
        try:
            self._model.fuse(alike(self._logits_of_check(), expected))
        except (RuntimeError, ModelError):  # the model is not built like Llama
            self._model.fuse(False)

    def _logits_of_check(self) -> Tensor:
        try:
            return check_model(self._model.name, self._model.vocabulary, self._forward)
        finally:
            for key in list(self._slots):
                self._free(key)

    def _compute(self, parts: Sequence[AdmittedSequence]) -> ChosenTokens:
        """Compute parts and choose their next tokens. A failed part keeps no KV."""
        if not parts:
            return ChosenTokens({}, {}, {})
        logits = self._forward(parts)
        finished = [part.sequence for part in parts if part.finishes]
        try:
            chosen = self._sampler.choose(finished, logits[: len(finished)])
        except Exception:
            self._take_back(parts)
            raise
        self._take_back([part for part in parts if part.sequence.key in chosen.failures])
        return chosen

    def _forward(self, parts: Sequence[AdmittedSequence]) -> Tensor:
        """Compute parts; return the logits of parts that finish, of one token if none does."""
        row: list[int] = []
        positions: list[int] = []
        ends: list[int] = []
        members = {}
        for part in parts:
            sequence = part.sequence
            row += sequence.token_ids[part.start : part.stop]
            positions += range(part.start, part.stop)
            if part.finishes:
                ends.append(len(row) - 1)
            slots = np.concatenate(
                (self._slots.get(sequence.key, _NO_SLOTS), self._pool.take(part.tokens))
            )
            members[sequence.key] = PackedSequence(
                sequence.key, part.tokens, slots, self._shared.get(sequence.key)
            )
        try:
            step = PackedStep(list(members.values()), self._pool, self._model.device)
            logits = self._model.forward(row, positions, ends or [0], step)
        except Exception:
            for member in members.values():
                self._pool.give_back(member.slots[-member.tokens :])
            raise
        self._slots.update((key, member.slots) for key, member in members.items())
        return logits

    def _drop_prepared(self) -> None:
        """Free the KV that a prefix has as a sequence."""
        self._preparing = None
        self._free(_PREFIX)

    def _take_back(self, parts: Sequence[AdmittedSequence]) -> None:
        """Free the KV of failed parts."""
        for part in parts:
            slots = self._slots[part.sequence.key]
            self._pool.give_back(slots[-part.tokens :])
            self._slots[part.sequence.key] = slots[: -part.tokens]

    def _free(self, key: str) -> None:
        """Free a sequence's own KV."""
        if key in self._slots:
            self._pool.give_back(self._slots.pop(key))

    def _new_pool(self, slots: int) -> KvPool:
        try:
            return KvPool(self._model.shapes, slots, self._model.dtype, self._model.device)
        except RuntimeError as error:  # torch's, also for memory
            raise EngineError(
                f"no memory for the KV of {slots} tokens on {self._model.device}: lower kv_tokens"
            ) from error
