"""The serving loop: admit, step, deliver.

The same loop runs on the wall clock in a thread of the server and on a virtual clock in
experiments. It is not thread-safe: `server.Server` gives it a thread and an inbox.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from timely_llm.core.clock import Clock
from timely_llm.core.errors import EngineError, PlanError, RequestError
from timely_llm.core.generation import Generation, State
from timely_llm.core.journal import Journal, NoJournal
from timely_llm.core.request import ErrorCode, ExecutionReport, PlanRequest, ReportState
from timely_llm.engines.contract import Engine, StepResult
from timely_llm.policies.contract import Policy, StepPlan
from timely_llm.policies.step_time import StepTime
from timely_llm.serving.announcer import Announcer, Sink
from timely_llm.serving.delivery import Delivery, correct
from timely_llm.serving.prompts import Prompts
from timely_llm.serving.stats import Stats
from timely_llm.skills.minispec import MiniSpecChecker
from timely_llm.skills.skill_set import SkillSet

log = logging.getLogger(__name__)


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
    """

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        sink: Sink,
        clock: Clock,
        step_time: StepTime | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._engine = engine
        self._policy = policy
        self._clock = clock
        self._announcer = Announcer(sink, journal or NoJournal(), clock)
        self._deliveries: dict[str, Delivery] = {}
        self.step_time = step_time or StepTime()
        self.prompts = Prompts(engine)

    @property
    def generations(self) -> list[Generation]:
        """The generations being served, in order of arrival."""
        return [delivery.generation for delivery in self._deliveries.values()]

    @property
    def stats(self) -> Stats:
        """Counts and recent times."""
        return self._announcer.stats

    @property
    def free_kv_tokens(self) -> int:
        """Tokens of KV that are free in the engine."""
        return self._engine.capacity.free_tokens

    def register(self, skill_set: SkillSet) -> int:
        """Pre-store a skill set; return the tokens of its shared prompt.

        Raises:
            RequestError: its name is taken by a different one.
        """
        return self.prompts.register(skill_set)

    def admit(self, request: PlanRequest, arrival_s: float | None = None) -> None:
        """Take a request into the pool; one that the engine cannot take ends at once.

        Raises:
            RequestError: its skill set is unknown or its id is being served.
        """
        skill_set = self.prompts.skill_set(request.skill_set)
        key = request.request_id
        if key in self._deliveries:
            raise RequestError(f"a request {key!r} is being served already")
        now = self._clock.now() if arrival_s is None else arrival_s
        token_ids, prefix = self.prompts.build(request)
        generation = Generation(key, request, now, len(token_ids), len(token_ids))
        most = self._engine.capacity.max_model_len - len(token_ids)
        generation.max_tokens = min(request.max_tokens, most)
        try:
            generation.to_compute = self._engine.add(key, token_ids, prefix)
        except EngineError as error:
            self._announcer.admitted(generation)
            self._announcer.ended(generation, ErrorCode.INVALID_REQUEST, str(error))
            return
        generation.shared_tokens = len(token_ids) - generation.to_compute
        generation.context_tokens = generation.shared_tokens
        self._deliveries[key] = Delivery(
            generation,
            self._engine.tokenizer,
            MiniSpecChecker(skill_set),
            self._policy.whole_plans,
        )
        self._announcer.admitted(generation)

    def cancel(self, request_id: str, code: ErrorCode, reason: str) -> bool:
        """End a request and free its memory; return whether it was there."""
        delivery = self._deliveries.get(request_id)
        if delivery is None:
            return False
        self._end(delivery.generation, code, reason)
        return True

    def report(self, report: ExecutionReport) -> None:
        """Take a robot's word; reports about requests of others or of the past are ignored."""
        delivery = self._deliveries.get(report.request_id)
        if delivery is None or delivery.generation.request.agent != report.agent:
            return
        generation, now = delivery.generation, self._clock.now()
        if report.state is ReportState.RETURNED:
            self._end(generation, ErrorCode.NONE, "")
        elif report.state is ReportState.FAILED:
            reason = f"segment {report.index} failed: {report.value or 'no reason given'}"
            self._end(generation, ErrorCode.EXECUTION_FAILED, reason)
        else:
            correct(generation, report, now)
            self._announcer.reported(report, generation)

    def close(self) -> None:
        """Free the engine."""
        self._engine.close()

    def turn(self) -> Turn:
        """Let the policy plan one step, run it, deliver what it made."""
        now = self._clock.now()
        ready = [g for g in self.generations if g.state is not State.BLOCKED]
        for generation in ready:
            generation.overrun(now)
        plan = self._policy.plan(now, ready, self.step_time, self._engine.capacity)
        if not plan:
            if ready and plan.wake_s == math.inf:
                self._end_stuck(ready[0])
                return Turn(stepped=False, wake_s=now)
            return Turn(stepped=False, wake_s=plan.wake_s)
        try:
            self._engine.submit(plan)
            result = self._engine.collect()
        except Exception as error:  # an engine may fail in any way; the server lives on
            log.exception("a step of %d sequences failed", len(plan.entries))
            self._fail(plan, f"the engine failed: {type(error).__name__}: {error}")
            return Turn(stepped=True, wake_s=plan.wake_s)
        self._learn(plan, result)
        self._deliver(plan, result)
        return Turn(stepped=True, wake_s=plan.wake_s)

    def _end_stuck(self, generation: Generation) -> None:
        """End a generation that no step will ever serve: nothing that happens makes room for it."""
        needed = generation.to_compute + generation.kv_tokens
        reason = f"it needs {needed} tokens of KV and {self.free_kv_tokens} can be had"
        self._end(generation, ErrorCode.ENGINE_FAILED, reason)

    def _learn(self, plan: StepPlan, result: StepResult) -> None:
        prefill = sum(n for n in result.computed.values() if n > 1)
        rows = sum(1 for n in result.computed.values() if n == 1)
        context = sum(self._deliveries[key].generation.context_tokens for key in plan.keys)
        self.step_time.observe(result.duration_s, rows, prefill, context)
        self._announcer.stepped(result)

    def _deliver(self, plan: StepPlan, result: StepResult) -> None:
        """Bring the generations up to date with a step, and hand out what it completed."""
        for generation in self.generations:
            key = generation.key
            if key in result.evicted:
                generation.to_compute += generation.kv_tokens
                generation.context_tokens = generation.shared_tokens
            if key not in plan.keys:
                if generation.state is State.RUNNING:
                    generation.state = State.SUSPENDED
                continue
            if key in result.failures:
                self._end(generation, ErrorCode.ENGINE_FAILED, result.failures[key])
                continue
            computed = result.computed.get(key, 0)
            generation.to_compute -= computed
            generation.context_tokens += computed
            generation.recomputed_tokens += result.recomputed.get(key, 0)
            generation.state = State.RUNNING
            self._take(generation, result)

    def _take(self, generation: Generation, result: StepResult) -> None:
        """Push a generation's new tokens through its stop checker."""
        delivery = self._deliveries[generation.key]
        for token_id in result.tokens.get(generation.key, ()):
            generation.to_compute += 1
            try:
                segments = delivery.push(token_id, self._clock.now())
            except PlanError as error:
                self._end(generation, ErrorCode.MALFORMED_PLAN, str(error))
                return
            except Exception as error:  # one generation's trouble is nobody else's
                log.exception("tokens of %r could not be delivered", generation.key)
                reason = f"its tokens could not be read: {type(error).__name__}: {error}"
                self._end(generation, ErrorCode.ENGINE_FAILED, reason)
                return
            for segment in segments:
                self._announcer.delivered(segment, generation)
            if delivery.complete:
                self._end(generation, ErrorCode.NONE, "")
                return
            if len(generation.token_ids) >= generation.max_tokens:
                limit = generation.max_tokens
                reason = f"the plan is not complete after {limit} tokens, the most it may have"
                self._end(generation, ErrorCode.TOO_LONG, reason)
                return

    def _fail(self, plan: StepPlan, reason: str) -> None:
        for key in plan.keys:
            self._end(self._deliveries[key].generation, ErrorCode.ENGINE_FAILED, reason)

    def _end(self, generation: Generation, code: ErrorCode, reason: str) -> None:
        generation.state = State.ENDED
        del self._deliveries[generation.key]
        self._engine.remove(generation.key)
        self._announcer.ended(generation, code, reason)
