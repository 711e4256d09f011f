"""The engine vLLM: its V1 engine, whose every step is the policy's."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import GREEDY, Decoding, Prefix, StepResult
from timely_llm.engines.flights import Flights
from timely_llm.engines.grammars import Grammars, Matcher
from timely_llm.engines.guesses import allowed
from timely_llm.engines.ledger import Ledger
from timely_llm.engines.positions import most_positions
from timely_llm.engines.tokenizer import HubTokenizer
from timely_llm.engines.track import Admission, Limits, Track
from timely_llm.engines.vllm_version import import_core, reason
from timely_llm.policies.contract import Capacity, StepPlan

if TYPE_CHECKING:
    from timely_llm.engines.vllm_core import VllmCore

BLOCK_TOKENS = 32


class _Flight(NamedTuple):
    """A step in flight, how many tokens are guessed in it, and when it was submitted, seconds.

    The keys are those of its plan, where KV may be on its way.
    """

    admission: Admission
    guessed: Mapping[str, int]
    submitted_s: float
    keys: tuple[str, ...]


@dataclass
class _Preparing:
    """A prefix before it is pinned: the name of its request, and how much of it is computed."""

    token_ids: tuple[int, ...]
    key: str
    computed: int = 0


class VllmEngine:
    """Runs steps on vLLM, in this process.

    KV is kept in blocks: what is shared, evicted or goes on after outside words begins anew at the
    end of a block, and what is computed again for that is counted.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: of weights and KV: float32, bfloat16, float16 or auto.
        limits: what it takes; a model made for shorter sequences lowers `max_model_len`.
        block_tokens: tokens of a block of KV; on a CPU a multiple of 32, on a GPU of 16.
        engine_args: options of vLLM's own, by the names of its `EngineArgs`.

    Raises:
        ModelError: the model cannot be loaded.
        EngineError: vLLM is missing or too old, or does not take the options.
    """

    def __init__(
        self,
        model: str | Path,
        dtype: str = "float32",
        limits: Limits | None = None,
        block_tokens: int = BLOCK_TOKENS,
        engine_args: Mapping[str, Any] | None = None,
    ) -> None:
        core = import_core()
        self.tokenizer = HubTokenizer(model)
        self.block_tokens = block_tokens
        limits = (limits or Limits()).for_model(most_positions(model))
        try:
            self._core: VllmCore = core.VllmCore(
                str(model), dtype, limits, block_tokens, engine_args or {}
            )
        except EngineError:
            raise
        except Exception as error:  # whatever vLLM finds wrong
            raise EngineError(f"vLLM does not start: {reason(error)}") from error
        self.in_flight = self._core.in_flight
        self.ahead = self._core.ahead
        self._ledger = Ledger(limits, block_tokens, self._core.most_guesses, self.ahead)
        self._grammars = Grammars(
            self.tokenizer.backend, self.tokenizer.eos_ids, self._core.vocabulary
        )
        self._matchers: dict[str, Matcher] = {}
        self._loads = self._core.loads(self._ledger, self._begin)
        self._prefix_keys: dict[Prefix, str] = {}
        self._preparing: _Preparing | None = None
        self._pins = 0
        self._flights = Flights[_Flight](self.in_flight)
        self._ended_s = 0.0

    @property
    def capacity(self) -> Capacity:
        """What the next step can take."""
        self._core.check()
        return self._ledger.capacity

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute the whole blocks of a prefix and keep them; asking again returns the same.

        Raises:
            EngineError: it is too long, there is no room for its KV, or a step is in flight.
        """
        known = self._ledger.prefix(token_ids)
        if known is not None:
            return known
        while self.prepare_prefix(token_ids, self._ledger.limits.max_step_tokens):
            pass
        prepared, self._preparing = self._preparing, None
        assert prepared is not None
        self._core.hold(prepared.key, prepared.computed)
        prefix = self._ledger.pin(token_ids)
        self._prefix_keys[prefix] = prepared.key
        return prefix

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute a part of a prefix as of a sequence; see `Engine.prepare_prefix`.

        Raises:
            EngineError: as `pin_prefix`.
        """
        if self._ledger.prefix(token_ids) is not None:
            return 0
        if self._flights:
            raise EngineError("collect the submitted steps before a prefix is pinned")
        self._ledger.reserve(token_ids)
        whole = self._ledger.whole_blocks(len(token_ids))
        try:
            if self._preparing is None:
                self._pins += 1
                self._preparing = _Preparing(tuple(token_ids), f"\0{self._pins}")  # no sequence's
                if whole:
                    ids = token_ids[:whole]
                    self._core.begin(self._preparing.key, ids, 0, None, GREEDY, None)
            most = self._ledger.limits.max_step_tokens
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
        """Let the blocks of a prefix go; see `Engine.unpin_prefix`."""
        prefix = self._ledger.unpin(token_ids)
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
    ) -> int:
        """Make a sequence known; see `Engine.add`."""
        track = self._ledger.add(key, token_ids, prefix, decoding)
        try:
            if decoding.grammar is not None:
                self._matchers[key] = self._grammars.matcher(decoding.grammar)
        except EngineError:
            self._ledger.remove(key)
            raise
        return track.to_compute

    def submit(self, plan: StepPlan) -> None:
        """Start one forward pass; see `Engine.submit`."""
        self._flights.check_room()
        submitted_s = time.perf_counter()
        fetch = self._loads.fetch(plan) if self._loads else None
        admission = self._ledger.admit(plan, fetch)
        for track in admission.evicted:
            self._core.end(track.key)
        guessed = self._guess(plan, admission)
        keys = tuple(key for key, _ in plan.entries) if self._loads else ()
        self._flights.start(_Flight(admission, guessed, submitted_s, keys))
        try:
            if self._loads:
                self._loads.start(admission)
            for part in admission.parts:
                if self._core.begins(part.track.key):
                    self._begin(part.track, part.start)
            if admission.parts:
                self._core.submit(_tokens(admission, guessed))
        except Exception:
            self._give_up()
            raise
        self._ledger.start(admission)

    def collect(self) -> StepResult:
        """Wait for the oldest step; see `Engine.collect`."""
        admission, guessed, submitted_s, keys = self._flights.first
        new_tokens: dict[str, list[int]] = {}
        try:
            if admission.parts:
                new_tokens = self._core.collect()
        except Exception:
            self._give_up()
            raise
        self._flights.land()
        begun_s = max(submitted_s, self._ended_s) if self.ahead else submitted_s
        self._ended_s = time.perf_counter()
        loaded: dict[str, int] = {}
        if self._loads:
            self._loads.settle(admission)
            loaded = self._loads.told(admission)
        result = self._ledger.commit(admission, new_tokens, self._ended_s - begun_s, guessed)
        if self._loads:
            return replace(result, loaded=loaded, loading=self._loads.coming(keys))
        return result

    def take_back(self, key: str, tokens: int) -> int:
        """Forget the newest tokens of a sequence; see `Engine.take_back`."""
        self._drop_load(key)
        in_flight = self._ledger[key].under_way
        track = self._ledger.take_back(key, tokens)
        if tokens or in_flight:
            self._begin_anew(key, track)
        return track.to_compute

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> int:
        """Add outside words; see `Engine.append`. The last block is computed again if not full."""
        track = self._ledger[key]
        self._drop_load(key)
        newest = track.token_ids[-1]
        self._ledger.append(key, token_ids, drop)
        if drop and key in self._matchers:
            self._matchers[key].replace(newest, list(token_ids))
        self._begin_anew(key, track)
        return track.to_compute

    def resume(
        self, key: str, new_key: str, token_ids: Sequence[int], decoding: Decoding = GREEDY
    ) -> int:
        """Go on with a sequence under another name; see `Engine.resume` and `append`."""
        self._drop_load(key)
        track = self._ledger.resume(key, new_key, token_ids, decoding)
        self._matchers.pop(key, None)
        self._begin_anew(key, track)
        self._core.rename(key, new_key)
        return track.to_compute

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._ledger.remove(key)
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
        self._flights.clear()
        self._core.close()

    def _begin_anew(self, key: str, track: Track) -> None:
        """Keep the whole blocks of a sequence for the request that will go on with it."""
        track.computed = self._ledger.whole_blocks(track.computed)
        self._core.hold(key, track.computed)

    def _guess(self, plan: StepPlan, admission: Admission) -> dict[str, int]:
        """Return how many guessed tokens sequences compute in a step, by key."""
        if not self._core.most_guesses:
            return {}
        offered = self._core.guesses(part.track.key for part in admission.parts)
        return allowed(plan, admission, offered, self._ledger.limits, self.block_tokens)

    def _drop_load(self, key: str) -> None:
        if self._loads:
            self._loads.drop(self._ledger[key])

    def _begin(self, track: Track, known: int) -> None:
        """Give vLLM a sequence that has so many tokens of KV."""
        prefix = self._prefix_keys[track.prefix] if track.prefix else None
        self._core.begin(
            track.key, track.token_ids, known, prefix, track.decoding,
            self._matchers.get(track.key),
        )  # fmt: skip

    def _give_up(self) -> None:
        """Give up the KV of all that are in flight: nobody knows how far they came."""
        for flight in self._flights:
            for part in flight.admission.parts:
                if part.live:
                    self._core.end(part.track.key)
                    self._ledger.give_up(part.track)
        self._flights.clear()
        if self._loads:
            self._loads.give_up(self._prefix_keys.values())


def _tokens(admission: Admission, guessed: Mapping[str, int]) -> dict[str, int]:
    """Return how many tokens each sequence of a step computes, guessed ones included."""
    tokens = {part.track.key: part.tokens for part in admission.parts}
    for key, number in guessed.items():
        tokens[key] += number
    return tokens
