"""A model runner for vLLM without a model: what it says depends on all that its KV holds."""

from __future__ import annotations

import zlib
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from vllm.v1.executor import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput


class NoModel(Executor):  # type: ignore[misc] # of a library that is not always there
    """Stores token ids as KV, in the blocks that vLLM's scheduler gives out, and reads them again.

    The next token is a hash of what the KV of its sequence holds: a block that was given to
    another, given up or never computed leads to other words.
    """

    def _init_executor(self) -> None:
        self.block_tokens = self.cache_config.block_size
        self.kv: dict[int, list[int]] = {}
        self.token_ids: dict[str, list[int]] = {}
        self.blocks: dict[str, list[int]] = {}
        self.scheduled: list[dict[str, int]] = []
        """What each step was, request id -> tokens, in order."""
        self._ends: dict[str, int] = {}

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
        self.scheduled.append(dict(scheduler_output.num_scheduled_tokens))
        self._ends = {}
        for request_id, tokens in scheduler_output.num_scheduled_tokens.items():
            end = starts[request_id] + tokens
            for place in range(starts[request_id], end):
                block = self.blocks[request_id][place // self.block_tokens]
                stored = self.kv.setdefault(block, [-1] * self.block_tokens)
                stored[place % self.block_tokens] = self.token_ids[request_id][place]
            self._ends[request_id] = end
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
        said: list[list[int]] = []
        for request_id, end in self._ends.items():
            if end < len(self.token_ids[request_id]):
                said.append([])
                continue
            choices = np.arange(3, self.model_config.get_vocab_size())
            if request_id in allowed:
                bits = np.unpackbits(allowed[request_id].view(np.uint8), bitorder="little")
                choices = np.flatnonzero(bits[: self.model_config.get_vocab_size()])
            token_id = int(choices[self._read(request_id, end) % len(choices)])
            self.token_ids[request_id].append(token_id)
            said.append([token_id])
        ids = list(self._ends)
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: row for row, request_id in enumerate(ids)},
            sampled_token_ids=said,
        )
        return _later(output) if non_block else output

    def _read(self, request_id: str, tokens: int) -> int:
        blocks = self.blocks[request_id][: -(-tokens // self.block_tokens)]
        held = [token_id for block in blocks for token_id in self.kv[block]]
        return zlib.crc32(repr(held[:tokens]).encode())


def _later(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
