"""A loop on the virtual clock, with an engine that speaks from a script."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from timely_llm.core.clock import VirtualClock
from timely_llm.core.request import PlanRequest, PlanResult
from timely_llm.core.segment import Segment
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.engines.profiles import PROFILES
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.engines.track import Limits
from timely_llm.policies.contract import Policy
from timely_llm.policies.timely import Timely
from timely_llm.resources import resource
from timely_llm.serving.loop import Loop
from timely_llm.skills.skill_set import load_skill_set

DRONE = load_skill_set(resource("config/skill_sets/drone.yaml"))
PROFILE = PROFILES["rtx4090-llama3-8b"]
FIND = "?s('cat'){g('cat');tp();->True;};->False;"


@dataclass
class Recorder:
    """A sink that remembers."""

    segments: list[Segment] = field(default_factory=list)
    results: dict[str, PlanResult] = field(default_factory=dict)

    def segment(self, segment: Segment) -> None:
        self.segments.append(segment)

    def ended(self, result: PlanResult) -> None:
        assert result.request_id not in self.results
        self.results[result.request_id] = result

    def texts(self, request_id: str) -> list[str]:
        return [s.text for s in self.segments if s.request_id == request_id]


def request(
    request_id: str, utility: TimeUtility = NORMAL, *, agent: str = "", max_tokens: int = 256
) -> PlanRequest:
    return PlanRequest(
        request_id, agent or f"agent-{request_id}", "drone", request_id * 8, utility, max_tokens
    )


class Scene:
    """A loop whose requests, named by their ids, are answered with the given plans."""

    def __init__(
        self, plans: Mapping[str, str], policy: Policy | None = None, **limits: int
    ) -> None:
        self.clock = VirtualClock()
        self.sink = Recorder()
        self.engine = SimulatedEngine(
            PROFILE, lambda key, prompt: plans[key], self.clock, Limits(**limits)
        )
        self.loop = Loop(self.engine, policy or Timely(), self.sink, self.clock)
        self.prefix_tokens = self.loop.register(DRONE)
        self.free_at_start = self.loop.free_kv_tokens

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.loop.turn()

    def run(self, limit: int = 2000) -> None:
        """Turn until all requests have ended."""
        for _ in range(limit):
            if not self.loop.generations:
                return
            turn = self.loop.turn()
            if not turn.stepped and turn.wake_s < math.inf:
                self.clock.advance(max(turn.wake_s - self.clock.now(), 0.0))
        raise AssertionError(f"requests did not end within {limit} turns")
