"""One step of the engine, and what comes of it."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Sequence
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
from timely_llm.serving.failures import Failures, in_words
from timely_llm.serving.pool import Delivery, Pool
from timely_llm.serving.under_way import UnderWay, strike_out

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

    Attributes:
        failures: of steps.
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
        self._flights: deque[UnderWay] = deque()
        self._running: set[str] = set()
        self.failures = Failures(log, "a step failed")
        self._undelivered = Failures(log, "the tokens of a request could not be delivered")

    @property
    def waits(self) -> bool:
        """Whether a step is in flight."""
        return bool(self._flights)

    def step(self, plan: StepPlan) -> None:
        """Submit a step, and collect the oldest one as soon as no more can be in flight.

        Whose KV is given up, only the end of a step tells: one that may need room is alone.

        Raises:
            EngineLost: the engine has ended.
        """
        tight = bool(plan.evictable) and self._engine.in_flight > 1 and not self._fits(plan)
        if tight and self._flights:
            self.collect()
            return
        if self._engine.in_flight > 1:
            plan = self._read_late(plan)
        if not plan:
            return
        try:
            self._engine.submit(self._with_guesses(plan) if self._guesses else plan)
        except EngineLost:
            raise
        except Exception as error:  # an engine may fail in any way; the server lives on
            self._fail(error, plan.keys)
            return
        generations = (self._pool[key].generation for key, _ in plan.entries)
        self._flights.append(UnderWay(plan, generations, self._engine.ahead))
        self._rest()
        if tight or len(self._flights) >= self._engine.in_flight:
            self.collect()

    def collect(self) -> None:
        """Wait for the oldest step, and hand out what it completed.

        Raises:
            EngineLost: the engine has ended.
        """
        flight = self._flights.popleft()
        try:
            result = self._engine.collect()
        except EngineLost:
            raise
        except Exception as error:
            self._fail(error, flight.parts)
            return
        if not result.waited:
            self.failures.over()
        self._learn(flight, result)
        self._deliver(flight, result)

    def settle(self) -> None:
        """Collect all steps in flight."""
        while self._flights:
            self.collect()

    def _fits(self, plan: StepPlan) -> bool:
        """Return whether a step needs nobody's room."""
        needed = sum(
            min(tokens, self._pool[key].generation.to_compute) for key, tokens in plan.entries
        )
        return needed <= self._engine.capacity.free_tokens

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

    def _rest(self) -> None:
        """Take note of who is in no step in flight any more."""
        running: set[str] = set().union(*(flight.parts for flight in self._flights))
        before, self._running = self._running, running
        for key in before - running:
            rested = self._pool.get(key)
            if rested is not None and rested.generation.state is State.RUNNING:
                rested.generation.state = State.SUSPENDED

    def _learn(self, flight: UnderWay, result: StepResult) -> None:
        planned = result.planned
        prefill = sum(tokens for tokens in planned if tokens > 1)
        rows = planned.count(1)
        if not result.waited:
            self._step_time.observe(result.duration_s, rows, prefill, flight.context_tokens)
        self._announcer.stepped(result)

    def _deliver(self, flight: UnderWay, result: StepResult) -> None:
        """Bring the generations up to date with a step, and hand out what it completed."""
        for key in result.evicted:
            evicted = self._pool.get(key)
            if evicted is None:
                self._conversations.evicted(key)
            else:
                evicted.generation.evicted()
        for key, fetched in result.loaded.items():
            if key not in flight.parts and key in self._pool:
                self._pool[key].generation.loaded(fetched)
        rested = result.rested
        for key, part in flight.parts.items():
            if not part.live:
                continue
            part.generation.loading = key in result.loading
            if key in result.failures:
                self._pool.end(part.generation, ErrorCode.ENGINE_FAILED, result.failures[key])
                continue
            flight.end(part, result)
            if key in rested:
                part.generation.state = State.SUSPENDED
                continue
            tokens = result.tokens.get(key, ())
            if part.late and part.generation.state is State.SUSPENDED:
                part.generation.late_ids += tokens
            else:
                self._take(self._pool[key], tokens)

    def _read_late(self, plan: StepPlan) -> StepPlan:
        """Read the tokens that came after a stop of those who now go on; some end by that."""
        late = [key for key, _ in plan.entries if self._pool[key].generation.late_ids]
        if not late:
            return plan
        for key in late:
            delivery = self._pool[key]
            token_ids, delivery.generation.late_ids = delivery.generation.late_ids, []
            self._take(delivery, token_ids)
        going_on = [
            (key, tokens) for key, tokens in plan.entries if key not in late or self._goes_on(key)
        ]
        return replace(plan, entries=tuple(going_on))

    def _goes_on(self, key: str) -> bool:
        delivery = self._pool.get(key)
        return delivery is not None and delivery.generation.state not in (
            State.BLOCKED, State.EXECUTING,
        )  # fmt: skip

    def _take(self, delivery: Delivery, tokens: Sequence[int]) -> None:
        """Push a generation's new tokens through its stop checker, one by one.

        A segment may end in the middle of them: what follows begins the next one. After the end of
        the text, or a call whose value it waits for, nothing follows. One generation's trouble is
        nobody else's.
        """
        generation = delivery.generation
        try:
            for rest, token_id in zip(range(len(tokens) - 1, -1, -1), tokens, strict=True):
                if not self._goes_on_after(delivery, token_id, rest):
                    return
        except EngineLost:
            raise
        except PlanError as error:
            self._pool.end(generation, ErrorCode.MALFORMED_PLAN, str(error))
        except Exception as error:
            if generation.state is State.ENDED:
                raise
            self._undelivered.add(error)
            reason = f"its tokens could not be delivered: {in_words(error)}"
            self._pool.end(generation, ErrorCode.ENGINE_FAILED, reason)

    def _goes_on_after(self, delivery: Delivery, token_id: int, rest: int) -> bool:
        """Hand out what a token completes; return whether more of its step are to be read.

        Args:
            delivery: whose token it is.
            token_id: the token.
            rest: how many of the same step follow it.
        """
        generation = delivery.generation
        made = delivery.push(token_id, self._clock.now())
        for deliverable in made:
            self._announcer.delivered(deliverable, generation)
        if generation.state is State.BLOCKED or (delivery.complete and rest):
            strike_out(self._engine, generation, rest)
        elif made and generation.state is State.SUSPENDED:
            self._stop_late(generation)
        if delivery.complete:
            self._pool.complete(generation)
            return False
        if len(generation.token_ids) >= generation.max_tokens:
            limit = generation.max_tokens
            reason = f"the plan is not complete after {limit} tokens, the most it may have"
            self._pool.end(generation, ErrorCode.TOO_LONG, reason)
            return False
        return generation.state is not State.BLOCKED

    def _stop_late(self, generation: Generation) -> None:
        """What steps in flight bring a generation that has just been stopped is for later."""
        for flight in self._flights:
            part = flight.parts.get(generation.key)
            if part is not None:
                part.late = True

    def _fail(self, error: Exception, keys: Iterable[str]) -> None:
        """End who takes part in a step that failed, or in one that is in flight."""
        self.failures.add(error)
        failed = dict.fromkeys(keys)
        for flight in self._flights:
            failed |= dict.fromkeys(flight.parts)
            with contextlib.suppress(Exception):  # what it says is of no use any more
                self._engine.collect()
        self._flights.clear()
        reason = f"the engine failed: {type(error).__name__}: {error}"
        for key in failed:
            delivery = self._pool.get(key)
            if delivery is not None and delivery.generation.state is not State.EXECUTING:
                self._pool.end(delivery.generation, ErrorCode.ENGINE_FAILED, reason)
