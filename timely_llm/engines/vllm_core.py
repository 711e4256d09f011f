"""A vLLM engine in this process, told what each of its steps does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor
from vllm.v1.request import Request

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Decoding
from timely_llm.engines.grammars import Matcher
from timely_llm.engines.track import Limits
from timely_llm.engines.vllm_choice import (
    LOGITS_PROCESSOR,
    SharedGrammar,
    SharedGrammars,
    decoding_params,
)
from timely_llm.engines.vllm_scheduler import SCHEDULER

OURS = frozenset(
    (
        "model",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "block_size",
        "num_gpu_blocks_override",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "disable_hybrid_kv_cache_manager",
        "scheduler_reserve_full_isl",
        "scheduler_cls",
        "scheduling_policy",
        "async_scheduling",
        "speculative_config",
        "skip_tokenizer_init",
    )
)
"""Options of vLLM's that cannot be set: they are parameters of the engine, or would break it."""

_OPEN: list[EngineCore] = []
"""The engines of this process that are not closed."""


class VllmCore:
    """Sequences by key, each of them a request of vLLM's as long as it has KV.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: of weights and KV.
        limits: what it takes; their `max_model_len` is one that the model was made for.
        block_tokens: tokens of a block of KV.
        engine_args: vLLM's own options, beside or instead of those that are set here; see `OURS`.

    Raises:
        EngineError: an option cannot be had.
    """

    def __init__(
        self,
        model: str,
        dtype: str,
        limits: Limits,
        block_tokens: int,
        engine_args: Mapping[str, Any],
    ) -> None:
        for name in OURS & engine_args.keys():
            raise EngineError(f"engine_args cannot set {name!r}: the step plan depends on it")
        rows = min(limits.max_rows, limits.max_step_tokens)
        args: dict[str, Any] = {
            "model": model,
            "dtype": dtype,
            "max_model_len": limits.max_model_len,
            "max_num_seqs": rows,
            "max_num_batched_tokens": limits.max_step_tokens,
            "block_size": block_tokens,
            "num_gpu_blocks_override": _blocks(limits, rows, block_tokens),
            "enable_prefix_caching": True,
            "enable_chunked_prefill": True,
            # Layers with a window keep all KV: blocks are held and lent whole.
            "disable_hybrid_kv_cache_manager": True,
            "scheduler_reserve_full_isl": False,
            "scheduler_cls": SCHEDULER,
            "logits_processors": [LOGITS_PROCESSOR],
            "async_scheduling": False,
            "skip_tokenizer_init": True,
            "disable_log_stats": True,
            "trust_remote_code": False,
            "enforce_eager": True,
            **engine_args,
        }
        config = EngineArgs(**args).create_engine_config(UsageContext.LLM_CLASS)
        if current_platform.is_cpu() and config.cache_config.kv_cache_memory_bytes is None:
            # vLLM would otherwise ask for nearly all memory of the machine.
            config.cache_config.kv_cache_memory_bytes = _kv_bytes(config)
        self._core = EngineCore(config, Executor.get_class(config), log_stats=False)
        _OPEN.append(self._core)
        self._scheduler = self._core.scheduler
        self._max_model_len = limits.max_model_len
        self.vocabulary: int = config.model_config.get_vocab_size()
        self._core.structured_output_manager.backend = SharedGrammars(
            config, tokenizer=None, vocab_size=self.vocabulary
        )
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
        params = SamplingParams(
            temperature=0.0,
            max_tokens=self._max_model_len,
            ignore_eos=True,
            detokenize=False,
            extra_args=decoding_params(decoding),
            structured_outputs=StructuredOutputsParams(grammar="ours") if matcher else None,
        )
        asked = EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=list(token_ids),
            mm_features=None,
            sampling_params=params,
            pooling_params=None,
            arrival_time=time.time(),
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        request = Request.from_engine_core_request(asked, self._core.request_block_hasher)
        if matcher:
            request.structured_output_request.grammar = SharedGrammar(matcher)
        held = self._held.get(key) or (self._held[prefix] if prefix else None)
        if known:
            self._scheduler.lend(request_id, held, known)
        self._core.add_request(request)
        self._ids[key] = request_id

    def step(self, tokens: Mapping[str, int]) -> dict[str, int]:
        """Run one forward pass.

        Args:
            tokens: how many of each sequence's tokens are computed, by key.

        Returns:
            The new tokens by key.

        Raises:
            EngineError: vLLM did something else.
        """
        keys = {self._ids[key]: key for key in tokens}
        order = {self._ids[key]: number for key, number in tokens.items()}
        self._scheduler.order = order
        outputs, _ = self._core.step()
        if self._scheduler.scheduled != order:
            raise EngineError(f"vLLM computed {self._scheduler.scheduled}, not {order}")
        new_tokens = {}
        for output in outputs[0].outputs if outputs else ():
            key = keys[output.request_id]
            if output.new_token_ids:
                (new_tokens[key],) = output.new_token_ids
            if output.finish_reason is not None:  # it is as long as a sequence may be
                del self._ids[key]
        for key in tokens:
            self._release(key)
        return new_tokens

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
        """Free the engine; what vLLM has but once in a process goes with the last one."""
        if self._core not in _OPEN:
            return
        _OPEN.remove(self._core)
        if _OPEN:
            self._core.model_executor.shutdown()
        else:
            self._core.shutdown()

    def _release(self, key: str) -> None:
        if key in self._held:
            self._scheduler.release(self._held.pop(key))


def _blocks(limits: Limits, rows: int, block_tokens: int) -> int:
    """Return how many blocks of KV vLLM needs.

    One block is its own; each row of a step may begin one that the books do not count; and it
    asks for room for the longest sequence, even if the books have none.
    """
    tokens = max(limits.kv_tokens + rows * block_tokens, limits.max_model_len)
    return -(-tokens // block_tokens) + 1


def _kv_bytes(config: Any) -> int:
    """Return the bytes of all blocks of KV, keys and values of every layer."""
    model, parallel, cache = config.model_config, config.parallel_config, config.cache_config
    values = 2 * model.get_num_layers(parallel) * model.get_num_kv_heads(parallel)
    values *= model.get_head_size() * cache.block_size * cache.num_gpu_blocks_override
    return int(values * model.dtype.itemsize)
