"""The serving loop: admit, step, deliver.

The same loop runs on the wall clock in a thread of the server and on a virtual clock in
experiments. It is not thread-safe: `server.Server` gives it a thread and an inbox.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from timely_llm.core.clock import Clock
from timely_llm.core.echo import quoted
from timely_llm.core.errors import EngineError, EngineLost, RequestError
from timely_llm.core.generation import Generation, PlanGeneration, PlanTally, State
from timely_llm.core.journal import Journal, NoJournal
from timely_llm.core.request import ErrorCode, ExecutionReport, PlanRequest, Rejected, Request
from timely_llm.core.stream import StreamRequest
from timely_llm.engines.contract import Engine
from timely_llm.policies.contract import Policy, StepPlan
from timely_llm.policies.fcfs import Stream
from timely_llm.policies.step_time import StepTime
from timely_llm.serving.admission import Admission, AdmissionLimits
from timely_llm.serving.announcer import Announcer
from timely_llm.serving.conversations import Conversations, Keeping
from timely_llm.serving.failures import Failures
from timely_llm.serving.patience import Patience, Watch
from timely_llm.serving.pool import Delivery, Pool
from timely_llm.serving.prompts import PIECE_TOKENS, Pieces, Prompts, in_one
from timely_llm.serving.removals import Removals
from timely_llm.serving.reports import Reports
from timely_llm.serving.sink import Sink
from timely_llm.serving.stats import Stats
from timely_llm.serving.stepper import Stepper
from timely_llm.skills.skill_set import SkillSet

WATCH_S = 0.05
"""How often the loop looks whose time is up, seconds."""


LOOK_S = 0.002
"""How often it looks whether KV has come from elsewhere while nobody can make a step, seconds."""


@dataclass(frozen=True)
class Turn:
    """What one turn did: whether it made a step, and when to turn again at the latest."""

    stepped: bool
    wake_s: float


class Loop:
    """Serves requests on one engine by one policy.

    Args:
        engine: runs the steps; owned by the loop from now on.
        policy: decides each step.
        sink: takes segments and results.
        clock: tells the time; only `now` is used.
        step_time: the step-time model, learned from every step.
        journal: takes events.
        patience: when a request is given up.
        limits: what is taken on.
        keeping: what is kept of conversations between two turns.
    """

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        sink: Sink,
        clock: Clock,
        step_time: StepTime | None = None,
        journal: Journal | None = None,
        patience: Patience | None = None,
        limits: AdmissionLimits | None = None,
        keeping: Keeping | None = None,
    ) -> None:
        self._engine = engine
        self._policy = policy
        self._clock = clock
        self._announcer = Announcer(sink, journal or NoJournal(), clock)
        limits = limits or AdmissionLimits()
        self._removals = Removals(engine, clock.now)
        self._conversations = Conversations(
            engine, self._removals, limits, keeping or Keeping(), clock
        )
        self._pool = Pool(self._removals, self._announcer, self._conversations)
        self._watch = Watch(patience or Patience())
        self._watched_s = -math.inf
        self.step_time = step_time or StepTime()
        self.prompts = Prompts(engine)
        self._admission = Admission(
            engine, self._removals, self.prompts, limits, policy.whole_plans
        )
        self._stepper = Stepper(
            engine, self._pool, self._conversations, self._announcer, self.step_time, clock
        )
        self._reports = Reports(
            self._pool, engine, self._removals, self.prompts, self._admission, self._announcer,
            self._watch.patience.max_replans,
        )  # fmt: skip

    @property
    def generations(self) -> list[Generation]:
        """The generations being served, in order of arrival."""
        return self._pool.generations

    @property
    def stats(self) -> Stats:
        """Counts and recent times."""
        return self._announcer.stats

    @property
    def failures(self) -> Failures:
        """Steps that failed, in a row without one between that did not."""
        return self._stepper.failures

    @property
    def free_kv_tokens(self) -> int:
        """Tokens of KV that are free, or kept for conversations until somebody needs them."""
        return self._engine.capacity.free_tokens + self._conversations.kv_tokens

    @property
    def kept_conversations(self) -> int:
        """Conversations that wait for their next turn."""
        return len(self._conversations)

    def register(self, skill_set: SkillSet) -> int:
        """Pre-store a skill set, all at once; return the tokens of its shared prompt.

        Raises:
            RequestError: its name is taken by a different one.
            EngineError: there is no room for it, even without the conversations that are kept.
        """
        return in_one(self.registering(skill_set, 2**31))

    def registering(self, skill_set: SkillSet, piece_tokens: int = PIECE_TOKENS) -> Pieces:
        """Pre-store a skill set in pieces, so that others can be served in between.

        Raises:
            RequestError, EngineError: from a piece, as `register`.
        """
        for last_try in (not self._conversations.kv_tokens, True):
            try:
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
            except EngineLost:
                raise
            except EngineError:
                if last_try:
                    raise
                self._conversations.forget(math.inf)
        raise AssertionError("the second try ends it")

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
            requests = "1 request uses it" if users == 1 else f"{users} requests use it"
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"{requests}: skill set {name!r} can be unregistered when they have ended",
            )
        self._stepper.settle()
        self.prompts.unregister(name)

    def admit(self, request: Request, arrival_s: float | None = None) -> None:
        """Take a request into the pool; one that the engine cannot take ends at once.

        Raises:
            RequestError: its skill set is unknown or its id is being served.
        """
        if isinstance(request, PlanRequest):
            self.prompts.known(request.skill_set)
        if request.request_id in self._pool:
            raise RequestError(f"a request {quoted(request.request_id)} is being served already")
        now = self._clock.now() if arrival_s is None else arrival_s
        try:
            delivery = self._begin(request, now)
        except Rejected as error:
            self._announcer.refused(request, error)
            return
        except Exception:
            self._removals.remove(request.request_id)
            raise
        self._pool.put(delivery)
        self._announcer.admitted(delivery.generation)

    def _begin(self, request: Request, now: float) -> Delivery:
        self._conversations.free_key(request.request_id)
        if isinstance(request, StreamRequest):
            return self._conversations.begin(request, now)
        if isinstance(request, PlanRequest):
            return self._admission.begin(request, now, PlanTally(task=request.task))
        raise RequestError(f"nobody knows how to serve {type(request).__name__}")

    def cancel(self, request_id: str, code: ErrorCode, reason: str) -> bool:
        """End a request and free its memory; return whether it was there."""
        delivery = self._pool.get(request_id)
        if delivery is None:
            return False
        self._pool.end(delivery.generation, code, reason)
        return True

    def report(self, report: ExecutionReport) -> None:
        """Take a robot's word; one about requests of others or of the past changes nothing."""
        now = self._clock.now()
        self._watch.heard(report.agent, now)
        self._reports.take(report, now)

    def drain(self, draining: bool) -> None:
        """Make what is left as fast as it goes, nobody suspended; or serve by the policy again."""
        self._pool.drain(draining)

    def close(self) -> None:
        """Free the engine, and close the journal."""
        try:
            self._engine.close()
        finally:
            self._announcer.close()

    def turn(self) -> Turn:
        """Let the policy plan one step, run it, deliver what it made.

        Raises:
            EngineLost: the engine has ended.
            Exception: whatever else breaks the loop itself; it can be turned again.
        """
        self._removals.retry()
        now = self._clock.now()
        if now >= self._watched_s + WATCH_S:
            self._give_up(now)
        ready: list[Generation] = []
        blocked: list[Generation] = []
        loading: list[Generation] = []
        for generation in self._pool.generations:
            if generation.state is State.BLOCKED:
                blocked.append(generation)
            elif generation.state is not State.EXECUTING and _can_go_on(generation):
                generation.overrun(now)
                (loading if generation.loading else ready).append(generation)
        plan = self._plan(now, ready, blocked)
        if not plan:
            if self._stepper.waits:
                self._stepper.collect()
                return Turn(stepped=True, wake_s=now)
            if loading:
                return self._look_for_kv(loading[0], plan.wake_s)
            if ready and plan.wake_s == math.inf:
                self._end_stuck(max(ready, key=_tokens_needed))
                return Turn(stepped=False, wake_s=now)
            give_up_s = min(map(self._watch.deadline_s, self._pool.generations), default=math.inf)
            return Turn(stepped=False, wake_s=min(plan.wake_s, give_up_s))
        self._stepper.step(plan)
        return Turn(stepped=True, wake_s=plan.wake_s)

    def _look_for_kv(self, generation: Generation, wake_s: float) -> Turn:
        """See whether KV has come for anybody who waits for it, since no step of others tells."""
        self._stepper.step(StepPlan(((generation.key, 1),)))
        return Turn(stepped=False, wake_s=min(wake_s, self._clock.now() + LOOK_S))

    def _plan(self, now: float, ready: list[Generation], blocked: list[Generation]) -> StepPlan:
        """Ask the policy; who waits for outside words only gives up memory, before all others."""
        policy: Policy = Stream() if self._pool.draining else self._policy
        capacity = self._engine.capacity
        kept = self._conversations.lenders
        if not blocked and not kept:
            return policy.plan(now, ready, self.step_time, capacity)
        lent = sum(g.kv_tokens for g in blocked) + self._conversations.kv_tokens
        roomy = replace(capacity, free_tokens=capacity.free_tokens + lent)
        plan = policy.plan(now, ready, self.step_time, roomy)
        lenders = sorted(blocked, key=lambda g: g.due_s, reverse=True)
        return replace(plan, evictable=(*kept, *(g.key for g in lenders), *plan.evictable))

    def _give_up(self, now: float) -> None:
        """End the requests that nobody waits for any longer."""
        self._watched_s = now
        self._watch.forget(now, self._pool.generations)
        self._conversations.forget(now)
        for generation in self._pool.generations:
            verdict = self._watch.verdict(generation, now)
            if verdict is not None:
                self._pool.end(generation, *verdict)

    def _end_stuck(self, generation: Generation) -> None:
        """End a generation that no step will ever serve: nothing that happens makes room for it."""
        needed = _tokens_needed(generation)
        reason = f"it needs {needed} tokens of KV and {self.free_kv_tokens} can be had"
        self._pool.end(generation, ErrorCode.NO_MEMORY, reason)


def _can_go_on(generation: Generation) -> bool:
    """Return whether there is something to compute; after its last token there will be nothing."""
    last = len(generation.token_ids) + generation.coming >= generation.max_tokens
    return generation.to_compute > 0 and not (generation.coming and last)


def _tokens_needed(generation: Generation) -> int:
    """Return the tokens of KV that must be there for its next token."""
    return generation.to_compute + generation.kv_tokens
