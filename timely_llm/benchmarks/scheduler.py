"""What a policy's decision costs a step (paper 001, Table 5), and a whole turn of the loop."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from timely_llm.core.clock import VirtualClock
from timely_llm.core.generation import Generation, by_kind
from timely_llm.core.request import PlanRequest
from timely_llm.core.slo import SLO_CLASSES
from timely_llm.core.stream import ChatMessage, StreamRequest
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.engines.contract import StepResult
from timely_llm.engines.profiles import DEFAULT_PROFILE, PROFILES
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.engines.track import Limits
from timely_llm.policies.contract import Capacity, Policy, StepPlan
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.policies.step_time import StepTime
from timely_llm.resources import resource
from timely_llm.serving.loop import Loop
from timely_llm.serving.sink import Nobody
from timely_llm.skills.skill_set import load_skill_set

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
    lanes: Sequence[bool] = (False, True),
    turns: int = 400,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Return what one decision costs each policy.

    A loop with a simulated engine serves so many requests at a time on the virtual clock: what has
    ended is replaced, one plan in four is urgent, robots are busy as predicted.

    Args:
        policies: names of policies.
        generations: how many requests are being served.
        lanes: whether every second one is a conversation.
        turns: turns that are measured; as many again, and two for each request, go before.
        progress: called with pools done and pools asked for.

    Returns:
        Rows of `policy, generations, streams, plan_us, turn_us`, streams being how many of the
        generations are; medians in microseconds of the CPU, so that other programs do not count. A
        turn holds the plan and everything else but the engine's step.
    """
    pools = [
        (policy, number, both)
        for policy in policies
        for both in lanes
        for number in generations
        if number > 1 or not both
    ]
    made = []
    for done, (policy, number, both) in enumerate(pools):
        progress(done, len(pools))
        made.append(_row(policy, number, both, turns))
    progress(len(pools), len(pools))
    return made


def _row(policy: str, generations: int, both: bool, turns: int) -> dict[str, Any]:
    scene = _Scene(make_policy(policy), generations, both)
    for _ in range(turns + 2 * generations):
        scene.turn()
    measured = [scene.turn() for _ in range(turns)]
    plan_s, turn_s = (statistics.median(times) for times in zip(*measured, strict=True))
    return {
        "policy": policy,
        "generations": generations,
        "streams": generations // 2 if both else 0,
        "plan_us": round(1e6 * plan_s, 1),
        "turn_us": round(1e6 * turn_s, 1),
    }


class _Scene:
    """A loop that always serves the same number of plans, and of streams."""

    def __init__(self, policy: Policy, generations: int, both: bool) -> None:
        self._clock = VirtualClock()
        self._engine = _Engine(self._clock)
        self._policy = _Policy(policy)
        self._loop = Loop(self._engine, self._policy, Nobody(), self._clock)
        self._loop.register(load_skill_set(resource("config/skill_sets/drone.yaml")))
        self._wanted = [generations, 0]
        if both:
            self._wanted = [generations - generations // 2, generations // 2]
        self._ids = count()

    def turn(self) -> tuple[float, float]:
        """Turn once; return the seconds of the policy, and of all but the engine's step."""
        plans, streams = by_kind(self._loop.generations)
        for _ in range(self._wanted[0] - len(plans)):
            self._admit_plan(next(self._ids))
        for _ in range(self._wanted[1] - len(streams)):
            self._admit_stream(next(self._ids))
        policy_s, engine_s = self._policy.spent_s, self._engine.spent_s
        start_s = time.thread_time()
        turn = self._loop.turn()
        spent_s = time.thread_time() - start_s
        if not turn.stepped and turn.wake_s < math.inf:
            self._clock.advance(max(turn.wake_s - self._clock.now(), 0.0))
        return self._policy.spent_s - policy_s, spent_s - (self._engine.spent_s - engine_s)

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
        limits = Limits(kv_tokens=1_000_000, max_rows=MAX_ROWS)
        super().__init__(PROFILES[DEFAULT_PROFILE], self._say, clock, limits)
        self._answers_given = 0
        self.spent_s = 0.0

    def submit(self, plan: StepPlan) -> None:
        start_s = time.thread_time()
        super().submit(plan)
        self.spent_s += time.thread_time() - start_s

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
