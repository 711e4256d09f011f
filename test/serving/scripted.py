"""A loop on the virtual clock, with an engine that speaks from a script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from timely_llm.core.clock import Clock, RobotClock, VirtualClock
from timely_llm.core.events.log import EventLog
from timely_llm.core.generation import PlanGeneration, by_kind
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    ReportState,
    Request,
    Result,
    StreamChunk,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.engines.contract import Engine
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import PROFILES, SimulatedEngine
from timely_llm.policies.contract import Policy
from timely_llm.policies.timely import Timely
from timely_llm.resources import resource
from timely_llm.serving.busy import BusyGate
from timely_llm.serving.conversations import RetentionLimits
from timely_llm.serving.limits import AdmissionLimits, Timeouts
from timely_llm.serving.loop import Loop, Turn
from timely_llm.serving.publisher import EventPublisher, Stats
from timely_llm.serving.sink import Sink
from timely_llm.skills.skill_set import SkillSet, load_skill_set

DRONE = load_skill_set(resource("config/skill_sets/drone.yaml"))
ARM = load_skill_set(resource("config/skill_sets/arm.yaml"))
PROFILE = PROFILES["rtx4090-llama3-8b"]
FIND = "?s('cat'){g('cat');tp();->True;};->False;"


@dataclass
class Recorder:
    """A sink that remembers."""

    segments: list[Segment] = field(default_factory=list)
    results: dict[str, PlanResult] = field(default_factory=dict)
    chunks: list[StreamChunk] = field(default_factory=list)
    answers: dict[str, StreamResult] = field(default_factory=dict)
    steps: list[StepResult] = field(default_factory=list)

    def segment(self, segment: Segment) -> None:
        self.segments.append(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        self.chunks.append(chunk)

    def ended(self, result: Result) -> None:
        assert result.request_id not in self.results.keys() | self.answers.keys()
        if isinstance(result, PlanResult):
            self.results[result.request_id] = result
        elif isinstance(result, StreamResult):
            self.answers[result.request_id] = result

    def stepped(self, result: StepResult) -> None:
        self.steps.append(result)

    def texts(self, request_id: str) -> list[str]:
        return [s.text for s in self.segments if s.request_id == request_id]


def request(
    request_id: str, utility: TimeUtility = NORMAL, *, agent: str = "", **fields: Any
) -> PlanRequest:
    values: dict[str, Any] = {"skill_set": "drone", "task": request_id * 8, "time_utility": utility}
    return PlanRequest(request_id, agent or f"agent-{request_id}", **(values | fields))


class PublishingLoop(Loop):
    """A loop that publishes to a sink whatever happened, as soon as a call of it returns."""

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        sink: Sink,
        clock: Clock,
        event_log: EventLog | None = None,
        **options: Any,
    ) -> None:
        super().__init__(engine, policy, clock, **options)
        self.publisher = EventPublisher(self, sink, event_log)

    @property
    def stats(self) -> Stats:
        return self.publisher.stats

    @contextmanager
    def publishing(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.publisher.publish(self.take_events())

    def register(self, skill_set: SkillSet) -> int:
        with self.publishing():
            return super().register(skill_set)

    def unregister(self, name: str) -> None:
        with self.publishing():
            super().unregister(name)

    def admit(self, request: Request, arrival_s: float | None = None) -> None:
        with self.publishing():
            super().admit(request, arrival_s)

    def cancel(
        self, request_id: str, code: ErrorCode, reason: str, unless_begun: bool = False
    ) -> bool:
        with self.publishing():
            return super().cancel(request_id, code, reason, unless_begun)

    def report(self, report: ExecutionReport) -> None:
        with self.publishing():
            super().report(report)

    def drain(self, draining: bool) -> None:
        with self.publishing():
            super().drain(draining)

    def turn(self) -> Turn:
        """Turn, once more if all that happened was before the step."""
        while True:
            with self.publishing():
                turn = super().turn()
                self.publisher.publish(turn.events)
            if turn.stepped or not turn.events or turn.wake_s > self._clock.now():
                return turn


class Scene:
    """A loop that answers requests with the given plans, by request id.

    Of a plan with "..." the part before the dots comes first; the part after them comes when the
    model is asked again, after tool output or a failure.
    """

    def __init__(
        self,
        plans: Mapping[str, str],
        policy: Policy | None = None,
        timeouts: Timeouts | None = None,
        admission: AdmissionLimits | None = None,
        skill_set: SkillSet = DRONE,
        retention: RetentionLimits | None = None,
        engine: Callable[..., SimulatedEngine] = SimulatedEngine,
        clock: VirtualClock | None = None,
        robot_clock: RobotClock | None = None,
        busy: BusyGate | None = None,
        **limits: int,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.sink = Recorder()
        self.prompts: dict[str, list[str]] = {}
        self._plans = plans
        self.engine = engine(PROFILE, self._say, self.clock, EngineLimits(**limits))
        self.loop = PublishingLoop(
            self.engine, policy or Timely(), self.sink, self.clock, timeouts=timeouts,
            limits=admission, retention=retention, robot_clock=robot_clock, busy=busy,
        )  # fmt: skip
        self.prefix_tokens = self.loop.register(skill_set)
        self.free_at_start = self.loop.free_kv_tokens

    @property
    def plans(self) -> list[PlanGeneration]:
        """The plans being served."""
        return by_kind(self.loop.generations)[0]

    def _say(self, key: str, prompt: str) -> str:
        asked = self.prompts.setdefault(key, [])
        asked.append(prompt)
        return self._plans.get(key, "").split("...")[len(asked) - 1]

    def until_segments(self, count: int) -> None:
        """Turn until this number of segments has been published."""
        for _ in range(2000):
            if len(self.sink.segments) >= count:
                return
            self._turn()
        raise AssertionError(f"there were only {len(self.sink.segments)} segments")

    def _turn(self) -> None:
        turn = self.loop.turn()
        if not turn.stepped and turn.wake_s < math.inf:
            self.clock.advance(max(turn.wake_s - self.clock.now(), 0.0))

    def report(self, request_id: str, state: ReportState, index: int = 0, **fields: Any) -> None:
        """Say a robot's word."""
        agent = f"agent-{request_id}"
        self.loop.report(ExecutionReport(request_id, agent, state, index, **fields))

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.loop.turn()

    def run(self, limit: int = 2000) -> None:
        """Turn until all requests have ended."""
        for _ in range(limit):
            if not self.loop.generations:
                return
            self._turn()
        raise AssertionError(f"requests did not end within {limit} turns")
