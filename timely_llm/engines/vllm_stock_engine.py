"""Stock vLLM behind our engine's contract: its own scheduler decides, whatever the plan says."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import GREEDY, Decoding, Prefix, StepResult
from timely_llm.engines.flights import Flights
from timely_llm.engines.grammars import Grammars, Matcher
from timely_llm.engines.positions import most_positions
from timely_llm.engines.tokenizer import HubTokenizer
from timely_llm.engines.track import Limits
from timely_llm.engines.vllm import BLOCK_TOKENS
from timely_llm.engines.vllm_choice import SharedGrammars
from timely_llm.engines.vllm_once import close_core, enter_core
from timely_llm.engines.vllm_requests import make_request
from timely_llm.engines.vllm_stock import starting, stock_config
from timely_llm.policies.contract import Capacity, StepPlan

_PREFIX = "\0prefix"  # a key that no sequence has


class StockEngine:
    """Runs vLLM's own steps for whoever is in a plan: a baseline in the harness of our policies.

    A sequence is a request of vLLM's from the first plan that names it on. Its share of each step,
    its place and its KV are vLLM's to decide; prompts are looked up in vLLM's prefix cache.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: of weights and KV.
        limits: what it takes.
        scheduling: what vLLM calls its policy: fcfs or priority.
        engine_args: options of vLLM's own.

    Attributes:
        priorities: by key, for sequences that begin; vLLM serves low ones first.

    Raises:
        ModelError: the model cannot be loaded.
        EngineError: vLLM does not take the options.
    """

    in_flight = 1
    ahead = False

    def __init__(
        self,
        model: str | Path,
        dtype: str,
        limits: Limits,
        scheduling: str,
        engine_args: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer = HubTokenizer(model)
        self.priorities: dict[str, int] = {}
        self._limits = limits.for_model(most_positions(model))
        with starting():
            config = stock_config(model, dtype, limits, engine_args or {}, scheduling)
            self._core = EngineCore(config, Executor.get_class(config), log_stats=False)
        enter_core(self._core)
        vocabulary = config.model_config.get_vocab_size()
        self._core.structured_output_manager.backend = SharedGrammars(
            config, tokenizer=None, vocab_size=vocabulary
        )
        self._grammars = Grammars(self.tokenizer.backend, self.tokenizer.eos_ids, vocabulary)
        self._waiting: dict[str, tuple[list[int], Decoding, Matcher | None]] = {}
        self._begun: set[str] = set()
        self._flights = Flights[StepResult]()
        self._output: Any = None
        self._schedule = self._core.scheduler.schedule
        self._core.scheduler.schedule = self._watched

    @property
    def capacity(self) -> Capacity:
        """What the next step can take."""
        free = self._core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        limits = self._limits
        return Capacity(
            free * BLOCK_TOKENS, limits.max_rows, limits.max_step_tokens, limits.max_model_len
        )

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute a prefix, so that vLLM's prefix cache knows it as long as there is room."""
        if token_ids:
            self.add(_PREFIX, token_ids)
            self.submit(StepPlan(((_PREFIX, len(token_ids)),)))
            while not self.collect().tokens:
                self.submit(StepPlan(((_PREFIX, len(token_ids)),)))
            self.remove(_PREFIX)
        return Prefix(tuple(token_ids))

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute nothing: vLLM keeps no part of a prompt for one that is computed later."""
        return len(token_ids)

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Do nothing: vLLM's prefix cache forgets by itself."""

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> int:
        """Make a sequence known; what its prefix cache has for it is guessed."""
        matcher = None if decoding.grammar is None else self._grammars.matcher(decoding.grammar)
        self._waiting[key] = list(token_ids), decoding, matcher
        begins = len(prefix.token_ids) if prefix else 0
        return len(token_ids) - begins // BLOCK_TOKENS * BLOCK_TOKENS

    def submit(self, plan: StepPlan) -> None:
        """Let vLLM make a step with all that were ever in a plan."""
        self._flights.check_room()
        start_s = time.perf_counter()
        for key in [key for key in self._waiting if key in plan.keys]:
            self._begin(key)
        outputs, _ = self._core.step()
        found = outputs[0].outputs if outputs else ()
        result = StepResult(
            tokens={o.request_id: tuple(o.new_token_ids) for o in found if o.new_token_ids},
            computed=dict(self._output.num_scheduled_tokens),
            duration_s=time.perf_counter() - start_s,
            evicted=tuple(self._output.preempted_req_ids or ()),
        )
        self._flights.start(result)

    def collect(self) -> StepResult:
        """Return what the step did."""
        return self._flights.land()

    def take_back(self, key: str, tokens: int) -> int:
        """Refuse to forget tokens: stock vLLM guesses none here."""
        raise EngineError("stock vLLM takes no token back")

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> int:
        """Refuse outside words: a request of stock vLLM takes none."""
        raise EngineError("stock vLLM takes no outside words")

    def resume(
        self, key: str, new_key: str, token_ids: Sequence[int], decoding: Decoding = GREEDY
    ) -> int:
        """Refuse to go on under another name: a request of stock vLLM takes no more words."""
        raise EngineError("stock vLLM takes no outside words")

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._waiting.pop(key, None)
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

    def _watched(self, *args: Any, **kwargs: Any) -> Any:
        """Let vLLM schedule a step, and keep what it scheduled."""
        self._output = self._schedule(*args, **kwargs)
        return self._output
