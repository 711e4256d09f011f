"""The embedded engine: any decoder of the transformers library, in packed steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from timely_llm.core.errors import EngineError, ModelError
from timely_llm.engines.contract import GREEDY, Decoding, Prefix, StepResult
from timely_llm.engines.flights import Flights
from timely_llm.engines.grammars import Grammars
from timely_llm.engines.ledger import Ledger
from timely_llm.engines.tokenizer import HubTokenizer
from timely_llm.engines.track import Limits, Part, Track
from timely_llm.engines.transformers_attention import Member, PackedStep
from timely_llm.engines.transformers_check import alike, check_model
from timely_llm.engines.transformers_choice import Choices
from timely_llm.engines.transformers_kv import KvPool, PrefixKv
from timely_llm.engines.transformers_model import PackedModel, choose_device
from timely_llm.policies.contract import Capacity, StepPlan

_PREFIX = "\0prefix"  # the name of no sequence
_NO_SLOTS = np.empty(0, dtype=np.int64)


class TransformersEngine:
    """Runs the tokens of all sequences of a step as one row, without padding.

    The KV of a sequence is kept until it is removed or evicted, wherever it is in plans; a pinned
    prefix is stored once, for all. In float32 a sequence's tokens do not depend on who shares its
    steps, whether they are the most likely ones or drawn.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: of weights and KV: float32, bfloat16 or float16.
        device: cpu, cuda, or auto: cuda where there is one.
        threads: of the CPU; this is a setting of torch's for the whole process.
        limits: what it takes; a model made for shorter sequences lowers `max_model_len`.

    Raises:
        ModelError: the model cannot be loaded or is not supported.
        EngineError: the device, dtype or a limit is not possible.
    """

    in_flight = 1
    ahead = False

    def __init__(
        self,
        model: str | Path,
        dtype: str = "float32",
        device: str = "auto",
        threads: int = 1,
        limits: Limits | None = None,
    ) -> None:
        if threads < 1:
            raise EngineError(f"threads must be at least 1, not {threads}")
        torch.set_num_threads(threads)
        self._model = PackedModel(model, dtype, choose_device(device))
        self.tokenizer = HubTokenizer(model)
        self._choices = Choices(
            Grammars(self.tokenizer.backend, self.tokenizer.eos_ids, self._model.vocabulary)
        )
        self._ledger = Ledger((limits or Limits()).for_model(self._model.max_positions))
        self._slots: dict[str, np.ndarray] = {}
        self._prefixes: dict[Prefix, PrefixKv] = {}
        self._shared: dict[str, PrefixKv] = {}
        self._preparing: Track | None = None
        self._pool = self._new_pool(64)
        self._check()
        self._pool = self._new_pool(self._ledger.limits.kv_tokens)
        self._flights = Flights[StepResult]()

    @property
    def capacity(self) -> Capacity:
        """What the next step can take."""
        return self._ledger.capacity

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute a prefix and keep its KV; asking again returns the same.

        Raises:
            EngineError: it is too long, or there is no room for its KV.
        """
        known = self._ledger.prefix(token_ids)
        if known is not None:
            return known
        while self.prepare_prefix(token_ids, self._ledger.limits.max_step_tokens):
            pass
        kv = self._pool.prefix(self._slots[_PREFIX]) if token_ids else None
        self._drop_prepared()
        prefix = self._ledger.pin(token_ids)
        if kv is not None:
            self._prefixes[prefix] = kv
        return prefix

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute a part of a prefix as of a sequence; see `Engine.prepare_prefix`."""
        if self._ledger.prefix(token_ids) is not None:
            return 0
        self._ledger.reserve(token_ids)
        track = self._preparing or Track(_PREFIX, list(token_ids), None, 0, 0, 0)
        self._preparing = track
        tokens = min(tokens, track.to_compute, self._ledger.limits.max_step_tokens)
        if tokens:
            try:
                self._forward([Part.of(track, track.computed, tokens)])
            except Exception:
                self.unpin_prefix(token_ids)
                raise
            track.computed += tokens
        return track.to_compute

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Free the KV of a prefix; see `Engine.unpin_prefix`."""
        prefix = self._ledger.unpin(token_ids)
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
    ) -> int:
        """Make a sequence known; see `Engine.add`."""
        track = self._ledger.add(key, token_ids, prefix, decoding)
        try:
            self._choices.begin(track)
        except EngineError:
            self._ledger.remove(key)
            raise
        if track.prefix:
            self._shared[key] = self._prefixes[track.prefix]
        return track.to_compute

    def submit(self, plan: StepPlan) -> None:
        """Run one forward pass; see `Engine.submit`."""
        self._flights.check_room()
        start_s = time.perf_counter()
        admission = self._ledger.admit(plan)
        for track in admission.evicted:
            self._free(track.key)
        new_tokens, failures = self._compute(admission.parts)
        admission = admission.without(failures)
        duration_s = time.perf_counter() - start_s
        self._flights.start(self._ledger.commit(admission, new_tokens, duration_s))

    def collect(self) -> StepResult:
        """Return what the submitted step did."""
        return self._flights.land()

    def take_back(self, key: str, tokens: int) -> int:
        """Forget the newest tokens of a sequence; see `Engine.take_back`."""
        return self._ledger.take_back(key, tokens).to_compute  # it guesses nothing

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> int:
        """Add outside words; see `Engine.append`."""
        track = self._ledger[key]
        newest = track.token_ids[-1]
        self._ledger.append(key, token_ids, drop)
        if drop:
            self._choices.replace(key, newest, token_ids)
        return track.to_compute

    def resume(
        self, key: str, new_key: str, token_ids: Sequence[int], decoding: Decoding = GREEDY
    ) -> int:
        """Go on with a sequence under another name; see `Engine.resume`."""
        track = self._ledger.resume(key, new_key, token_ids, decoding)
        self._choices.end(key)
        if key in self._slots:
            self._slots[new_key] = self._slots.pop(key)
        if key in self._shared:
            self._shared[new_key] = self._shared.pop(key)
        return track.to_compute

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._ledger.remove(key)
        self._shared.pop(key, None)
        self._choices.end(key)
        self._free(key)

    def close(self) -> None:
        """Free the KV; the weights go with the engine itself."""
        self._ledger.clear()
        self._slots.clear()
        self._shared.clear()
        self._prefixes.clear()
        self._preparing = None
        self._choices.clear()
        self._pool = self._new_pool(0)
        self._flights.clear()

    def _check(self) -> None:
        """Find out whether the model can be served, and whether fewer operations say the same."""
        expected = self._logits_of_check()
        self._model.fuse(True)
        try:
            self._model.fuse(alike(self._logits_of_check(), expected))
        except (RuntimeError, ModelError):  # the operations do not suit this model
            self._model.fuse(False)

    def _logits_of_check(self) -> Tensor:
        try:
            return check_model(self._model.name, self._model.vocabulary, self._forward)
        finally:
            for key in list(self._slots):
                self._free(key)

    def _compute(self, parts: Sequence[Part]) -> tuple[dict[str, tuple[int]], dict[str, str]]:
        """Compute parts; return the new tokens by key, and who failed, whose KV is given back."""
        if not parts:
            return {}, {}
        logits = self._forward(parts)
        finished = [part.track for part in parts if part.finishes]
        try:
            tokens, failures = self._choices.choose(finished, logits[: len(finished)])
        except Exception:
            self._take_back(parts)
            raise
        self._take_back([part for part in parts if part.track.key in failures])
        return {key: (token_id,) for key, token_id in tokens.items()}, failures

    def _forward(self, parts: Sequence[Part]) -> Tensor:
        """Compute parts; return the logits of those that finish, of one token if none does."""
        row: list[int] = []
        positions: list[int] = []
        ends: list[int] = []
        members = {}
        for part in parts:
            track = part.track
            row += track.token_ids[part.start : part.stop]
            positions += range(part.start, part.stop)
            if part.finishes:
                ends.append(len(row) - 1)
            slots = np.concatenate(
                (self._slots.get(track.key, _NO_SLOTS), self._pool.take(part.tokens))
            )
            members[track.key] = Member(track.key, part.tokens, slots, self._shared.get(track.key))
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
        """Give back the KV that a prefix had as a sequence."""
        self._preparing = None
        self._free(_PREFIX)

    def _take_back(self, parts: Sequence[Part]) -> None:
        """Give the KV of parts back that were computed for nothing."""
        for part in parts:
            slots = self._slots[part.track.key]
            self._pool.give_back(slots[-part.tokens :])
            self._slots[part.track.key] = slots[: -part.tokens]

    def _free(self, key: str) -> None:
        """Give a sequence's own KV back."""
        if key in self._slots:
            self._pool.give_back(self._slots.pop(key))

    def _new_pool(self, slots: int) -> KvPool:
        try:
            return KvPool(self._model.shapes, slots, self._model.dtype, self._model.device)
        except RuntimeError as error:  # torch's, also for memory
            raise EngineError(
                f"no memory for the KV of {slots} tokens on {self._model.device}: lower kv_tokens"
            ) from error
