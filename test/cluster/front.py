"""A front with a sink that records what comes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec

import pytest

from timely_llm.cluster.setup import make_replicas
from timely_llm.core.clock import WallClock
from timely_llm.core.request import Request, Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.ros.server.setup import PARAMETERS

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
"""The package is not imported by tests: it reads its variables when it is imported."""
CLUSTERS = ["processes", pytest.param("ray", marks=[needs_ray, pytest.mark.timeout(300)])]
LIMIT_S = 60.0
"""Longest wait for what must come, seconds."""


def values(**given: object) -> dict[str, object]:
    """Return parameters of a plan server with the engine `simulated`."""
    defaults = {parameter.name: parameter.default for parameter in PARAMETERS}
    return defaults | {"engine": "simulated"} | given


class Front:
    """Replicas, and all that comes of them; the thread that calls it is the relay's."""

    def __init__(self, **given: object) -> None:
        self.segments: defaultdict[str, list[Segment]] = defaultdict(list)
        self.chunks: defaultdict[str, list[StreamChunk]] = defaultdict(list)
        self.results: dict[str, Result] = {}
        self.log: list[str] = []
        self.replicas = make_replicas(
            values(**given), "/plan_server", self, WallClock(), self.log.append, lambda: None
        )
        self.relay = self.replicas.relay

    def accepted(self, request: Request) -> None:
        pass

    def segment(self, segment: Segment) -> None:
        self.segments[segment.request_id].append(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        self.chunks[chunk.request_id].append(chunk)

    def ended(self, result: Result) -> None:
        assert result.request_id not in self.results
        self.results[result.request_id] = result

    def stepped(self, result: StepResult) -> None:
        raise AssertionError("steps stay where their engine is")

    def until(self, what: Callable[[], object], limit_s: float = LIMIT_S) -> float:
        """Tick until something holds; return the seconds that it took."""
        began_s = time.monotonic()
        while not what():
            assert time.monotonic() < began_s + limit_s, self.log
            self.replicas.tick()
            time.sleep(0.002)
        return time.monotonic() - began_s

    def complete(self, count: int, skill_set: str = "drone") -> bool:
        """Return whether this many replicas take requests that name a skill set."""
        views = self.relay.views()
        return len(views) == count and all(skill_set in one.skill_sets for one in views)

    def servers_of(self, *keys: str) -> list[str | None]:
        return [self.relay.server_of(key) for key in keys]

    def close(self) -> None:
        self.relay.close()
        self.replicas.close()
