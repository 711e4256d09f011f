"""People who are served in micro-batches by the serving loop."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from test.serving.scripted import Scene
from test.serving.test_streams import ask
from timely_llm.core.clock import Clock
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile, StageLink
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import Profile, Script, SimulatedEngine
from timely_llm.policies.contract import Policy
from timely_llm.policies.fcfs import Stream


def pipelined(
    stages: int,
    one: Profile,
    script: Script,
    clock: Clock,
    limits: EngineLimits,
    micro_batches: int | None = None,
) -> SimulatedEngine:
    """Return an engine in stages.

    Args:
        stages: number of stages; 1: the simulated engine without any.
        one: seconds of each stage.
        script, clock, limits: see `SimulatedEngine`.
        micro_batches: steps that can be in flight; None: one for each stage.
    """
    if stages < 2:
        return SimulatedEngine(one, script, clock, limits)
    link = StageLink(0.002, 0.0001)
    profile = PipelineProfile("made", "up", (one,) * stages, (link,) * (stages - 1))
    return PipelinedEngine(profile, script, clock, limits, micro_batches)


class Served(Scene):
    """People who ask at once; their answers by request id."""

    def __init__(
        self,
        answers: Mapping[str, str],
        policy: Policy | None = None,
        stages: int = 1,
        spare_tokens: int = 1 << 20,
        max_tokens: int = 256,
    ) -> None:
        kv_tokens = Scene({}).prefix_tokens + spare_tokens
        engine = partial(pipelined, stages, micro_batches=stages + 2)
        super().__init__(answers, policy or Stream(), engine=engine, kv_tokens=kv_tokens)
        for key in answers:
            self.loop.admit(ask(key, max_tokens=max_tokens))
