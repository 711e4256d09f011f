"""The cost of a policy's decision (Ling et al. 2024, Table 5) and of a whole turn of the loop."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from timely_llm.core.clock import VirtualClock
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.generation import Generation, by_kind
from timely_llm.core.request import ChatMessage, PlanRequest, StreamRequest
from timely_llm.core.slo import SLO_CLASSES
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import DEFAULT_PROFILE, PROFILES, SimulatedEngine
from timely_llm.policies.contract import Policy
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.policies.step_time import StepTime
from timely_llm.resources import resource
from timely_llm.serving.loop import Loop
from timely_llm.serving.publisher import Stats
from timely_llm.skills.skill_set import load_skill_set

PLANS_ALONE, BOTH, STREAMS_ALONE = "plans", "both", "streams"
POOLS = (PLANS_ALONE, BOTH, STREAMS_ALONE)
"""What the requests of a pool are: plans, half of them conversations, or conversations."""

MAX_ROWS = 256
URGENT_EVERY = 4
QUESTION = (ChatMessage("user", "What do you see?"),)
ANSWER_WORDS = 20
PLANS = (
    "tc(180);mf(120);tp();->True;",
    "?s('cat'){g('cat');tp();->True;};->False;",
    "4{mf(50);tc(90);};l('I am back');->True;",
    "mu(100);mb(50);->True;",
)


def rows(
    policies: Sequence[str] = tuple(POLICIES),
    generations: Sequence[int] = (1, 8, 64, 256),
    pools: Sequence[str] = POOLS,
    turns: int = 400,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Return the cost of one decision of each policy.

    A loop with a simulated engine serves a fixed number of requests on the virtual clock. New
    requests replace ended ones. One plan in four is urgent. Robots are busy as predicted.

    Args:
        policies: names of policies.
        generations: numbers of requests in service.
        pools: of `POOLS`, what the requests are.
        turns: measured turns; as many again, and two for each request, warm up.
        progress: called with the finished and the total number of pools.

    Returns:
        Rows of `policy, generations, streams, plan_us, turn_us`: `streams` of the generations are
        conversations; the times are medians in CPU microseconds, so that other programs do not
        count. A turn includes the policy's decision and excludes the engine's step.
    """
    scenes = [
        (policy, number, _streams(pool, number))
        for policy in policies
        for pool in pools
        for number in generations
        if number > 1 or pool != BOTH
    ]
    made = []
    for done, (policy, number, streams) in enumerate(scenes):
        progress(done, len(scenes))
        made.append(_row(policy, number, streams, turns))
    progress(len(scenes), len(scenes))
    return made


def _streams(pool: str, generations: int) -> int:
    """Return how many requests of a pool are conversations."""
    return {PLANS_ALONE: 0, BOTH: generations // 2, STREAMS_ALONE: generations}[pool]


def _row(policy: str, generations: int, streams: int, turns: int) -> dict[str, Any]:
    scene = _Scene(make_policy(policy), generations - streams, streams)
    for _ in range(turns + 2 * generations):
        scene.turn()
    measured = [scene.turn() for _ in range(turns)]
    plan_s, turn_s = (statistics.median(times) for times in zip(*measured, strict=True))
    return {
        "policy": policy,
        "generations": generations,
        "streams": streams,
        "plan_us": round(1e6 * plan_s, 1),
        "turn_us": round(1e6 * turn_s, 1),
    }


class _Scene:
    """A loop that always serves the same numbers of plans and streams."""

    def __init__(self, policy: Policy, plans: int, streams: int) -> None:
        self._clock = VirtualClock()
        self._engine = _Engine(self._clock)
        self._policy = _Policy(policy)
        self._loop = Loop(self._engine, self._policy, self._clock)
        self._loop.register(load_skill_set(resource("config/skill_sets/drone.yaml")))
        self._wanted = plans, streams
        self._ids = count()
        self._stats = Stats()

    def turn(self) -> tuple[float, float]:
        """Turn once; return the CPU seconds of the policy, and of the turn without the step."""
        plans, streams = by_kind(self._loop.generations)
        for _ in range(self._wanted[0] - len(plans)):
            self._admit_plan(next(self._ids))
        for _ in range(self._wanted[1] - len(streams)):
            self._admit_stream(next(self._ids))
        self._take(self._loop.take_events())
        policy_s, engine_s = self._policy.spent_s, self._engine.spent_s
        start_s = time.thread_time()
        turn = self._loop.turn()
        self._take(turn.events)
        spent_s = time.thread_time() - start_s
        if not turn.stepped and turn.wake_s < math.inf:
            self._clock.advance(max(turn.wake_s - self._clock.now(), 0.0))
        return self._policy.spent_s - policy_s, spent_s - (self._engine.spent_s - engine_s)

    def _take(self, events: Iterable[RunEvent]) -> None:
        for event in events:
            self._stats.take(event)

    def _admit_plan(self, number: int) -> None:
        utility = NORMAL if number % URGENT_EVERY else URGENT
        name = f"r{number}"
        self._loop.admit(PlanRequest(name, f"agent-{name}", "drone", "Scene: [chair]", utility))

    def _admit_stream(self, number: int) -> None:
        service = SLO_CLASSES[number % len(SLO_CLASSES)]
        name = f"s{number}"
        self._loop.admit(
            StreamRequest(name, f"agent-{name}", QUESTION, service.slo, service.weight)
        )


@dataclass
class _Policy:
    """A policy with a stopwatch."""

    policy: Policy
    spent_s: float = 0.0
    whole_plans: bool = field(init=False)

    def __post_init__(self) -> None:
        self.whole_plans = self.policy.whole_plans

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        start_s = time.thread_time()
        plan = self.policy.plan(now, generations, step_time, capacity)
        self.spent_s += time.thread_time() - start_s
        return plan


class _Engine(SimulatedEngine):
    """A simulated engine with a stopwatch."""

    def __init__(self, clock: VirtualClock) -> None:
        limits = EngineLimits(kv_tokens=1_000_000, max_rows=MAX_ROWS)
        super().__init__(PROFILES[DEFAULT_PROFILE], self._say, clock, limits)
        self._answers_given = 0
        self.spent_s = 0.0

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        start_s = time.thread_time()
        progress = super().submit(plan)
        self.spent_s += time.thread_time() - start_s
        return progress

    def collect(self) -> StepResult:
        start_s = time.thread_time()
        result = super().collect()
        self.spent_s += time.thread_time() - start_s
        return result

    def _say(self, key: str, prompt: str) -> str:
        self._answers_given += 1
        if key.startswith("s"):
            return "and on " * ANSWER_WORDS
        return PLANS[self._answers_given % len(PLANS)]
