"""The serving loop: it admits requests, runs steps, and returns what happened as events.

The same loop runs on the wall clock in a thread of the server and on a virtual clock in
experiments. It is not thread-safe: `server.Server` gives it a thread and an inbox.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from timely_llm.core.clock import SAME, Clock, RobotClock
from timely_llm.core.errors import EngineError, EngineLost, RequestError
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.generation import (
    Generation,
    PlanGeneration,
    PlanTally,
    State,
)
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    Rejected,
    Request,
    StreamRequest,
    goes_on,
    served_already,
    skill_set_in_use,
)
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.engines.contract import Engine
from timely_llm.policies.contract import Policy, ask_for_reasons
from timely_llm.policies.fcfs import Stream
from timely_llm.policies.pipeline_time import PipelineTime, of_next_step
from timely_llm.policies.step_time import StepTime
from timely_llm.serving.admission import Admission
from timely_llm.serving.busy import BusyGate
from timely_llm.serving.conversations import Conversations, RetentionLimits
from timely_llm.serving.delivery import begun_event, event_of
from timely_llm.serving.failures import Failures, in_words
from timely_llm.serving.given_plans import LEAD_S, GivenPlans
from timely_llm.serving.journal.replay import replay
from timely_llm.serving.journal.saved import SavedRequest
from timely_llm.serving.limits import AdmissionLimits, RequestWatchdog, Timeouts
from timely_llm.serving.pool import Delivery, Pool, has_begun
from timely_llm.serving.prompts import PIECE_TOKENS, Pieces, SkillSetPrompts, in_one
from timely_llm.serving.removals import Removals
from timely_llm.serving.reports import Reports
from timely_llm.serving.step import Stepper, can_go_on, tokens_needed
from timely_llm.skills.skill_set import SkillSet

WATCH_S = 0.05
"""Seconds between two checks of the timeouts."""


LOOK_S = 0.002
"""Seconds between two looks for KV loads, while no generation can take part in a step."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn did.

    Attributes:
        stepped: whether a step was submitted or collected.
        wake_s: when to turn again at the latest, on the loop's clock.
        events: what happened since the events were taken last, in order.
    """

    stepped: bool
    wake_s: float
    events: Sequence[RunEvent] = ()


class Loop:
    """Serves requests on one engine by one policy.

    Whatever happens is an event. `turn` returns all events since the last call. Between turns,
    `take_events` returns those of `admit`, `report`, `cancel`, `drain`. If a turn raises, the next
    of these calls returns its events.

    Args:
        engine: runs the steps; owned by the loop from now on.
        policy: decides each step.
        clock: the time; only `now` is used.
        step_time: the step-time model, learned from every step.
        timeouts: when a request is given up.
        limits: limits of prompts, and grammars of answers.
        retention: limits of the conversations that are kept between two turns.
        lead_s: seconds before a robot will be idle at which the next segment of its given plan is
            delivered.
        robot_clock: how robots' time passes; None: as on `clock`. Conversations live on `clock`.
        explain: ask the policy for reasons of each plan; they are events. A policy without reasons
            is served all the same.
        busy: refuses requests that cannot begin in time; None: they wait.

    Attributes:
        conversations: gives answers' prompts to the engine, and keeps conversations between turns.
        saved: plans of an earlier loop by id; each goes on when it is admitted.
    """

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        clock: Clock,
        step_time: StepTime | None = None,
        timeouts: Timeouts | None = None,
        limits: AdmissionLimits | None = None,
        retention: RetentionLimits | None = None,
        lead_s: float = LEAD_S,
        robot_clock: RobotClock | None = None,
        explain: bool = False,
        busy: BusyGate | None = None,
    ) -> None:
        self.saved: dict[str, SavedRequest] = {}
        self._engine = engine
        self._busy = busy
        self._policy = policy
        self._cycles = engine.in_flight > 1 and getattr(policy, "sees_in_flight", False)
        self._beside = engine.capacity.stages > 1 and not self._cycles
        self._clock = clock
        self._robot_clock = robot_clock
        self._explain = explain
        if explain:
            ask_for_reasons(policy)
        self._robot_time = SAME
        self._events: list[RunEvent] = []
        limits = limits or AdmissionLimits()
        self._removals = Removals(engine, clock.now)
        self.conversations = Conversations(
            engine, self._removals, limits, retention or RetentionLimits(), clock
        )
        self._pool = Pool(self._removals, self.conversations, self._events, clock.now)
        self._watchdog = RequestWatchdog(timeouts or Timeouts())
        self._watched_s = -math.inf
        stages = engine.capacity.stages
        self.step_time = step_time or (PipelineTime.unknown(stages) if stages > 1 else StepTime())
        self.prompts = SkillSetPrompts(engine)
        self._admission = Admission(
            engine, self._removals, self.prompts, limits, policy.whole_plans
        )
        self._stepper = Stepper(
            engine, self._pool, self.conversations, self._events, self.step_time, clock
        )
        self._given = GivenPlans(self._pool, self._events, lead_s)
        self._reports = Reports(
            self._pool, engine, self._removals, self.prompts, self._admission, self._events,
            self._watchdog, clock.now,
        )  # fmt: skip

    @property
    def generations(self) -> list[Generation]:
        """The generations being served, in order of arrival."""
        return self._pool.generations

    @property
    def failures(self) -> Failures:
        """Failed steps in a row."""
        return self._stepper.failures

    @property
    def free_kv_tokens(self) -> int:
        """Tokens of KV that are free, or kept for conversations until a request needs them."""
        return self._engine.capacity.free_tokens + self.conversations.kv_tokens

    @property
    def capacity(self) -> Capacity:
        """Limits of the engine's next step."""
        return self._engine.capacity

    @property
    def steps_in_flight(self) -> int:
        """Steps that were submitted and not collected."""
        return self._stepper.in_flight

    @property
    def kept_tokens(self) -> dict[tuple[str, str], int]:
        """Tokens with KV of each kept conversation, by agent and name."""
        return self.conversations.kept_tokens

    @property
    def kept_conversations(self) -> int:
        """Conversations that wait for their next turn."""
        return len(self.conversations)

    def take_events(self) -> list[RunEvent]:
        """Return the events that no turn has returned, in order, and forget them."""
        events = self._events.copy()
        self._events.clear()
        return events

    def collect(self) -> bool:
        """Wait for the oldest step in flight; what it completed are events.

        Returns:
            Whether a step was in flight.

        Raises:
            EngineLost: the engine has ended.
        """
        if not self._stepper.busy:
            return False
        self._stepper.collect()
        return True

    def register(self, skill_set: SkillSet) -> int:
        """Compute and keep the prompt of a skill set at once; return its tokens.

        Raises:
            RequestError: its name is taken by a different one.
            EngineError: its KV does not fit, even without the kept conversations.
        """
        return in_one(self.registering(skill_set, 2**31))

    def registering(self, skill_set: SkillSet, piece_tokens: int = PIECE_TOKENS) -> Pieces:
        """Compute and keep the prompt of a skill set in pieces, with steps of requests in between.

        Raises:
            RequestError, EngineError: from a piece, as `register`.
        """
        try:
            return (yield from self._pre_storing(skill_set, piece_tokens))
        except EngineLost:
            raise
        except EngineError:
            if not self.conversations.kv_tokens:
                raise
        # Kept conversations held memory: it is freed for the second try.
        self.conversations.forget_all()
        return (yield from self._pre_storing(skill_set, piece_tokens))

    def _pre_storing(self, skill_set: SkillSet, piece_tokens: int) -> Pieces:
        """Pre-store a skill set; no step is in flight while a piece is computed."""
        pieces = self.prompts.pieces(skill_set, piece_tokens)
        while True:
            self._stepper.settle()
            try:
                next(pieces)
            except StopIteration as done:
                self._admission.warm_up(skill_set.name)
                tokens: int = done.value
                return tokens
            yield

    def unregister(self, name: str) -> None:
        """Forget a skill set and free the memory of its prompt.

        Raises:
            Rejected: it is not known, or requests that use it are being served.
        """
        self.prompts.known(name)
        users = sum(
            isinstance(g, PlanGeneration) and g.request.skill_set == name for g in self.generations
        )
        if users:
            raise skill_set_in_use(name, users)
        self._stepper.settle()
        self.prompts.unregister(name)

    def admit(self, request: Request, arrival_s: float | None = None) -> None:
        """Take a request into the pool; one that the engine cannot take ends at once.

        Raises:
            Rejected: its skill set is unknown or its id is being served.
            RequestError: it is neither a plan request nor a stream request.
        """
        if isinstance(request, PlanRequest):
            self.prompts.known(request.skill_set)
        if request.request_id in self._pool:
            raise served_already(request.request_id)
        saved = self.saved.pop(request.request_id, None)
        if saved is not None:
            return self._restore(saved)
        self._see_robot_time()
        now = self._clock.now() if arrival_s is None else arrival_s
        try:
            delivery = self._begin(request, now)
        except Rejected as error:
            refused = request.refused(error.code, str(error), error.retry_after_s)
            return self._pool.note_end(refused, admitted=False)
        except Exception:
            self._removals.remove(request.request_id)
            raise
        return self._enter(delivery)

    def _enter(self, delivery: Delivery) -> None:
        generation = delivery.generation
        self._pool[generation.key] = delivery
        if self._busy is not None:
            self._busy.admitted(generation)
        if generation.given:
            self._pool.given.add(generation.key)
        self._events.append(begun_event(generation))

    def _restore(self, saved: SavedRequest) -> None:
        """Go on with a plan of an earlier loop; its segments are events again."""
        self._see_robot_time()
        now, known = self._clock.now(), self.prompts.known(saved.asked.skill_set)
        delivery = self._admission.begin_again(saved, now)
        generation = delivery.generation
        self._enter(delivery)
        if saved.heard:
            self._watchdog.seen(saved.asked.agent, now)
        try:
            made = replay(saved, delivery, self._admission, known.skill_set.answer_text, now)
        except EngineLost:
            raise
        except Exception as error:
            reason = f"its plan could not go on after a restart: {in_words(error)}"
            return self._pool.end(generation, ErrorCode.ENGINE_FAILED, reason)
        self._events += [event_of(segment, generation, now) for segment in made]
        if delivery.complete:
            self._pool.complete(generation)
        return None

    def generation(self, request_id: str) -> Generation | None:
        """Return the generation of a request that is being served, None if there is none."""
        delivery = self._pool.get(request_id)
        return None if delivery is None else delivery.generation

    def _begin(self, request: Request, now: float) -> Delivery:
        if self._busy is not None:
            rows = self._engine.capacity.max_rows
            self._busy.check(request, now, self.generations, self.step_time, rows)
        if self.conversations.kept:
            self.conversations.free_key(request.request_id)
        if isinstance(request, StreamRequest):
            return self.conversations.begin(request, now)
        if isinstance(request, PlanRequest) and request.given_plan:
            return self._admission.begin_given(request, now)
        if isinstance(request, PlanRequest):
            return self._admission.begin(request, now, PlanTally(task=request.task), request.epoch)
        raise RequestError(f"a server cannot serve a {type(request).__name__}")

    def cancel(
        self, request_id: str, code: ErrorCode, reason: str, unless_begun: bool = False
    ) -> bool:
        """End a request and free its memory; return whether it was there.

        Raises:
            RequestError: with `unless_begun`: it has begun, and goes on.
        """
        delivery = self._pool.get(request_id)
        if delivery is None:
            return self.conversations.forget_parts(request_id)
        if unless_begun and has_begun(delivery.generation):
            raise goes_on(request_id)
        self._pool.end(delivery.generation, code, reason)
        return True

    def report(self, report: ExecutionReport) -> None:
        """Take a report; one about another agent's request or an older epoch changes nothing."""
        self._see_robot_time()
        now = self._clock.now()
        self._reports.take(report, now)

    def end_undelivered(self, generation: Generation, error: str) -> None:
        """End a request with a segment or token that its client cannot get.

        Args:
            generation: of the request; it may have ended in the turn that made the event.
            error: why, in words.
        """
        self._pool.end_undelivered(generation, error)

    def drain(self, draining: bool) -> None:
        """Serve all requests as fast as possible, none suspended; or by the policy again."""
        self._pool.drain(draining)

    def close(self) -> None:
        """Free the engine."""
        self._engine.close()

    def turn(self) -> Turn:
        """Let the policy plan one step, run it, and return what happened.

        A turn with events before its step returns them first, and makes no step: segments, chunks
        and ends are published before the next step begins.

        Raises:
            EngineLost: the engine has ended.
            Exception: any other failure of the loop itself; it can be turned again.
        """
        if self._removals.pending:
            self._removals.retry()
        if self._robot_clock is not None:
            self._see_robot_time()
        now = self._clock.now()
        if now >= self._watched_s + WATCH_S:
            self._give_up(now)
        wake_s = self._given.hand_out(now) if self._pool.given else math.inf
        if self._events:
            return Turn(False, now, self.take_events())
        stepped, plan_wake_s = self._step(now)
        return Turn(stepped, min(plan_wake_s, wake_s), self.take_events())

    def _step(self, now: float) -> tuple[bool, float]:
        """Let the policy plan one step of the engine's generations, and run it.

        Returns:
            Whether a step was submitted or collected, and when to turn again at the latest.
        """
        ready: list[Generation] = []
        blocked: list[Generation] = []
        loading: list[Generation] = []
        for delivery in self._pool.values():
            generation = delivery.generation
            if generation.given:
                continue
            if generation.state is State.BLOCKED:
                blocked.append(generation)
            elif generation.state is not State.EXECUTING and can_go_on(generation, self._cycles):
                generation.overrun(now)
                (loading if generation.loading else ready).append(generation)
        plan = self._plan(now, ready, blocked)
        if plan.entries:
            stepped = self._stepper.step(plan, now)
            return stepped, plan.wake_s if stepped else now
        if plan.reasons:
            self._stepper.note_plan(plan.reasons, now)
        if self._stepper.busy:
            self._stepper.collect()
            return True, now
        if loading:
            return False, self._look_for_kv(loading[0], plan.wake_s)
        if ready and plan.wake_s == math.inf:
            self._end_stuck(max(ready, key=tokens_needed))
            return False, now
        wake_s, watch_s = plan.wake_s, self._watched_s + WATCH_S
        if wake_s > watch_s:  # before, no request is given up
            served = (delivery.generation for delivery in self._pool.values())
            give_up_s = min(map(self._watchdog.deadline_s, served), default=math.inf)
            wake_s = min(wake_s, max(give_up_s, watch_s))
        if self._robot_time is not SAME and self._pool:
            wake_s = min(wake_s, now + WATCH_S)  # robots' time may pass faster any moment
        return False, wake_s

    def _see_robot_time(self) -> None:
        """Move what is due in robots' seconds if their time passes differently now."""
        if self._robot_clock is None:
            return
        robot_time = self._robot_clock.time(self._clock.now())
        if robot_time == self._robot_time:
            return
        for generation in self._pool.generations:
            if isinstance(generation, PlanGeneration):
                generation.retime(robot_time)
        self._robot_time = self._admission.robot_time = self._watchdog.robot_time = robot_time

    def _look_for_kv(self, generation: Generation, wake_s: float) -> float:
        """Ask the engine for finished KV loads; return when to turn again at the latest.

        A plan of loading sequences alone is no forward pass: it polls.
        """
        now = self._clock.now()
        self._stepper.step(StepPlan(((generation.key, 1),)), now)
        return min(wake_s, self._clock.now() + LOOK_S)

    def _plan(self, now: float, ready: list[Generation], blocked: list[Generation]) -> StepPlan:
        """Ask the policy for a step plan.

        Blocked generations take part in no step. They and kept conversations are evicted before
        all others.
        """
        policy: Policy = self._policy
        if self._pool.draining:
            policy = Stream()
            policy.explain = self._explain
            ready = [generation for generation in ready if generation.to_compute > 0]
        capacity = self._stepper.with_in_flight(self._engine.capacity)
        step_time = of_next_step(self.step_time, capacity) if self._beside else self.step_time
        if not (blocked or self.conversations.kept):
            return policy.plan(now, ready, step_time, capacity)
        lent = sum(g.kv_tokens for g in blocked) + self.conversations.kv_tokens
        roomy = replace(capacity, free_tokens=capacity.free_tokens + lent)
        plan = policy.plan(now, ready, step_time, roomy)
        lenders = sorted(blocked, key=lambda g: g.due_s, reverse=True)
        return replace(
            plan,
            evictable=(*self.conversations.lenders, *(g.key for g in lenders), *plan.evictable),
        )

    def _give_up(self, now: float) -> None:
        """End the requests that have timed out, and forget conversations that have."""
        self._watched_s = now
        generations = [delivery.generation for delivery in self._pool.values()]
        self._watchdog.forget(now, generations)
        if self.conversations.kept:
            self.conversations.forget(now)
        for generation in generations:
            verdict = self._watchdog.verdict(generation, now)
            if verdict is not None:
                self._pool.end(generation, *verdict)

    def _end_stuck(self, generation: Generation) -> None:
        """End a generation that no step can serve: its KV never fits."""
        needed = tokens_needed(generation)
        reason = f"it needs {needed} tokens of KV and {self.free_kv_tokens} can be had"
        self._pool.end(generation, ErrorCode.NO_MEMORY, reason)
