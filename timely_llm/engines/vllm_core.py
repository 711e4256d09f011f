"""A vLLM engine in this process, told what each of its steps does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from vllm.platforms import current_platform
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor
from vllm.v1.request import RequestStatus

from timely_llm.engines.contract import Decoding
from timely_llm.engines.grammars import Matcher
from timely_llm.engines.ledger import Ledger
from timely_llm.engines.track import Limits, Part, Track
from timely_llm.engines.vllm_choice import SharedGrammars, decoding_params
from timely_llm.engines.vllm_connectors import only_connector
from timely_llm.engines.vllm_loads import Loads
from timely_llm.engines.vllm_once import close_core, enter_core, replace_kernels
from timely_llm.engines.vllm_options import engine_config
from timely_llm.engines.vllm_passes import VllmPasses
from timely_llm.engines.vllm_requests import make_request


class VllmCore:
    """Sequences by key, each of them a request of vLLM's as long as it has KV.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: of weights and KV.
        limits: what it takes; their `max_model_len` is one that the model was made for.
        block_tokens: tokens of a block of KV.
        engine_args: options of vLLM's own; see `engine_config`.

    Raises:
        EngineError: an option or the model cannot be had.
    """

    def __init__(
        self,
        model: str,
        dtype: str,
        limits: Limits,
        block_tokens: int,
        engine_args: Mapping[str, Any],
    ) -> None:
        config = engine_config(model, dtype, limits, block_tokens, engine_args)
        replace_kernels()
        with only_connector():
            self._core = EngineCore(config, Executor.get_class(config), log_stats=False)
        enter_core(self._core)
        self._scheduler = self._core.scheduler
        self._max_model_len = limits.max_model_len
        self.ahead: bool = config.scheduler_config.async_scheduling
        self.in_flight: int = config.max_concurrent_batches
        self._passes = VllmPasses(self._core, self.in_flight)
        self.vocabulary: int = config.model_config.get_vocab_size()
        self._core.structured_output_manager.backend = SharedGrammars(
            config, tokenizer=None, vocab_size=self.vocabulary
        )
        self.most_guesses: int = config.num_speculative_tokens
        self._finds: bool = engine_args.get("enable_prefix_caching", False)
        if self.most_guesses:
            self._core.model_executor.collective_rpc("draw_by_seed")
        if config.parallel_config.pipeline_parallel_size > 1 and current_platform.is_cpu():
            self._core.model_executor.collective_rpc("prepare_stage")
        self._ids: dict[str, str] = {}
        self._held: dict[str, Any] = {}
        self._begun = 0

    def begins(self, key: str) -> bool:
        """Return whether a sequence has no KV of its own here, and is to be begun."""
        return key not in self._ids

    def begin(
        self,
        key: str,
        token_ids: Sequence[int],
        known: int,
        prefix: str | None,
        decoding: Decoding,
        matcher: Matcher | None,
    ) -> None:
        """Give vLLM a sequence for the next step.

        Args:
            key: its name.
            token_ids: all of its tokens.
            known: how many of them are computed, in blocks held for it or for its prefix.
            prefix: the key of its prefix, whose blocks are held.
            decoding: how its tokens are chosen.
            matcher: where it is in its grammar.
        """
        self._begun += 1
        request_id = f"{self._begun}-{key}"
        request = make_request(
            self._core, request_id, token_ids, self._max_model_len, matcher,
            temperature=0.0, extra_args=decoding_params(decoding),
        )  # fmt: skip
        held = self._held.get(key) or (self._held[prefix] if prefix else None)
        if known:
            self._scheduler.lend(request_id, held, known)
        self._core.add_request(request)
        self._ids[key] = request_id

    def loads(self, ledger: Ledger, begin: Callable[[Track, int], None]) -> Loads | None:
        """Return what looks after the loads of a KV connector, or of the prefix cache, if any."""
        return Loads(self, ledger, begin) if self.connected or self._finds else None

    @property
    def connected(self) -> bool:
        """Whether there is a KV connector."""
        return self._scheduler.offers is not None

    def ask(self, key: str, known: int) -> tuple[int, bool]:
        """Return what there is for a sequence that was begun; see `Offers.ask`."""
        if not self.connected:
            return max(self._scheduler.found(self._request(key)) - known, 0), False
        result: tuple[int, bool] = self._scheduler.offers.ask(self._request(key), known)
        return result

    def take(self, key: str, tokens: int, later: bool) -> None:
        """Let a sequence that was begun have what there is for it."""
        if self.connected:
            self._scheduler.offers.take(self._ids[key], tokens, later)
            return
        held = self._scheduler.lend_found(self._request(key))
        self._release(key)
        self._held[key] = held

    def forget_found(self, pinned: Iterable[str]) -> None:
        """Empty the prefix cache but for prefixes, after a step that broke down.

        vLLM enters blocks there before they are computed.
        """
        if self._finds:
            self._scheduler.forget_cached(self._held[key] for key in pinned if key in self._held)

    def start(self, keys: Iterable[str]) -> set[str]:
        """Begin loads that come later; return whose vLLM has begun."""
        keys = list(keys)
        self._passes.turn(frozenset(self._ids[key] for key in keys))
        status = RequestStatus.WAITING_FOR_REMOTE_KVS
        return {key for key in keys if self._request(key).status == status}

    def turn(self) -> None:
        """Let vLLM look after its connector; see `VllmPasses.turn`."""
        self._passes.turn()

    def came(self, key: str) -> bool | None:
        """Return whether a load that was begun has succeeded; None if it is under way."""
        request_id = self._ids[key]
        if request_id not in self._scheduler.finished_recving_kv_req_ids:
            return None
        return request_id not in self._scheduler.failed_recving_kv_req_ids

    def computed(self, part: Part) -> int:
        """Return for how many tokens vLLM has the KV of a sequence of the last step."""
        key = part.track.key
        return int(self._request(key).num_computed_tokens) if key in self._ids else part.stop

    def cancel(self, key: str) -> None:
        """End a sequence's request that has computed nothing; what is held for it stays."""
        self._core.abort_requests([self._ids.pop(key)])

    @property
    def free_blocks(self) -> int:
        """Blocks of KV that vLLM can give out."""
        return int(self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def guesses(self, keys: Iterable[str]) -> dict[str, int]:
        """Return how many of their next tokens are guessed, by key; none where one is drawn."""
        requests = self._scheduler.requests
        return {
            key: len(requests[self._ids[key]].spec_token_ids)
            for key in keys
            if key in self._ids and not requests[self._ids[key]].sampling_params.extra_args
        }

    def submit(self, tokens: Mapping[str, int]) -> None:
        """Start a forward pass; see `VllmPasses.submit`.

        Args:
            tokens: how many of each sequence's tokens are computed, by key; guessed ones included.
        """
        ids = self._ids
        self._passes.submit({ids[key]: number for key, number in tokens.items()})
        if self._held:
            for key in self._held.keys() & tokens.keys():
                self._release(key)

    def collect(self) -> dict[str, list[int]]:
        """Wait for the oldest pass that was started.

        Returns:
            The new tokens by key: right guesses, and the one after them. Sequences that were ended
            since are left out.
        """
        new_tokens = {}
        for output in self._passes.collect():
            key = output.request_id.partition("-")[2]
            if self._ids.get(key) != output.request_id:
                continue
            if output.new_token_ids:
                new_tokens[key] = output.new_token_ids
            if output.finish_reason is not None:  # it is as long as a sequence may be
                del self._ids[key]
        return new_tokens

    def check(self) -> None:
        """Find out whether vLLM is alive; see `VllmPasses.check`."""
        self._passes.check()

    def hold(self, key: str, tokens: int) -> None:
        """End a sequence's request, but keep the KV of so many tokens, in whole blocks."""
        if key in self._ids:
            held = self._scheduler.hold(self._ids[key], tokens)
            self.end(key)
            self._held[key] = held

    def rename(self, key: str, new_key: str) -> None:
        """Give what is held for a sequence another name."""
        if key in self._held:
            self._held[new_key] = self._held.pop(key)

    def end(self, key: str) -> None:
        """Free everything of a sequence; an unknown key is not an error."""
        self._release(key)
        if key in self._ids:
            self._core.abort_requests([self._ids.pop(key)])

    def close(self) -> None:
        """Free the engine; see `close_core`."""
        close_core(self._core)

    def _request(self, key: str) -> Any:
        return self._scheduler.requests[self._ids[key]]

    def _release(self, key: str) -> None:
        if key in self._held:
            self._scheduler.release(self._held.pop(key))
