"""The engine vLLM: its V1 engine, whose every step is the policy's."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timely_llm.core.errors import EngineError, ModelError
from timely_llm.engines.contract import GREEDY, Decoding, Prefix, StepResult
from timely_llm.engines.grammars import Grammars, Matcher
from timely_llm.engines.guesses import allowed
from timely_llm.engines.ledger import Ledger
from timely_llm.engines.tokenizer import HubTokenizer
from timely_llm.engines.track import Admission, Limits, Track
from timely_llm.engines.vllm_version import import_core
from timely_llm.policies.contract import Capacity, StepPlan

if TYPE_CHECKING:
    from timely_llm.engines.vllm_core import VllmCore

BLOCK_TOKENS = 32


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

    in_flight = 1

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
            raise EngineError(f"vLLM does not start: {_first_line(error)}") from error
        self._ledger = Ledger(limits, block_tokens, self._core.most_guesses)
        self._grammars = Grammars(
            self.tokenizer.backend, self.tokenizer.eos_ids, self._core.vocabulary
        )
        self._matchers: dict[str, Matcher] = {}
        self._prefix_keys: dict[Prefix, str] = {}
        self._result: StepResult | None = None

    @property
    def capacity(self) -> Capacity:
        """What the next step can take."""
        self._core.check()
        return self._ledger.capacity

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute the whole blocks of a prefix and keep them; asking again returns the same.

        Raises:
            EngineError: it is too long, or there is no room for its KV.
        """
        known = self._ledger.prefix(token_ids)
        if known is not None:
            return known
        self._ledger.check_prefix(len(token_ids))
        key = f"\0{len(self._prefix_keys)}"  # the name of no sequence
        tokens, most = (
            self._ledger.whole_blocks(len(token_ids)),
            self._ledger.limits.max_step_tokens,
        )
        if tokens:
            self._core.begin(key, token_ids, 0, None, GREEDY, None)
            try:
                for start in range(0, tokens, most):
                    self._core.step({key: min(most, tokens - start)})
                self._core.hold(key, tokens)
            except Exception:
                self._core.end(key)
                raise
        prefix = self._ledger.pin(token_ids)
        self._prefix_keys[prefix] = key
        return prefix

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
        """Run one forward pass; see `Engine.submit`."""
        if self._result is not None:
            raise EngineError("collect the submitted step before another one is submitted")
        start_s = time.perf_counter()
        admission = self._ledger.admit(plan)
        for track in admission.evicted:
            self._core.end(track.key)
        guessed = self._guess(plan, admission)
        new_tokens = self._compute(admission, guessed)
        duration_s = time.perf_counter() - start_s
        self._result = self._ledger.commit(admission, new_tokens, duration_s, guessed)

    def collect(self) -> StepResult:
        """Return what the submitted step did."""
        if self._result is None:
            raise EngineError("there is no step to collect")
        result, self._result = self._result, None
        return result

    def take_back(self, key: str, tokens: int) -> int:
        """Forget the newest tokens of a sequence; see `Engine.take_back`."""
        track = self._ledger.take_back(key, tokens)
        if tokens:
            self._begin_anew(key, track)
        return track.to_compute

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> int:
        """Add outside words; see `Engine.append`. The last block is computed again if not full."""
        track = self._ledger[key]
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
        track = self._ledger.resume(key, new_key, token_ids, decoding)
        self._matchers.pop(key, None)
        self._begin_anew(key, track)
        self._core.rename(key, new_key)
        return track.to_compute

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._ledger.remove(key)
        self._matchers.pop(key, None)
        self._core.end(key)

    def close(self) -> None:
        """Free the engine."""
        self._ledger.clear()
        self._matchers.clear()
        self._prefix_keys.clear()
        self._result = None
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

    def _compute(self, admission: Admission, guessed: Mapping[str, int]) -> dict[str, list[int]]:
        """Compute the parts of a step and return the new tokens by key."""
        if not admission.parts:
            return {}
        for part in admission.parts:
            track = part.track
            if self._core.begins(track.key):
                prefix = self._prefix_keys[track.prefix] if track.prefix else None
                self._core.begin(
                    track.key,
                    track.token_ids,
                    part.start,
                    prefix,
                    track.decoding,
                    self._matchers.get(track.key),
                )
        try:
            return self._core.step(
                {part.track.key: part.tokens + guessed.get(part.track.key, 0)
                 for part in admission.parts}
            )  # fmt: skip
        except Exception:
            for part in admission.parts:  # nobody knows how far they came
                self._core.end(part.track.key)
                self._ledger.give_up(part.track)
            raise


def most_positions(model: str | Path) -> int:
    """Return the longest sequence that a model was made for, in tokens.

    Raises:
        ModelError: it cannot be read.
    """
    from transformers import AutoConfig

    from timely_llm.engines.transformers_model import max_positions

    try:
        config = AutoConfig.from_pretrained(str(model), trust_remote_code=False)
    except Exception as error:  # whatever a broken file or a hub out of reach leads to
        raise ModelError(f"cannot read the model {str(model)!r}: {_first_line(error)}") from error
    return max_positions(config.get_text_config())


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
