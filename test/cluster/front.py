"""Fronts with a sink that records what comes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import pytest

from timely_llm.cluster.setup import make_replicas
from timely_llm.core.clock import WallClock
from timely_llm.core.request import Request, Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.dispatch.relay import Relay
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


class Recorded:
    """Several servers behind the interface of one, and all that comes of them.

    The thread that calls it is the relay's.

    Attributes:
        relay: assigns requests to the servers.
        names: of the servers.
    """

    relay: Relay
    names: Sequence[str]

    def __init__(self) -> None:
        self.segments: defaultdict[str, list[Segment]] = defaultdict(list)
        self.chunks: defaultdict[str, list[StreamChunk]] = defaultdict(list)
        self.results: dict[str, Result] = {}
        self.log: list[str] = []

    @property
    def pids(self) -> Mapping[str, int]:
        """The process ids of the servers that run."""
        raise NotImplementedError

    @property
    def served(self) -> int:
        """Requests that ended without an error, as the servers count them."""
        raise NotImplementedError

    def tick(self) -> None:
        """Take what came, and do what is due."""
        raise NotImplementedError

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
            self.tick()
            time.sleep(0.002)
        return time.monotonic() - began_s

    def complete(self, skill_set: str = "drone") -> bool:
        """Return whether all servers take requests that name a skill set."""
        views = self.relay.views()
        return {one.name for one in views} == set(self.names) and all(
            skill_set in one.skill_sets for one in views
        )

    def servers_of(self, *keys: str) -> list[str | None]:
        return [self.relay.server_of(key) for key in keys]

    def close(self) -> None:
        self.relay.close()


class Front(Recorded):
    """Replicas that a front starts, in processes of this machine or in a cluster."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.replicas = make_replicas(
            values(**given), "/plan_server", self, WallClock(), self.log.append, lambda: None
        )
        self.relay = self.replicas.relay
        self.names = sorted(self.replicas.pids)

    @property
    def pids(self) -> Mapping[str, int]:
        return self.replicas.pids

    @property
    def served(self) -> int:
        return sum(int(one["ended"]) for one in self.replicas.statistics)

    def tick(self) -> None:
        self.replicas.tick()

    def close(self) -> None:
        super().close()
        self.replicas.close()
