"""A vLLM engine in this process that runs the steps it is given."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor
from vllm.v1.request import Request, RequestStatus

from timely_llm.core.errors import EngineError, EngineLost
from timely_llm.engines.contract import Decoding
from timely_llm.engines.grammars import Matcher
from timely_llm.engines.sequences import AdmittedSequence, EngineLimits
from timely_llm.engines.vllm.connectors import only_connector
from timely_llm.engines.vllm.options import engine_config, steps_in_flight
from timely_llm.engines.vllm.process_state import close_core, enter_core, replace_kernels
from timely_llm.engines.vllm.runner import prepare_workers, runner_of
from timely_llm.engines.vllm.sampling import SharedGrammar, SharedGrammars, decoding_params
from timely_llm.engines.vllm.stage_times import StageTimeline, StepTimes

if TYPE_CHECKING:
    from timely_llm.engines.vllm.scheduler import PlannedScheduler


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
        request_id: id of the request in vLLM.
        token_ids: its prompt.
        most_tokens: most tokens of its answer.
        matcher: its state in a grammar; None: no grammar.
        priority: low ones are served first, if the scheduler uses priorities.
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


def check_workers(core: EngineCore) -> None:
    """Check that vLLM's worker processes are alive, if it has any.

    Raises:
        EngineLost: one has ended.
    """
    if getattr(core.model_executor, "is_failed", False):
        raise EngineLost("a worker process of vLLM has ended, and vLLM ends with it")


class VllmStepDriver:
    """Starts forward passes and waits for them, in order. If one fails, all others are lost.

    Args:
        core: the engine, with one of `SCHEDULERS`.
        in_flight: passes that can be started before `collect`.

    Attributes:
        collected: number of the last collected step; see `PlannedScheduler.step_number`.
    """

    def __init__(self, core: EngineCore, in_flight: int) -> None:
        self._core = core
        self._scheduler: PlannedScheduler = core.scheduler
        self._queued = in_flight > 1
        self._outputs: deque[Any] = deque()
        if self._queued:
            # One place more, since vLLM waits for the oldest pass when all places are taken.
            core.batch_queue_size = in_flight + 1
            core.batch_queue = deque(maxlen=in_flight + 1)
        self._numbers: deque[int] = deque()
        self.collected = 0

    def submit(self, order: dict[str, int]) -> None:
        """Start a pass.

        Args:
            order: tokens to compute of each request, by its id.

        Raises:
            EngineError: vLLM schedules other tokens.
        """
        self._await_grammars(order)
        self._step(order)
        if self._scheduler.scheduled != order:
            self._lose()
            raise EngineError(f"vLLM computes {self._scheduler.scheduled}, not {order}")
        self._numbers.append(self._scheduler.step_number)

    def collect(self) -> Sequence[Any]:
        """Wait for the oldest pass and return vLLM's outputs, one for each request that has any.

        Raises:
            EngineError: vLLM has no such pass.
        """
        if not self._outputs:
            self._step({})
        outputs = self._outputs.popleft()
        self.collected = self._numbers.popleft()
        return outputs[0].outputs if outputs else ()

    def turn(self, starting: frozenset[str] = frozenset()) -> None:
        """Make a step that computes nothing, in which vLLM polls its connector.

        Args:
            starting: ids of requests that begin their load.
        """
        assert self._scheduler.offers is not None  # there is a connector
        self._scheduler.order = {}
        with self._scheduler.offers.turn(starting):
            try:
                self._core.step()
            except Exception:
                self._lose()
                self.check()
                raise

    def check(self) -> None:
        """Check that vLLM's worker processes are alive, if it has any.

        Raises:
            EngineLost: one has ended.
        """
        check_workers(self._core)

    def _step(self, order: dict[str, int]) -> None:
        """Let vLLM schedule a step if there is an order, and wait for one if it must."""
        self._scheduler.order = order
        try:
            if self._queued:
                outputs, _ = self._core.step_with_batch_queue()
            else:
                outputs, executed = self._core.step()
                self._core.post_step(executed)
        except Exception:
            self._lose()
            self.check()  # an ended worker is the cause
            raise
        if outputs is not None:
            self._outputs.append(outputs)
        elif not order:
            raise EngineError("vLLM has lost a step")

    def _await_grammars(self, order: Mapping[str, int]) -> None:
        """Wait for passes, so that at most the oldest one has a pending token in a grammar.

        vLLM waits for one pass before it samples the next token in that grammar.
        """
        if not self._queued:
            return
        requests = (self._scheduler.requests[request_id] for request_id in order)
        keys = {request.request_id for request in requests if request.use_structured_output}
        while any(  # the oldest pass is the last
            keys & scheduler_output.num_scheduled_tokens.keys()
            for _, scheduler_output, _ in list(self._core.batch_queue)[:-1]
        ):
            self._step({})

    def _lose(self) -> None:
        """Drop all passes in flight."""
        for of in (self._outputs, self._numbers, self._core.batch_queue or []):
            of.clear()


class NewTokens(NamedTuple):
    """New tokens of a pass.

    Attributes:
        tokens: by key: accepted speculative tokens and one more.
        logprobs: as `StepResult.logprobs`.
    """

    tokens: dict[str, list[int]]
    logprobs: dict[str, list[float]]


class VllmCore:
    """vLLM's requests by the key of their sequence; a sequence with KV has one.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: number type of weights and KV.
        limits: limits of the engine; the model supports their `max_model_len`.
        block_tokens: tokens of a KV block.
        engine_args: options of vLLM; see `engine_config`.
        micro_batches: most passes in flight of an engine in stages; 0: as many as vLLM has.

    Attributes:
        stages: pipeline stages.
        in_flight: most passes in flight.

    Raises:
        EngineError: vLLM does not take an option or the model.
    """

    def __init__(
        self,
        model: str,
        dtype: str,
        limits: EngineLimits,
        block_tokens: int,
        engine_args: Mapping[str, Any],
        micro_batches: int = 0,
    ) -> None:
        config = engine_config(model, dtype, limits, block_tokens, engine_args)
        runner = runner_of(config)
        replace_kernels()
        self.stages: int = config.parallel_config.pipeline_parallel_size
        with only_connector(), runner.chosen():
            self.in_flight = steps_in_flight(micro_batches, runner, config)
            self._core = EngineCore(config, Executor.get_class(config), log_stats=False)
        enter_core(self._core)
        self._timeline = StageTimeline()
        self._records = prepare_workers(self._core.model_executor, self.stages)
        self.slots = runner.slots(config)
        self._scheduler: PlannedScheduler = self._core.scheduler
        self._max_model_len = limits.max_model_len
        self.async_scheduling: bool = config.scheduler_config.async_scheduling
        self._driver = VllmStepDriver(self._core, self.in_flight)
        self.vocabulary: int = config.model_config.get_vocab_size()
        self._core.structured_output_manager.backend = SharedGrammars(
            config, tokenizer=None, vocab_size=self.vocabulary
        )
        self.speculative_tokens: int = config.num_speculative_tokens
        self._finds: bool = engine_args.get("enable_prefix_caching", False)
        self._ids: dict[str, str] = {}
        self._held: dict[str, Any] = {}
        self._begun = 0

    def begins(self, key: str) -> bool:
        """Return whether a sequence has no request yet, so that its next step must begin one."""
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
        """Begin a request for a sequence.

        Args:
            key: key of the sequence.
            token_ids: all of its tokens.
            known: computed tokens, in blocks held for it or for its prefix.
            prefix: key of its prefix; None: it has none.
            decoding: how its tokens are chosen.
            matcher: its state in a grammar; None: no grammar.
        """
        self._begun += 1
        request_id = f"{self._begun}-{key}"
        request = make_request(
            self._core, request_id, token_ids, self._max_model_len, matcher,
            temperature=0.0, extra_args=decoding_params(decoding),
            logprobs=0 if decoding.logprobs else None,
        )  # fmt: skip
        held = self._held.get(key) or (self._held[prefix] if prefix else None)
        if known:
            self._scheduler.lend(request_id, held, known)
        self._core.add_request(request)
        self._ids[key] = request_id

    @property
    def finds_kv(self) -> bool:
        """Whether KV can be found or loaded instead of computed."""
        return self.connected or self._finds

    @property
    def connected(self) -> bool:
        """Whether there is a KV connector."""
        return self._scheduler.offers is not None

    def ask(self, key: str, known: int) -> tuple[int, bool]:
        """Return the KV that a begun sequence can load or find; see `Offers.ask`."""
        if self._scheduler.offers is None:
            return max(self._scheduler.prefix_hit(self._request(key)) - known, 0), False
        return self._scheduler.offers.ask(self._request(key), known)

    def take(self, key: str, tokens: int, later: bool) -> None:
        """Let a begun sequence load or use the KV of `ask`."""
        if self._scheduler.offers is not None:
            self._scheduler.offers.take(self._ids[key], tokens, later)
            return
        held = self._scheduler.lend_prefix_hit(self._request(key))
        self._release(key)
        self._held[key] = held

    def forget_prefix_hits(self, pinned: Iterable[str]) -> None:
        """Empty the prefix cache, but for pinned prefixes, after a failed step.

        vLLM enters blocks into the cache before they are computed.
        """
        if self._finds:
            self._scheduler.forget_cached(self._held[key] for key in pinned if key in self._held)

    def start(self, keys: Iterable[str]) -> set[str]:
        """Begin loads that finish later; return the keys for which vLLM has begun one."""
        keys = list(keys)
        self._driver.turn(frozenset(self._ids[key] for key in keys))
        status = RequestStatus.WAITING_FOR_REMOTE_KVS
        return {key for key in keys if self._request(key).status == status}

    def turn(self) -> None:
        """Let vLLM poll its connector; see `VllmStepDriver.turn`."""
        self._driver.turn()

    def load_succeeded(self, key: str) -> bool | None:
        """Return whether a begun load has succeeded; None: it is still running."""
        request_id = self._ids[key]
        if request_id not in self._scheduler.finished_recving_kv_req_ids:
            return None
        return request_id not in self._scheduler.failed_recving_kv_req_ids

    def computed(self, part: AdmittedSequence) -> int:
        """Return the tokens with KV, in vLLM, of a sequence of the last step."""
        key = part.sequence.key
        return int(self._request(key).num_computed_tokens) if key in self._ids else part.stop

    def cancel(self, key: str) -> None:
        """End a request that has computed nothing; blocks held for the sequence stay."""
        self._core.abort_requests([self._ids.pop(key)])

    @property
    def free_blocks(self) -> int:
        """Free KV blocks of vLLM."""
        return int(self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def crowded_out(self, keys: frozenset[str], rests: Set[str]) -> list[str]:
        """Return the suspended sequences to hold before a step, so that all of it gets slots.

        Args:
            keys: keys of the step.
            rests: keys of sequences without a step in flight.

        Returns:
            Their keys, the one that was suspended first is the first.
        """
        live = self._scheduler.running
        if self.slots is None or len(live) + len(keys) <= self.slots:
            return []
        running = [request.request_id.partition("-")[2] for request in live]
        lacking = len(keys.union(running)) - self.slots
        idle = (key for key in reversed(running) if key in rests and key not in keys)
        return list(islice(idle, max(lacking, 0)))

    def drafted(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the number of drafted tokens by key; 0 for a sequence with a temperature."""
        requests = self._scheduler.requests
        return {
            key: len(requests[self._ids[key]].spec_token_ids)
            for key in keys
            if key in self._ids and not requests[self._ids[key]].sampling_params.extra_args
        }

    def submit(self, tokens: Mapping[str, int]) -> None:
        """Start a forward pass; see `VllmStepDriver.submit`.

        Args:
            tokens: tokens to compute of each sequence, by key; speculative tokens included.
        """
        ids = self._ids
        self._driver.submit({ids[key]: number for key, number in tokens.items()})
        if self._held:
            for key in self._held.keys() & tokens.keys():
                self._release(key)

    def collect(self) -> NewTokens:
        """Wait for the oldest pass in flight; sequences that ended meanwhile are left out."""
        made = NewTokens({}, {})
        for output in self._driver.collect():
            key = output.request_id.partition("-")[2]
            if self._ids.get(key) != output.request_id:
                continue
            if output.new_token_ids:
                made.tokens[key] = output.new_token_ids
                if output.new_logprobs is not None:  # the chosen token is in the first column
                    made.logprobs[key] = output.new_logprobs.logprobs[:, 0].tolist()
            if output.finish_reason is not None:  # the sequence has the most tokens allowed
                del self._ids[key]
        return made

    def stage_times(self, submitted_s: float, ended_s: float) -> StepTimes:
        """Return the times of the last collected pass in each stage, if they are measured.

        Args:
            submitted_s: when it was submitted, on the monotonic clock, seconds.
            ended_s: when it was collected.
        """
        if self._records is None:
            return StepTimes()
        records = self._records.read(self._driver.collected)
        return self._timeline.times(records, submitted_s, ended_s)

    def check(self) -> None:
        """Check that vLLM is alive; see `VllmStepDriver.check`."""
        self._driver.check()

    def hold(self, key: str, tokens: int) -> None:
        """End a sequence's request, but keep its first `tokens` tokens of KV, in whole blocks."""
        if key in self._ids:
            held = self._scheduler.hold(self._ids[key], tokens)
            self.end(key)
            self._held[key] = held
        elif key in self._held:
            self._held[key] = self._scheduler.shorten(self._held[key], tokens)

    def rename(self, key: str, new_key: str) -> None:
        """Move the blocks held for a sequence to its new key."""
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
