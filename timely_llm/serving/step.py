"""One step of the engine: submitted, collected, and its tokens read."""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from timely_llm.core.clock import Clock
from timely_llm.core.errors import EngineLost
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import KvWaitEvent, StepEvent, StepPlanEvent
from timely_llm.core.generation import Generation, State
from timely_llm.core.reason import Reasons
from timely_llm.core.request import ErrorCode
from timely_llm.core.step import Capacity, SequenceProgress, StepContent, StepPlan, StepResult
from timely_llm.engines.contract import Engine
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.step_time import StepTime
from timely_llm.serving.conversations import Conversations
from timely_llm.serving.delivery import event_of
from timely_llm.serving.failures import Failures
from timely_llm.serving.pool import Delivery, Pool
from timely_llm.serving.removals import take_back

log = logging.getLogger(__name__)
_GONE = (State.ENDED, State.EXECUTING)
_TAKES_NO_TOKENS = (*_GONE, State.BLOCKED)


@dataclass(eq=False, slots=True)
class InFlightSequence:
    """One generation in a step in flight.

    Attributes:
        generation: the generation.
        deferred: the generation was suspended while the step was in flight: the tokens are kept for
            later.
        invalidated: the text changed while the step was in flight: the tokens are discarded.
    """

    generation: Generation
    deferred: bool = False
    invalidated: bool = False

    @property
    def live(self) -> bool:
        """Whether the generation still takes the tokens of the step."""
        return not self.invalidated and self.generation.state not in _GONE


class InFlightStep:
    """A step in flight.

    Args:
        generations: in the plan's order, in their state before the step.

    Attributes:
        sequences: by key, in the plan's order.
        submitted_s: when it was planned, seconds on the loop's clock.
        context_tokens: tokens that all its sequences attend to.
    """

    def __init__(
        self, generations: Iterable[Generation], plan: StepPlan, submitted_s: float
    ) -> None:
        self.submitted_s = submitted_s
        self.sequences: dict[str, InFlightSequence] = {}
        self.context_tokens = 0
        for generation in generations:
            self.sequences[generation.key] = InFlightSequence(generation)
            self.context_tokens += generation.context_tokens
            generation.state = State.RUNNING
        self._planned = plan.entries

    @property
    def content(self) -> StepContent:
        """What it computes, as planned."""
        tokens = [number for _, number in self._planned]
        rows = tokens.count(1)
        return StepContent(rows, len(tokens) - rows, sum(tokens) - rows, self.context_tokens)


