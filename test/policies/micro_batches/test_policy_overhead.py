"""The rule `cycle` where the engine itself has work between two steps, as vLLM on CPUs has."""

from __future__ import annotations

import pytest

from timely_llm.benchmarks.stages import AlikeRequests
from timely_llm.core.clock import VirtualClock
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile, StageLink
from timely_llm.engines.simulated import Profile
from timely_llm.policies.micro_batches.policy import Mode, in_micro_batches
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.registry import make_policy
from timely_llm.serving.loop import Loop

STAGE = Profile("stage", "", 0.003, 0.00006, 0.00005)
TWO = PipelineProfile("two", "", (STAGE,) * 2, (StageLink(0.0008, 0.000415),), overhead_s=0.003)
ASKED = AlikeRequests(32, 64, 64)


def served_s(policy: str, mode: Mode) -> float:
    """Return the seconds of the second of two runs; the times are learned in both."""
    learned = PipelineTime.unknown(2)
    seconds = 0.0
    for _ in range(2):
        clock = VirtualClock()
        engine = PipelinedEngine(TWO, lambda *_: "so " * 64, clock, micro_batches=4)
        loop = Loop(engine, in_micro_batches(make_policy(policy), mode), clock, learned)
        for request in ASKED.made():
            loop.admit(request)
        while loop.generations:
            loop.turn()
        seconds = clock.now()
    return seconds


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fcfs", "deadline"])
def test_no_other_rule_serves_sooner(policy: str) -> None:
    cycle_s = served_s(policy, Mode.CYCLE)
    for mode in (Mode.OFF, Mode.BUDGET_ONLY, Mode.PAPER, Mode.THROTTLE):
        assert cycle_s < served_s(policy, mode), mode
