from __future__ import annotations

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import EngineError
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import Profile, SimulatedEngine
from timely_llm.profiling.engine_steps import OWN_TOKENS, measure_prompts

STEPS = Profile("made up", "test", 0.01, 0.001, 0.0001, 0.000002, 0.004)


def engine(**limits: int) -> SimulatedEngine:
    return SimulatedEngine(STEPS, lambda key, prompt: "yes", VirtualClock(), EngineLimits(**limits))


def test_prompts_are_measured_with_and_without_a_pinned_beginning() -> None:
    bench = engine()
    found = measure_prompts(bench, repeats=2)
    pinned = (256 - OWN_TOKENS, 1024 - OWN_TOKENS)
    assert [(p.tokens, p.pinned) for p in found] == [
        (256, 0), (256, pinned[0]), (1024, 0), (1024, pinned[1])
    ]  # fmt: skip
    for prompt in found:
        assert prompt.computed == prompt.tokens - prompt.pinned
        wanted_s = STEPS.step_s(0, prompt.computed, prompt.pinned)
        assert prompt.seconds == pytest.approx(wanted_s)
    kept = bench.capacity.free_tokens
    assert kept == EngineLimits().kv_tokens - sum(pinned)


def test_a_prompt_in_several_steps_takes_all_of_them() -> None:
    whole, chunks = (measure_prompts(engine(max_step_tokens=n), 1)[2] for n in (2048, 512))
    assert whole.computed == chunks.computed == 1024
    assert chunks.seconds > whole.seconds + STEPS.base_s / 2


def test_shorter_sequences_have_shorter_prompts() -> None:
    assert {p.tokens for p in measure_prompts(engine(max_model_len=500), 1)} == {256, 499}


def test_an_engine_that_is_too_small_says_so() -> None:
    with pytest.raises(EngineError):
        measure_prompts(engine(kv_tokens=300), 1)
