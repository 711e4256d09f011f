"""A model runner for vLLM without a model: what it says depends on all that its KV holds."""

from __future__ import annotations

import gc
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.executor import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput

from timely_llm.engines.vllm import options
from timely_llm.engines.vllm.runner import why_not
from timely_llm.engines.vllm.version import import_core

ON_CPU = current_platform.is_cpu()
ONE_GPU = not ON_CPU and torch.cuda.device_count() < 2
LIGHT: dict[str, Any] = {} if ON_CPU else {"enforce_eager": True, "gpu_memory_utilization": 0.05}
"""Options with which dozens of small engines start in seconds, several at a time on one GPU."""


def _light_args(**given: Any) -> EngineArgs:
    return EngineArgs(**{**given, **LIGHT})


vars(options)["EngineArgs"] = _light_args


plans_ahead = vars(options)["_plans_ahead"]
"""As the engine decides, for the test of that."""


def _only_as_asked(engine_args: Mapping[str, Any], stages: object) -> Any:
    """Return the option `async_scheduling`: most tests want one step in flight on a GPU too."""
    return engine_args.get("async_scheduling", False)


if not ON_CPU:
    vars(options)["_plans_ahead"] = _only_as_asked


def spare_collections() -> None:
    """Let vLLM's collections of garbage leave out what is there now.

    vLLM makes ten of them for an engine, and each one would go through all modules of the tests.
    """
    gc.collect()
    gc.freeze()
    vars(gc).update(freeze=lambda: None, unfreeze=lambda: None)


import_core()
spare_collections()


def need_runner(name: str) -> str:
    """Skip a test if one of vLLM's model runners cannot start here; return its name."""
    reason = why_not(name)
    if reason is not None:
        pytest.skip(f"no Model Runner {name.upper()}: {reason}")
    return name


