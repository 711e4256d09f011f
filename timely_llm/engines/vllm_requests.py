"""Sequences as requests that vLLM's scheduler takes: they go on until they are ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import Request

from timely_llm.engines.grammars import Matcher
from timely_llm.engines.vllm_choice import SharedGrammar


def make_request(
    core: EngineCore,
    request_id: str,
    token_ids: Sequence[int],
    most_tokens: int,
    matcher: Matcher | None,
    priority: int = 0,
    **choice: Any,
) -> Request:
    """Return a new request.

    Args:
        core: the engine that will serve it.
        request_id: its name there.
        token_ids: of its prompt.
        most_tokens: that it may say.
        matcher: where it is in its grammar.
        priority: low ones are served first, where the scheduler goes by that.
        choice: how its tokens are chosen, by names of vLLM's `SamplingParams`.
    """
    params = SamplingParams(
        max_tokens=most_tokens, ignore_eos=True, detokenize=False, **choice,
        structured_outputs=StructuredOutputsParams(grammar="ours") if matcher else None,
    )  # fmt: skip
    asked = EngineCoreRequest(
        request_id=request_id, prompt_token_ids=list(token_ids), mm_features=None,
        sampling_params=params, pooling_params=None, arrival_time=time.time(), lora_request=None,
        cache_salt=None, data_parallel_rank=None, priority=priority,
    )  # fmt: skip
    request = Request.from_engine_core_request(asked, core.request_block_hasher)
    if matcher:
        request.structured_output_request.grammar = SharedGrammar(matcher)
    return request
