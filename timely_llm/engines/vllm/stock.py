"""Stock vLLM as an engine: vLLM's own scheduler decides about steps, not the plan."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.core import EngineCore
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.executor import Executor

from timely_llm.core.errors import EngineError, TimelyError
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult
from timely_llm.engines.contract import GREEDY, Decoding, Prefix
from timely_llm.engines.grammars import Grammars, Matcher
from timely_llm.engines.sequences import EngineLimits, InFlightSteps
from timely_llm.engines.tokenizer import HubTokenizer, most_positions
from timely_llm.engines.vllm.core import make_request
from timely_llm.engines.vllm.engine import BLOCK_TOKENS
from timely_llm.engines.vllm.options import engine_config
from timely_llm.engines.vllm.process_state import close_core, enter_core
from timely_llm.engines.vllm.runner import runner_of
from timely_llm.engines.vllm.sampling import SharedGrammars
from timely_llm.engines.vllm.version import reason


def stock_config(
    model: str | Path,
    dtype: str,
    limits: EngineLimits,
    engine_args: Mapping[str, Any],
    scheduling: str = "fcfs",
) -> Any:
    """Return the configuration of `VllmEngine`, but with vLLM's own scheduler and sampling.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: number type of weights and KV.
        limits: limits of the engine.
        engine_args: options of vLLM.
        scheduling: vLLM's scheduling policy: fcfs or priority.

    Raises:
        ModelError: the model cannot be read.
        EngineError: vLLM does not take an option or the model.
    """
    limits = limits.for_model(most_positions(model))
    config = engine_config(str(model), dtype, limits, BLOCK_TOKENS, engine_args)
    config.scheduler_config.scheduler_cls = None
    config.scheduler_config.policy = scheduling
    config.model_config.logits_processors = None
    return config


@contextmanager
def starting() -> Iterator[None]:
    """Turn an error of vLLM's start into one sentence.

    Raises:
        EngineError: vLLM does not start.
    """
    try:
        yield
    except TimelyError:
        raise
    except Exception as error:
        raise EngineError(f"vLLM does not start: {reason(error)}") from error


class StockVllm:
    """vLLM's `LLMEngine` in this process: requests in, text of each step out.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: number type of weights and KV.
        limits: limits of the engine.
        engine_args: options of vLLM.

    Attributes:
        cached: prefix-cache hit of the request of the last output, tokens.

    Raises:
        EngineError: vLLM does not take an option or the model.
    """

    def __init__(
        self, model: str | Path, dtype: str, limits: EngineLimits, engine_args: Mapping[str, Any]
    ) -> None:
        with starting():
            config = stock_config(model, dtype, limits, engine_args)
            config.model_config.skip_tokenizer_init = False
            with runner_of(config).chosen():
                self._engine = LLMEngine(config, Executor.get_class(config), log_stats=False)
        client = self._engine.engine_core
        # Its finalizer would end the other engines of the process too.
        if hasattr(client, "_finalizer"):  # since 0.31
            client._finalizer.detach()
        self._core = client.engine_core
        enter_core(self._core)
        self._asked = 0
        self.cached = 0

    def ask(self, token_ids: Sequence[int], tokens: int) -> str:
        """Ask for `tokens` tokens after a prompt; return the request's id."""
        self._asked += 1
        params = SamplingParams(
            temperature=0.0, max_tokens=tokens, ignore_eos=True,
            output_kind=RequestOutputKind.DELTA,
        )  # fmt: skip
        prompt = {"prompt_token_ids": list(token_ids)}
        return str(self._engine.add_request(str(self._asked), prompt, params))

    def step(self) -> list[int]:
        """Make a step and decode the text of its tokens; return the tokens."""
        outputs = self._engine.step()
        if outputs:
            self.cached = outputs[-1].num_cached_tokens
        return [token for output in outputs for token in output.outputs[0].token_ids]

    def core_step(self) -> list[int]:
        """Make a step without decoding text; return its tokens."""
        made, _ = self._core.step()
        found = made[0].outputs if made else ()
        return [token for said in found for token in said.new_token_ids]

    def stop(self, request_id: str) -> None:
        """End a request; its blocks stay in the prefix cache until they are overwritten."""
        self._engine.abort_request([request_id], internal=True)

    def close(self) -> None:
        """Free the engine."""
        close_core(self._core)


_PREFIX = "\0prefix"  # no sequence has this key


