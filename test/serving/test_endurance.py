"""A loop that has served very many requests holds no more than one that has served a few."""

import math
from dataclasses import dataclass, field
from itertools import count

import pytest

from test import endurance
from test.policies.micro_batches.served import pipelined
from test.serving.scripted import DRONE, PublishingLoop
from timely_llm.conformance.policies.service import sizes
from timely_llm.core.clock import VirtualClock
from timely_llm.core.events.schema import StepEvent
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    ReportState,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.core.slo import Slo
from timely_llm.core.step import StepResult
from timely_llm.core.time_utility import TimeUtility
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import PROFILES
from timely_llm.policies.micro_batches.policy import Mode, in_micro_batches
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.serving.conversations import RetentionLimits
from timely_llm.serving.limits import MOST_AGENTS, RequestWatchdog, Timeouts
from timely_llm.serving.publisher import Stats

ANSWERS = ("mf(50);tc(90);mf(20);->True;", "mf(50);tp();?s('cat'){g('cat');tp();->True;};->False;")
AT_ONCE = 12
LONG = [pytest.mark.long, pytest.mark.timeout(3600)]
WINDOW = 256

LEARNS = {
    "AnswerLengths._order": 4 * 64,
    "AnswerLengths._sorted": 4 * 64,
    "SegmentLengths._order": 8 * 64,
    "SegmentLengths._sorted": 8 * 64,
    "SegmentLengths._known": 32 * 64,
    "LearnedLengths._gaussians": 4 * 64,
    "VirtualTokens._served": 5 * 64,
}
"""What is learned of the last 64 kinds of requests, where each one is of its own kind, and the
counters of the last 256 agents."""


@dataclass
class Sink:
    """Counts only."""

    ended_requests: int = 0
    codes: set[ErrorCode] = field(default_factory=set)

    def segment(self, segment: Segment) -> None:
        pass

    def chunk(self, chunk: StreamChunk) -> None:
        pass

    def stepped(self, result: StepResult) -> None:
        pass

    def ended(self, result: Result) -> None:
        self.ended_requests += 1
        self.codes.add(result.error_code)


