"""One step of the engine, and what comes of it."""

from __future__ import annotations

import logging
from dataclasses import replace

from timely_llm.core.clock import Clock
from timely_llm.core.errors import EngineLost, PlanError
from timely_llm.core.generation import Generation, State
from timely_llm.core.request import ErrorCode
from timely_llm.engines.contract import Engine, StepResult
from timely_llm.policies.contract import StepPlan
from timely_llm.policies.step_time import StepTime
from timely_llm.serving.announcer import Announcer
from timely_llm.serving.conversations import Conversations
from timely_llm.serving.pool import Delivery, Pool

log = logging.getLogger(__name__)


class Stepper:
    """Runs step plans, brings generations up to date, and hands out what is complete.

    Args:
        engine: runs the steps.
        pool: the requests being served.
        conversations: those that wait for their next turn.
        announcer: told of everything.
        step_time: learns from every step.
        clock: the loop's.
    """

    def __init__(
        self,
        engine: Engine,
        pool: Pool,
        conversations: Conversations,
        announcer: Announcer,
        step_time: StepTime,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._pool = pool
        self._conversations = conversations
        self._announcer = announcer
        self._step_time = step_time
        self._clock = clock
        self._guesses = engine.capacity.guesses
        self._ran: frozenset[str] = frozenset()

    def step(self, plan: StepPlan) -> None:
        """Run one step; if the engine fails, those that took part end.

        Raises:
            EngineLost: it has ended.
        """
        try:
            self._engine.submit(self._with_guesses(plan) if self._guesses else plan)
            result = self._engine.collect()
        except EngineLost:
            raise
        except Exception as error:  # an engine may fail in any way; the server lives on
            log.exception("a step of %d sequences failed", len(plan.entries))
            self._fail(plan, f"the engine failed: {type(error).__name__}: {error}")
            return
        self._learn(plan, result)
        self._deliver(plan, result)

    def _with_guesses(self, plan: StepPlan) -> StepPlan:
        """Leave room for guesses where a sequence decodes, no more than it may still say."""
        entries = []
        for key, tokens in plan.entries:
            generation = self._pool[key].generation
            if generation.to_compute == 1:
                may_say = generation.max_tokens - len(generation.token_ids)
                tokens = max(min(1 + self._guesses, may_say), 1)
            entries.append((key, tokens))
        return replace(plan, entries=tuple(entries))

    def _learn(self, plan: StepPlan, result: StepResult) -> None:
        planned = result.planned
        prefill = sum(tokens for tokens in planned if tokens > 1)
        rows = planned.count(1)
        context = sum(self._pool[key].generation.context_tokens for key in plan.keys)
        self._step_time.observe(result.duration_s, rows, prefill, context)
        self._announcer.stepped(result)

    def _deliver(self, plan: StepPlan, result: StepResult) -> None:
        """Bring the generations up to date with a step, and hand out what it completed."""
        for key in result.evicted:
            evicted = self._pool.get(key)
            if evicted is None:
                self._conversations.evicted(key)
                continue
            generation = evicted.generation
            generation.to_compute += generation.kv_tokens
            generation.context_tokens = generation.shared_tokens
        taking_part, before = plan.keys, self._ran
        self._ran = taking_part
        for key in before - taking_part:
            rested = self._pool.get(key)
            if rested is not None and rested.generation.state is State.RUNNING:
                rested.generation.state = State.SUSPENDED
        for key, _ in plan.entries:
            delivery = self._pool[key]
            generation = delivery.generation
            if key in result.failures:
                self._pool.end(generation, ErrorCode.ENGINE_FAILED, result.failures[key])
                continue
            computed = result.computed.get(key, 0)
            generation.to_compute -= computed
            generation.context_tokens += computed
            generation.tally.recomputed_tokens += result.recomputed.get(key, 0)
            generation.state = State.RUNNING
            self._take(delivery, result)

    def _take(self, delivery: Delivery, result: StepResult) -> None:
        """Push a generation's new tokens through its stop checker, one by one.

        A segment may end in the middle of them: what follows begins the next one. After the end of
        the text, or a call whose value it waits for, nothing follows.
        """
        generation = delivery.generation
        tokens = result.tokens.get(generation.key, ())
        generation.to_compute += len(tokens)
        for rest, token_id in zip(range(len(tokens) - 1, -1, -1), tokens, strict=True):
            try:
                made = delivery.push(token_id, self._clock.now())
            except PlanError as error:
                self._pool.end(generation, ErrorCode.MALFORMED_PLAN, str(error))
                return
            except Exception as error:  # one generation's trouble is nobody else's
                log.exception("tokens of %r could not be delivered", generation.key)
                reason = f"its tokens could not be read: {type(error).__name__}: {error}"
                self._pool.end(generation, ErrorCode.ENGINE_FAILED, reason)
                return
            for deliverable in made:
                self._announcer.delivered(deliverable, generation)
            if rest and (delivery.complete or generation.state is State.BLOCKED):
                self._take_back(generation, rest)
            if delivery.complete:
                self._pool.complete(generation)
                return
            if len(generation.token_ids) >= generation.max_tokens:
                limit = generation.max_tokens
                reason = f"the plan is not complete after {limit} tokens, the most it may have"
                self._pool.end(generation, ErrorCode.TOO_LONG, reason)
                return
            if generation.state is State.BLOCKED:
                return

    def _take_back(self, generation: Generation, tokens: int) -> None:
        """Let the engine forget what a sequence said after it should have stopped."""
        kept = generation.context_tokens + generation.to_compute - tokens
        generation.to_compute = self._engine.take_back(generation.key, tokens)
        generation.context_tokens = kept - generation.to_compute

    def _fail(self, plan: StepPlan, reason: str) -> None:
        for key in plan.keys:
            self._pool.end(self._pool[key].generation, ErrorCode.ENGINE_FAILED, reason)
