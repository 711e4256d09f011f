"""A loop on the virtual clock, with an engine that speaks from a script."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from timely_llm.core.clock import VirtualClock
from timely_llm.core.generation import PlanGeneration, by_kind
from timely_llm.core.request import (
    ExecutionReport,
    PlanRequest,
    PlanResult,
    ReportState,
    Result,
)
from timely_llm.core.segment import Segment
from timely_llm.core.stream import StreamChunk, StreamResult
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.engines.contract import StepResult
from timely_llm.engines.profiles import PROFILES
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.engines.track import Limits
from timely_llm.policies.contract import Policy
from timely_llm.policies.timely import Timely
from timely_llm.resources import resource
from timely_llm.serving.admission import AdmissionLimits
from timely_llm.serving.conversations import Keeping
from timely_llm.serving.loop import Loop
from timely_llm.serving.patience import Patience
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


class Scene:
    """A loop whose requests, named by their ids, are answered with the given plans.

    A plan with "..." is what is said at first; what follows the dots is said when the model is
    asked again, after outside words or a failure.
    """

    def __init__(
        self,
        plans: Mapping[str, str],
        policy: Policy | None = None,
        patience: Patience | None = None,
        admission: AdmissionLimits | None = None,
        skill_set: SkillSet = DRONE,
        keeping: Keeping | None = None,
        engine: Callable[..., SimulatedEngine] = SimulatedEngine,
        **limits: int,
    ) -> None:
        self.clock = VirtualClock()
        self.sink = Recorder()
        self.prompts: dict[str, list[str]] = {}
        self._plans = plans
        self.engine = engine(PROFILE, self._say, self.clock, Limits(**limits))
        self.loop = Loop(
            self.engine, policy or Timely(), self.sink, self.clock, patience=patience,
            limits=admission, keeping=keeping,
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
        """Turn until so many segments have been published."""
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
