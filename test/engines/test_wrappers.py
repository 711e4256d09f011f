"""An engine that keeps a pace, and what its pace is made of."""

from dataclasses import replace

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.core.step import StepPlan, StepResult
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile, StageLink
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import PROFILES, Profile, SimulatedEngine
from timely_llm.engines.wrappers import ForwardingEngine, PacedEngine


class TellsLate(SimulatedEngine):
    """Reports evictions and loads of a sequence that was removed since."""

    def collect(self) -> StepResult:
        return replace(super().collect(), evicted=("gone",), loaded={"gone": 5})


class Contexts(Profile):
    """Notes the context of each step; a step takes no time."""

    def __init__(self) -> None:
        super().__init__("contexts", "made up", 0.0, 0.0, 0.0)
        object.__setattr__(self, "seen", [])

    def step_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        self.seen.append(context_tokens)  # type: ignore[attr-defined]
        return 0.0


def simulated(kind: type[SimulatedEngine] = SimulatedEngine, **limits: int) -> SimulatedEngine:
    profile = PROFILES["millisecond"]
    return kind(profile, lambda key, prompt: "tp();", VirtualClock(), EngineLimits(**limits))


def test_a_result_may_name_a_sequence_that_was_removed_since() -> None:
    engine = PacedEngine(simulated(TellsLate), Contexts())
    engine.add("gone", [1, 2, 3])
    engine.remove("gone")
    engine.add("here", [1, 2, 3])
    engine.submit(StepPlan((("here", 3),)))
    assert engine.collect().computed == {"here": 3}


def test_a_step_is_paced_by_the_context_before_it() -> None:
    contexts = Contexts()
    engine = PacedEngine(simulated(kv_tokens=20), contexts)

    def step(*entries: tuple[str, int], evictable: tuple[str, ...] = ()) -> None:
        engine.submit(StepPlan(entries, evictable))
        engine.collect()

    prefix = engine.pin_prefix([1, 2])
    engine.add("a", [1, 2, 3, 4, 5], prefix)
    step(("a", 2))
    step(("a", 1))
    step(("a", 1))
    engine.append("a", [6, 7])
    step(("a", 3))
    engine.add("b", [3] * 14)
    step(("b", 14), evictable=("a",))
    engine.remove("b")
    step(("a", 100))
    step(("a", 1))
    assert contexts.seen == [2, 4, 5, 6, 0, 2, 10]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [ForwardingEngine, lambda e: PacedEngine(e, Contexts())])
def test_sequences_are_counted_by_the_inner_engine_alone(kind: type[ForwardingEngine]) -> None:
    inner = simulated()
    engine = kind(inner)
    assert (engine.in_flight, engine.async_scheduling) == (1, False)
    assert engine.tokenizer is inner.tokenizer
    assert engine.add("a", [1, 2, 3]) == (3, 0, 0, 0, False)
    engine.submit(StepPlan((("a", 2),)))
    assert engine.collect().progress == {"a": (1, 2, 0, 0, False)}
    assert engine.append("a", [4, 5]) == (3, 2, 0, 0, False)
    assert engine.resume("a", "b", [6]) == (4, 2, 0, 0, False)
    engine.remove("b")
    assert engine.capacity == inner.capacity


def test_stages_are_one_stage_while_one_step_is_in_flight() -> None:
    stage = PROFILES["millisecond"]
    profile = PipelineProfile("two", "made up", (stage, stage), (StageLink(0.0, 0.0),))
    staged = PipelinedEngine(profile, lambda key, prompt: "tp();", VirtualClock())
    assert staged.capacity.stages == 2
    paced = PacedEngine(staged, Contexts())
    assert (paced.in_flight, paced.capacity.stages, paced.capacity.micro_batches) == (1, 1, 1)