class Crowd:
    """Robots and people; each asks once, in a way of its own."""

    def __init__(self, policy: str, limits: EngineLimits, stages: int = 1) -> None:
        self.clock, self.sink = VirtualClock(), Sink()
        mode = Mode.CYCLE if stages > 1 else Mode.OFF
        self.engine = pipelined(
            stages, PROFILES["rtx4090-llama3-8b"], lambda key, _: ANSWERS[len(key) % 2],
            self.clock, limits, 2 * stages,
        )  # fmt: skip
        self.loop = PublishingLoop(
            self.engine, in_micro_batches(make_policy(policy), mode), self.sink, self.clock,
            timeouts=Timeouts(client_timeout_s=5.0, answer_timeout_s=5.0),
            retention=RetentionLimits(max_conversations=4, timeout_s=20.0),
        )  # fmt: skip
        self.loop.register(DRONE)
        self._numbers = count()

    def serve(self, steps: int) -> None:
        """Serve a number of steps, and then the requests that are left."""
        most = self.loop.stats.steps + steps
        while self.loop.stats.steps < most:
            while len(self.loop.generations) < AT_ONCE:
                self.loop.admit(self._request(next(self._numbers)))
            self._turn()
        while self.loop.generations:
            self._turn()
        for _ in range(3):  # what was watched is let go
            self.clock.advance(30.0)
            self.loop.turn()

    def held(self) -> dict[str, int]:
        return dict(sizes(self.loop, self.engine, leave_out=[self.sink]))

    def _turn(self) -> None:
        turn = self.loop.turn()
        if not turn.stepped:
            wake_s = min(turn.wake_s, self.clock.now() + 0.5)
            self.clock.advance(max(wake_s - self.clock.now(), 1e-6))

    def _request(self, number: int) -> Request:
        agent = f"agent-{number}"
        if number % 3:
            self.loop.report(ExecutionReport("", agent, ReportState.ALIVE))
            worth = TimeUtility(1.0 + number * 1e-6, -2.0, 1.0)
            return PlanRequest(f"p{number}", agent, "drone", f"task {number}", worth)
        words = (ChatMessage("user", f"question {number:x} of {agent}"),)
        slo = Slo(tpot_s=0.1 + number * 1e-7, deadline_s=math.inf if number % 2 else 5.0)
        return StreamRequest(f"s{number}", agent, words, slo, conversation=f"c{number % 7}")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("steps", "kv_tokens"),
    [
        pytest.param(1500, 65_536, id="short"),
        pytest.param(30_000, 65_536, id="long", marks=LONG),
        pytest.param(30_000, 3200, id="long and tight", marks=LONG),
    ],
)
def test_a_loop_does_not_grow_with_what_it_has_served(
    policy: str, steps: int, kv_tokens: int
) -> None:
    crowd = Crowd(policy, EngineLimits(kv_tokens=kv_tokens))
    crowd.serve(steps // 5)
    early, told = crowd.held(), crowd.sink.ended_requests
    crowd.serve(steps)
    assert crowd.sink.ended_requests > told + steps // 50
    check_held(crowd, early)


def check_held(crowd: Crowd, early: dict[str, int], learned: int = 0) -> None:
    """Check that a loop holds no more than it did early.

    Args:
        crowd: of the loop.
        early: what it held.
        learned: lengths of answers that it may have learned since.
    """
    late = crowd.held()
    for place, held in late.items():
        if place.startswith("Stats._stages"):  # times of each of four stages in each step
            assert held <= 25 * WINDOW, place
        elif place.startswith(("Stats._", "ExecutionTimes._errors")):
            assert held <= WINDOW, place
        else:
            more = learned if place.startswith("AnswerLengths.") else 0
            assert held <= LEARNS.get(place, early.get(place, 0) + 8) + more, place
    assert crowd.loop.stats.requests == crowd.sink.ended_requests


@pytest.mark.parametrize("policy", ["deadline", "timely", "slice", "stream"])
@pytest.mark.parametrize(
    ("seconds", "kv_tokens"),
    [
        pytest.param(200.0, 4000, id="short"),
        pytest.param(3600.0, 65_536, id="an hour", marks=LONG),
        pytest.param(3600.0, 4000, id="a tight hour", marks=LONG),
    ],
)
def test_a_pipeline_does_not_grow_with_the_time_that_it_serves(
    policy: str, seconds: float, kv_tokens: int
) -> None:
    crowd = Crowd(policy, EngineLimits(kv_tokens=kv_tokens), stages=4)
    while crowd.clock.now() < seconds / 4:
        crowd.serve(500)
    early, told = crowd.held(), crowd.sink.ended_requests
    while crowd.clock.now() < seconds:
        crowd.serve(500)
    assert crowd.sink.ended_requests > 1.5 * told
    check_held(crowd, early, 3 * WINDOW)  # those of plans, and of a policy that learns them too
    assert crowd.loop.failures.row == 0
    assert crowd.sink.codes.isdisjoint({ErrorCode.ENGINE_FAILED, ErrorCode.NO_MEMORY})


@endurance.steps
def test_counts_and_recent_times_stay_right(steps: int) -> None:
    stats = Stats()
    result = StepResult({"a": (1,)}, {"a": 1}, 0.02)
    odd = [StepResult({"a": (1,)}, {"a": 1}, s) for s in (math.nan, math.inf, -1.0)]
    for step in range(steps):
        stats.take(StepEvent(0.0, 0.02, ("a",), result=odd[step % 3] if step % 100 < 3 else result))
    assert stats.steps == stats.generated_tokens == steps
    assert stats.step_s == pytest.approx(0.02)
    assert sum(sizes(stats).values()) <= 6 * WINDOW


@endurance.steps
def test_agents_that_report_once_are_forgotten(steps: int) -> None:
    for timeout_s in (10.0, math.inf):
        watch, most = RequestWatchdog(Timeouts(client_timeout_s=timeout_s)), 0
        for step in range(steps):
            watch.seen(f"agent-{step}", 0.01 * step)
            if step % 100 == 0:
                watch.forget(0.01 * step)
                most = max(most, watch.agents)
        assert most <= MOST_AGENTS
        assert sum(sizes(watch).values()) <= 4 * MOST_AGENTS
