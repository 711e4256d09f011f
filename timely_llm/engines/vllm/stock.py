"""Stock vLLM as an engine: vLLM's own scheduler decides about steps, not the plan."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

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
from timely_llm.engines.vllm.core import check_workers, make_request
from timely_llm.engines.vllm.engine import BLOCK_TOKENS
from timely_llm.engines.vllm.options import engine_config
from timely_llm.engines.vllm.process_state import close_core, enter_core
from timely_llm.engines.vllm.runner import prepare_workers, runner_of
from timely_llm.engines.vllm.sampling import SharedGrammars
from timely_llm.engines.vllm.stage_times import StageTimeline, StepTimes
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


class ScheduledStep(NamedTuple):
    """A step that vLLM has begun.

    Attributes:
        output: what vLLM scheduled.
        number: of the step, from 1 on.
        submitted_s: when it was scheduled, on the monotonic clock, seconds.
    """

    output: Any
    number: int
    submitted_s: float

    @property
    def tokens(self) -> int:
        """Tokens that it computes."""
        scheduled: int = self.output.total_num_scheduled_tokens
        return scheduled


_PREFIX = "\0prefix"  # no sequence has this key


class StockEngine:
    """Runs vLLM's own steps: a baseline in the harness of the policies.

    A sequence becomes a request of vLLM in the first plan that names it. From then on vLLM decides
    about its tokens in each step, its order and its KV. vLLM's prefix cache is on. In pipeline
    stages vLLM has several steps in flight; a step here is then the oldest of them, and `submit`
    lets vLLM begin others until that one has ended.

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
        stages = config.parallel_config.pipeline_parallel_size
        self._records = prepare_workers(self._core.model_executor, stages)
        self._timeline = StageTimeline()
        vocabulary = config.model_config.get_vocab_size()
        self._core.structured_output_manager.backend = SharedGrammars(
            config, tokenizer=None, vocab_size=vocabulary
        )
        self._grammars = Grammars(self.tokenizer.backend, self.tokenizer.eos_ids, vocabulary)
        self._waiting: dict[str, tuple[list[int], Decoding, Matcher | None]] = {}
        self._begun: set[str] = set()
        self._progress: dict[str, SequenceProgress] = {}
        self._in_flight = InFlightSteps[StepResult]()
        self._scheduled: deque[ScheduledStep] = deque()
        self._steps = 0
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

    def forget_prefixes(self) -> None:
        """Empty vLLM's prefix cache."""
        self._core.reset_prefix_cache()

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
        result = self._next_step(start_s)
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

    def _next_step(self, start_s: float) -> StepResult:
        """Let vLLM begin steps until one has ended; return its result.

        Args:
            start_s: when the wait began, seconds.

        Raises:
            EngineLost: a worker process has ended.
        """
        core = self._core
        one_step = core.step if core.batch_queue is None else core.step_with_batch_queue
        while core.scheduler.has_requests() or core.batch_queue:
            try:
                outputs, _ = one_step()
            except Exception:
                check_workers(core)  # an ended one is the cause
                raise
            if outputs is None:  # a step has begun, and none has ended
                continue
            step = self._scheduled.popleft()
            # While all requests are in flight, vLLM begins empty steps.
            if step.tokens or not any(one.tokens for one in self._scheduled):
                return self._result(outputs, step, start_s)
        return StepResult({}, {}, time.perf_counter() - start_s)

    def _result(self, outputs: Any, step: ScheduledStep, start_s: float) -> StepResult:
        """Return the result of an ended step."""
        found = outputs[0].outputs if outputs else ()
        times = StepTimes()
        if self._records is not None:
            records = self._records.read(step.number)
            times = self._timeline.times(records, step.submitted_s, time.monotonic())
        return StepResult(
            tokens={o.request_id: tuple(o.new_token_ids) for o in found if o.new_token_ids},
            computed=dict(step.output.num_scheduled_tokens),
            duration_s=time.perf_counter() - start_s,
            evicted=tuple(step.output.preempted_req_ids or ()),
            stages=times.stages,
            overhead_s=times.overhead_s,
        )

    def _watched(self, *args: Any, **kwargs: Any) -> Any:
        """Let vLLM schedule a step, and record it."""
        scheduled = self._schedule(*args, **kwargs)
        self._steps += 1
        scheduled.step_number = self._steps
        self._scheduled.append(ScheduledStep(scheduled, self._steps, time.monotonic()))
        return scheduled