class NoModel(Executor):  # type: ignore[misc] # of a library that is not always there
    """Stores token ids as KV, in the blocks that vLLM's scheduler gives out, and reads them again.

    The next token is a hash of what the KV of its sequence holds: a block that was given to
    another, given up or never computed leads to other words. It guesses next tokens, if it is
    asked to, and is right about three times in four.
    """

    supports_pp = True

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return True

    def _init_executor(self) -> None:
        self.block_tokens = self.cache_config.block_size
        self.kv: dict[int, list[int]] = {}
        self.token_ids: dict[str, list[int]] = {}
        self.blocks: dict[str, list[int]] = {}
        self.scheduled: list[dict[str, int]] = []
        """What each step was, request id -> tokens, in order."""
        self._ends: dict[str, int] = {}
        self._guessed: dict[str, list[int]] = {}
        self._said: dict[str, list[int]] = {}
        self.connector: Any = None
        self._kv_output: KVConnectorOutput | None = None
        if self.vllm_config.kv_transfer_config is not None:
            make: Any = KVConnectorFactory.create_connector
            self.connector = make(self.vllm_config, KVConnectorRole.WORKER, None)
            self.connector.register_kv_caches(self.kv)

    def collective_rpc(self, method: Any, *args: Any, **kwargs: Any) -> list[Any]:
        """Answer for a worker."""
        if method == "get_kv_cache_spec":
            spec = FullAttentionSpec(
                block_size=self.block_tokens, num_kv_heads=1, head_size=64, dtype=torch.float32
            )
            return [{"layer": spec}]
        if method == "determine_available_memory":
            return [1 << 40]
        if method == "get_supported_kv_cache_layouts":
            return [["LBNHC"]]
        if method == "compile_or_warm_up_model":
            return []
        return [None]

    def check_health(self) -> None:
        """Be well."""

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Store the KV of a step; its tokens are asked for by `sample_tokens`."""
        for request_id in scheduler_output.finished_req_ids:
            self.token_ids.pop(request_id, None)
            self.blocks.pop(request_id, None)
        starts = {}
        for new in scheduler_output.scheduled_new_reqs:
            self.token_ids[new.req_id] = list(new.prompt_token_ids)
            (self.blocks[new.req_id],) = map(list, new.block_ids)
            starts[new.req_id] = new.num_computed_tokens
        cached = scheduler_output.scheduled_cached_reqs
        assert not cached.resumed_req_ids
        for request_id, start, blocks in zip(
            cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
        ):
            starts[request_id] = start
            self.blocks[request_id] += blocks[0] if blocks else ()
        if scheduler_output.num_scheduled_tokens:
            self.scheduled.append(dict(scheduler_output.num_scheduled_tokens))
        if self.connector is not None:
            self.connector.bind_connector_metadata(scheduler_output.kv_connector_metadata)
            self.connector.start_load_kv(None)
        self._ends = {}
        self._guessed = dict(scheduler_output.scheduled_spec_decode_tokens)
        for request_id, tokens in scheduler_output.num_scheduled_tokens.items():
            end = starts[request_id] + tokens
            row = self.token_ids[request_id] + self._guessed.get(request_id, [])
            for place in range(starts[request_id], end):
                block = self.blocks[request_id][place // self.block_tokens]
                stored = self.kv.setdefault(block, [-1] * self.block_tokens)
                stored[place % self.block_tokens] = row[place]
            self._ends[request_id] = end
        if self.connector is not None:
            self.connector.wait_for_save()
            sent, received = self.connector.get_finished(scheduler_output.finished_req_ids)
            self._kv_output = KVConnectorOutput(
                finished_sending=sent,
                finished_recving=received,
                invalid_block_ids=self.connector.get_block_ids_with_load_errors(),
            )
        return _later(None) if non_block else None

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """Return the next token of each sequence that has no more to compute."""
        allowed = {}
        if grammar_output is not None:
            allowed = dict(
                zip(
                    grammar_output.structured_output_request_ids,
                    grammar_output.grammar_bitmask,
                    strict=True,
                )
            )
        self._said = {}
        for request_id, end in self._ends.items():
            said = self._said[request_id] = []
            known = len(self.token_ids[request_id])
            if end < known:
                continue
            choices = np.arange(3, self.model_config.get_vocab_size())
            if request_id in allowed:
                bits = np.unpackbits(allowed[request_id].view(np.uint8), bitorder="little")
                choices = np.flatnonzero(bits[: self.model_config.get_vocab_size()])
            guesses = self._guessed.get(request_id, [])
            assert known + len(guesses) == end
            for place, guess in enumerate([*guesses, None], start=known):
                said.append(int(choices[self._read(request_id, place) % len(choices)]))
                if said[-1] != guess:
                    break
            self.token_ids[request_id] += said
        ids = list(self._ends)
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: row for row, request_id in enumerate(ids)},
            sampled_token_ids=list(self._said.values()),
            kv_connector_output=self._kv_output,
        )
        return _later(output) if non_block else output

    def take_draft_token_ids(self) -> DraftTokenIds:
        """Guess what comes next."""
        guesses = {
            request_id: self._guess(self.token_ids[request_id])
            for request_id, said in self._said.items()
            if said
        }
        return DraftTokenIds(list(guesses), list(guesses.values()))

    def _guess(self, held: list[int]) -> list[int]:
        token_ids, vocabulary = list(held), self.model_config.get_vocab_size()
        for _ in range(self.vllm_config.speculative_config.num_speculative_tokens):
            number = zlib.crc32(repr(token_ids).encode())
            wrong = number % 7 in (0, 1)
            token_ids.append(3 + (number + wrong) % (vocabulary - 3))
        return token_ids[len(held) :]

    def _read(self, request_id: str, tokens: int) -> int:
        blocks = self.blocks[request_id][: -(-tokens // self.block_tokens)]
        held = [token_id for block in blocks for token_id in self.kv[block]]
        return zlib.crc32(repr(held[:tokens]).encode())


@contextmanager
def asynchronous() -> Iterator[None]:
    """Let vLLM's platform for CPUs do asynchronous scheduling when it is asked to."""
    check = CpuPlatform.check_and_update_config

    def keep(config: Any) -> None:
        asked = bool(config.scheduler_config.async_scheduling)
        check(config)
        config.scheduler_config.async_scheduling = asked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuPlatform, "check_and_update_config", staticmethod(keep))
        yield


def _later(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