class Stepper:
    """Runs step plans, updates generations, and turns new tokens into segments and chunks.

    Args:
        engine: runs the steps.
        pool: the requests being served.
        conversations: the kept conversations.
        events: takes steps, segments and chunks.
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
        events: list[RunEvent],
        step_time: StepTime,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._pool = pool
        self._conversations = conversations
        self._events = events
        self._step_time = step_time
        self._pipeline_time = step_time if isinstance(step_time, PipelineTime) else None
        self._clock = clock
        self._speculative_tokens = engine.capacity.speculative_tokens
        self._in_flight: deque[InFlightStep] = deque()
        self._running: set[str] = set()
        self._ended_s = -math.inf  # when the last step of a pipeline was collected
        self.failures = Failures(log, "a step failed")
        self._undelivered = Failures(log, "the tokens of a request could not be delivered")

    @property
    def busy(self) -> bool:
        """Whether a step is in flight."""
        return bool(self._in_flight)

    @property
    def in_flight(self) -> int:
        """Steps in flight."""
        return len(self._in_flight)

    def with_in_flight(self, capacity: Capacity) -> Capacity:
        """Return limits of the next step with what is in flight."""
        if not self._in_flight:
            return capacity
        return replace(capacity, in_flight=tuple([step.content for step in self._in_flight]))

    def note_plan(self, reasons: Reasons, now: float) -> None:
        """Enter the reasons of a plan."""
        why = tuple((key, reason.rounded) for key, reason in reasons)
        self._events.append(StepPlanEvent(now, why))

    def step(self, plan: StepPlan, now: float) -> bool:
        """Submit a step, and collect the oldest one as soon as no more can be in flight.

        Submits nothing if a step in flight must be collected first, or if deferred tokens complete
        a segment: the next turn plans again. A step that can only evict what a step in flight
        protects waits for the oldest one.

        Args:
            plan: of the policy; has at least one entry.
            now: when it was planned, seconds on the loop's clock.

        Returns:
            Whether a step was submitted or collected.

        Raises:
            EngineLost: the engine has ended.
        """
        if self._in_flight and plan.evictable:
            protected = set().union(*(step.sequences for step in self._in_flight))
            if not protected.isdisjoint(plan.evictable) and not self._fits(plan, protected):
                self.collect()
                return True
        if self._engine.in_flight > 1 and self._read_deferred(plan):
            return False  # a segment is published before the next step begins
        submitted = replace(plan, reasons=()) if plan.reasons else plan
        try:
            progress = self._engine.submit(
                self._with_speculation(submitted) if self._speculative_tokens else submitted
            )
        except EngineLost:
            raise
        except Exception as error:  # an engine may fail in any way; the server lives on
            self._fail(error, plan.keys)
            return True
        if plan.reasons:
            self.note_plan(plan.reasons, now)
        generations = [self._pool[key].generation for key, _ in plan.entries]
        self._in_flight.append(InFlightStep(generations, plan, now))
        if progress:
            self._update(progress)
        self._suspend_idle()
        if len(self._in_flight) >= self._engine.in_flight:
            self.collect()
        return True

    def collect(self) -> None:
        """Wait for the oldest step in flight, and read the tokens that it brought.

        Raises:
            EngineLost: the engine has ended.
        """
        step = self._in_flight.popleft()
        try:
            result = self._engine.collect()
        except EngineLost:
            raise
        except Exception as error:
            self._fail(error, step.sequences)
            return
        self._learn(step, result)
        self._deliver(step, result)

    def settle(self) -> None:
        """Collect all steps in flight."""
        while self._in_flight:
            self.collect()

    def _fits(self, plan: StepPlan, protected: Set[str]) -> bool:
        """Return whether a step fits without the eviction of some sequences."""
        needed = sum(
            min(tokens, self._pool[key].generation.to_compute) for key, tokens in plan.entries
        )
        room, lenders = self._engine.capacity.free_tokens, self._conversations.lenders
        for key in plan.evictable:
            if needed <= room:
                break
            if key in protected:
                continue
            if key in self._pool:
                room += self._pool[key].generation.kv_tokens
            room += lenders.get(key, 0)
        return needed <= room

    def _with_speculation(self, plan: StepPlan) -> StepPlan:
        """Leave room for speculative tokens of decoding sequences, within their `max_tokens`."""
        entries = []
        for key, tokens in plan.entries:
            generation = self._pool[key].generation
            if generation.to_compute == 1:
                may_say = generation.max_tokens - len(generation.token_ids)
                tokens = max(min(1 + self._speculative_tokens, may_say), 1)
            entries.append((key, tokens))
        return replace(plan, entries=tuple(entries))

    def _suspend_idle(self) -> None:
        """Suspend the generations that are in no step in flight any more."""
        running: set[str] = set()
        for step in self._in_flight:
            running.update(step.sequences)
        before, self._running = self._running, running
        for key in before - running:
            idle = self._pool.get(key)
            if idle is not None and idle.generation.state is State.RUNNING:
                idle.generation.state = State.SUSPENDED

    def _learn(self, step: InFlightStep, result: StepResult) -> None:
        now = self._clock.now()
        if result.only_waited:
            self._events.append(KvWaitEvent(now, result))
            return
        if self.failures.row:
            self.failures.over()
        planned = result.planned
        rows = planned.count(1)
        prefill = sum(planned) - rows
        stages = result.stages
        if self._pipeline_time is None:
            computing_s = result.duration_s - result.transfer_s
            self._step_time.observe(computing_s, rows, prefill, step.context_tokens)
        elif stages is not None:
            self._pipeline_time.observe_stages(
                stages, rows, prefill, step.context_tokens, result.overhead_s
            )
        else:
            self._learn_whole(self._pipeline_time, step, result.duration_s, rows, prefill, now)
        if stages is not None:
            stages = stages.rounded
        self._events.append(
            StepEvent(
                now - result.duration_s, round(result.duration_s, 6), tuple(result.computed),
                stages, rows, prefill, step.context_tokens, result,
            )
        )  # fmt: skip

    def _learn_whole(
        self,
        pipeline_time: PipelineTime,
        step: InFlightStep,
        seconds: float,
        rows: int,
        prefill: int,
        now: float,
    ) -> None:
        """Learn from a step of a pipeline without times of its stages."""
        before_s, self._ended_s = self._ended_s, now
        whole_s = max(seconds, now - step.submitted_s)
        least_s = min(seconds, now - max(step.submitted_s, before_s))
        pipeline_time.observe(whole_s, rows, prefill, step.context_tokens, least_s)

    def _update(self, progress: Mapping[str, SequenceProgress]) -> None:
        """Store the progress of sequences."""
        for key, far in progress.items():
            delivery = self._pool.get(key)
            if delivery is None:
                self._conversations.update(key, far)
            else:
                delivery.generation.set_progress(far)

    def _deliver(self, step: InFlightStep, result: StepResult) -> None:
        """Update the generations of a step, and read their new tokens."""
        self._update(result.progress)
        waiting_for_kv = result.waiting_for_kv
        for key, part in step.sequences.items():
            if not part.live:
                continue
            if key in result.failures:
                self._pool.end(part.generation, ErrorCode.ENGINE_FAILED, result.failures[key])
                continue
            if result.recomputed:
                part.generation.tally.recomputed_tokens += result.recomputed.get(key, 0)
            if key in waiting_for_kv:
                part.generation.state = State.SUSPENDED
            else:
                self._take_tokens(part, result.tokens.get(key, ()))

    def _take_tokens(self, part: InFlightSequence, tokens: Sequence[int]) -> None:
        """Read new tokens, or defer them while the generation is suspended."""
        generation = part.generation
        if part.deferred and generation.state is State.SUSPENDED:
            generation.deferred_ids += tokens
        else:
            self._read_tokens(self._pool[generation.key], tokens)

    def _read_deferred(self, plan: StepPlan) -> bool:
        """Read the deferred tokens of a plan's generations.

        Returns:
            Whether they complete a segment or end a generation.
        """
        completed = False
        for key, _ in plan.entries:
            delivery = self._pool[key]
            token_ids = delivery.generation.deferred_ids
            if token_ids:
                delivery.generation.deferred_ids = []
                completed |= self._read_tokens(delivery, token_ids)
        return completed

    def _read_tokens(self, delivery: Delivery, tokens: Sequence[int]) -> bool:
        """Push a generation's new tokens through its stop checker, one by one.

        A segment may end in the middle of them: what follows begins the next one. After the end of
        the text, or after a blocking call, nothing follows. A generation that fails ends alone.

        Returns:
            Whether they complete a segment or chunk, or end the generation.
        """
        generation, completed = delivery.generation, False
        try:
            for rest, token_id in zip(range(len(tokens) - 1, -1, -1), tokens, strict=True):
                completed |= self._read_token(delivery, token_id, rest)
                if generation.state in _TAKES_NO_TOKENS:
                    break
        except EngineLost:
            raise
        except Exception as error:
            self._pool.end_unread(generation, error, self._undelivered)
            return True
        return completed

    def _read_token(self, delivery: Delivery, token_id: int, rest: int) -> bool:
        """Read a token; return whether it completes a segment or chunk, or ends the generation.

        Args:
            delivery: of the generation.
            token_id: the token.
            rest: how many of the same step follow it.
        """
        generation = delivery.generation
        deliverables = delivery.push(token_id, self._clock.now())
        for deliverable in deliverables:
            self._events.append(event_of(deliverable, generation, self._clock.now()))
        if delivery.complete:
            self._complete(generation, rest)
            return True
        if generation.state is State.BLOCKED:
            self._discard_newer(generation, rest)
        elif deliverables and generation.state is State.SUSPENDED:
            self._defer_newer(generation)
        if len(generation.token_ids) >= generation.max_tokens:
            self._end_too_long(generation)
            return True
        return bool(deliverables)

    def _complete(self, generation: Generation, rest: int) -> None:
        """Complete a generation; `rest` tokens of its step follow the last one of its text."""
        if rest:
            self._discard_newer(generation, rest)
        generation.complete = True
        self._pool.complete(generation)

    def _discard_newer(self, generation: Generation, rest: int) -> None:
        """Discard the tokens of a step after the newest one read, and those of steps in flight."""
        for part in self._parts_of(generation):
            part.invalidated = True
        take_back(self._engine, generation, rest)

    def _defer_newer(self, generation: Generation) -> None:
        """Defer the tokens that steps in flight bring a generation that has just been suspended."""
        for part in self._parts_of(generation):
            part.deferred = True

    def _end_too_long(self, generation: Generation) -> None:
        reason = (  # a stream is cut instead
            f"the plan is not complete after {generation.max_tokens} tokens, the most it may have"
        )
        self._pool.end(generation, ErrorCode.TOO_LONG, reason)

    def _parts_of(self, generation: Generation) -> list[InFlightSequence]:
        """Return the parts of a generation in steps in flight."""
        parts = (step.sequences.get(generation.key) for step in self._in_flight)
        return [part for part in parts if part is not None]

    def _fail(self, error: Exception, keys: Iterable[str]) -> None:
        """End the generations in a failed step, and in all steps in flight."""
        self.failures.add(error)
        failed = dict.fromkeys(keys)
        for step in self._in_flight:
            failed |= dict.fromkeys(step.sequences)
            with contextlib.suppress(Exception):  # what it says is of no use any more
                self._engine.collect()
        self._in_flight.clear()
        reason = f"the engine failed: {type(error).__name__}: {error}"
        for key in failed:
            delivery = self._pool.get(key)
            if delivery is not None and delivery.generation.state is not State.EXECUTING:
                self._pool.end(delivery.generation, ErrorCode.ENGINE_FAILED, reason)


def can_go_on(generation: Generation, or_waits: bool) -> bool:
    """Return whether a generation can take part in a step: it has tokens to compute.

    A generation with its last token in flight has none.

    Args:
        generation: the generation.
        or_waits: whether it may wait for a step in flight before.
    """
    pending = generation.pending_tokens
    if pending and len(generation.token_ids) + pending >= generation.max_tokens:
        return False
    return generation.to_compute > 0 or (or_waits and pending > 0)


def tokens_needed(generation: Generation) -> int:
    """Return the tokens of KV that a generation needs for its next token."""
    return generation.to_compute + generation.kv_tokens