class StockEngine:
    """Runs vLLM's own steps: a baseline in the harness of the policies.

    A sequence becomes a request of vLLM in the first plan that names it. From then on vLLM decides
    about its tokens in each step, its order and its KV. vLLM's prefix cache is on.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: number type of weights and KV.
        limits: limits of the engine.
        scheduling: vLLM's scheduling policy: fcfs or priority.
        engine_args: options of vLLM.

    Attributes:
        priorities: priorities of sequences, by key, read when they begin; low ones go first.

    Raises:
        ModelError: the model cannot be loaded.
        EngineError: vLLM does not take the options.
    """

    in_flight = 1
    async_scheduling = False

    def __init__(
        self,
        model: str | Path,
        dtype: str,
        limits: EngineLimits,
        scheduling: str,
        engine_args: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer = HubTokenizer(model)
        self.priorities: dict[str, int] = {}
        self._limits = limits.for_model(most_positions(model))
        with starting():
            config = stock_config(model, dtype, limits, engine_args or {}, scheduling)
            with runner_of(config).chosen():
                self._core = EngineCore(config, Executor.get_class(config), log_stats=False)
        enter_core(self._core)
        vocabulary = config.model_config.get_vocab_size()
        self._core.structured_output_manager.backend = SharedGrammars(
            config, tokenizer=None, vocab_size=vocabulary
        )
        self._grammars = Grammars(self.tokenizer.backend, self.tokenizer.eos_ids, vocabulary)
        self._waiting: dict[str, tuple[list[int], Decoding, Matcher | None]] = {}
        self._begun: set[str] = set()
        self._progress: dict[str, SequenceProgress] = {}
        self._in_flight = InFlightSteps[StepResult]()
        self._output: Any = None
        self._schedule = self._core.scheduler.schedule
        self._core.scheduler.schedule = self._watched

    @property
    def capacity(self) -> Capacity:
        """Limits of the next step."""
        free = self._core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        limits = self._limits
        return Capacity(
            free * BLOCK_TOKENS, limits.max_rows, limits.max_step_tokens, limits.max_model_len
        )

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute a prefix, so that vLLM's prefix cache has it as long as there is room."""
        if token_ids:
            self.add(_PREFIX, token_ids)
            self.submit(StepPlan(((_PREFIX, len(token_ids)),)))
            while not self.collect().tokens:
                self.submit(StepPlan(((_PREFIX, len(token_ids)),)))
            self.remove(_PREFIX)
        return Prefix(tuple(token_ids))

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute nothing: vLLM does not keep a part of a prompt."""
        return len(token_ids)

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Do nothing: vLLM's prefix cache replaces blocks by itself."""

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> SequenceProgress:
        """Add a sequence; its progress assumes a prefix-cache hit of its whole prefix."""
        matcher = None
        if decoding.grammar is not None:
            matcher = self._grammars.matcher(decoding.grammar, decoding.read)
        self._waiting[key] = list(token_ids), decoding, matcher
        begins = len(prefix.token_ids) if prefix else 0
        shared = begins // BLOCK_TOKENS * BLOCK_TOKENS
        progress = SequenceProgress(len(token_ids) - shared, shared, shared)
        self._progress[key] = progress
        return progress

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        """Let vLLM make a step with all sequences that a plan has ever named."""
        self._in_flight.check_capacity()
        start_s = time.perf_counter()
        for key in [key for key in self._waiting if key in plan.keys]:
            self._begin(key)
        core_outputs, _ = self._core.step()
        found = core_outputs[0].outputs if core_outputs else ()
        result = StepResult(
            tokens={o.request_id: tuple(o.new_token_ids) for o in found if o.new_token_ids},
            computed=dict(self._output.num_scheduled_tokens),
            duration_s=time.perf_counter() - start_s,
            evicted=tuple(self._output.preempted_req_ids or ()),
        )
        self._in_flight.add(replace(result, progress=self._progress_after(result)))
        return {}

    def collect(self) -> StepResult:
        """Return the result of the step."""
        return self._in_flight.pop_oldest()

    def take_back(self, key: str, tokens: int) -> SequenceProgress:
        """Refuse: stock vLLM has no speculative decoding here."""
        raise EngineError("stock vLLM takes no token back")

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> SequenceProgress:
        """Refuse: a request of stock vLLM takes no tool output."""
        raise EngineError("stock vLLM takes no tool output")

    def resume(
        self,
        key: str,
        new_key: str,
        token_ids: Sequence[int],
        decoding: Decoding = GREEDY,
        keep: int | None = None,
    ) -> SequenceProgress:
        """Refuse: a request of stock vLLM takes no more tokens."""
        raise EngineError("stock vLLM takes no further turn")

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._waiting.pop(key, None)
        self._progress.pop(key, None)
        self.priorities.pop(key, None)
        if key in self._begun:
            self._begun.discard(key)
            self._core.abort_requests([key])

    def close(self) -> None:
        """Free the engine."""
        close_core(self._core)

    def _begin(self, key: str) -> None:
        token_ids, decoding, matcher = self._waiting.pop(key)
        request = make_request(
            self._core, key, token_ids, self._limits.max_model_len, matcher,
            self.priorities.get(key, 0), temperature=decoding.temperature,
            seed=decoding.seed if decoding.temperature else None,
        )  # fmt: skip
        self._core.add_request(request)
        self._begun.add(key)

    def _progress_after(self, result: StepResult) -> dict[str, SequenceProgress]:
        """Update the progress of a step's sequences, and return it."""
        for key in result.evicted:
            if key in self._progress:
                before = self._progress[key]
                shared = before.shared_tokens
                self._progress[key] = SequenceProgress(before.tokens - shared, shared, shared)
        for key, computed in result.computed.items():
            if key in self._progress:
                before, new = self._progress[key], len(result.tokens.get(key, ()))
                self._progress[key] = SequenceProgress(
                    before.to_compute - computed + new,
                    before.context_tokens + computed,
                    before.shared_tokens,
                )
        touched = (*result.evicted, *result.computed)
        return {key: self._progress[key] for key in touched if key in self._progress}

    def _watched(self, *args: Any, **kwargs: Any) -> Any:
        """Let vLLM schedule a step, and record it."""
        self._output = self._schedule(*args, **kwargs)
        return self._output
