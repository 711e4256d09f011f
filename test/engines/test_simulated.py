"""Time and answers of the engine without a model."""

from __future__ import annotations

import time

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import EngineError
from timely_llm.core.step import StepPlan
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.simulated import PROFILES, Profile, SimulatedEngine

STEPWISE = Profile("stepwise", "made up", 1.0, 0.1, 0.01, 0.001)


def run(engine: SimulatedEngine, *entries: tuple[str, int]) -> float:
    engine.submit(StepPlan(entries))
    return engine.collect().duration_s


def test_a_step_takes_what_the_profile_says() -> None:
    clock = VirtualClock(5.0)
    engine = SimulatedEngine(STEPWISE, lambda key, prompt: "yes", clock)
    engine.add("a", engine.tokenizer.encode("x" * 40))
    engine.add("b", engine.tokenizer.encode("x" * 40))
    assert run(engine, ("a", 8)) == pytest.approx(1.08)
    assert run(engine, ("a", 2)) == pytest.approx(1.0 + 0.02 + 0.008)
    assert run(engine, ("a", 1), ("b", 5)) == pytest.approx(1.0 + 0.1 + 0.05 + 0.01)
    assert clock.now() == pytest.approx(5.0 + 1.08 + 1.028 + 1.16)


def test_on_the_wall_clock_it_sleeps() -> None:
    engine = SimulatedEngine(Profile("short", "made up", 0.02, 0, 0), lambda key, prompt: "yes")
    engine.add("a", [0, 0])
    started_s = time.monotonic()
    run(engine, ("a", 2))
    assert time.monotonic() - started_s >= 0.02


def test_the_answer_is_the_script_and_then_eos() -> None:
    asked = []

    def script(key: str, prompt: str) -> str:
        asked.append((key, prompt))
        return "tc(30);"

    engine = SimulatedEngine(STEPWISE, script, VirtualClock())
    prompt = engine.tokenizer.encode_chat([{"role": "user", "content": "Turn!"}])
    tokens = engine.add("a", prompt).to_compute
    stream, said = engine.tokenizer.stream(), ""
    for entry in [("a", tokens), *[("a", 1)] * 6]:
        engine.submit(StepPlan((entry,)))
        (token,) = engine.collect().tokens["a"]
        said += stream.push(token)
    assert said == "tc(30);"
    assert token in engine.tokenizer.eos_ids
    assert asked == [("a", "<user>\nTurn!\n<assistant>\n")]


def test_after_tool_output_the_script_is_asked_again() -> None:
    engine = SimulatedEngine(STEPWISE, lambda key, prompt: prompt[-4:], VirtualClock())
    tokens = engine.add("a", engine.tokenizer.encode("what")).to_compute
    run(engine, ("a", tokens))
    engine.append("a", engine.tokenizer.encode("True"))
    engine.submit(StepPlan((("a", 2),)))
    assert engine.tokenizer.decode(engine.collect().tokens["a"]) == "True"


def test_the_papers_profile() -> None:
    profile = step_time_profile("rtx4090-llama3-8b")
    assert profile.step_s(rows=10) == pytest.approx(0.0231)
    assert profile.step_s(rows=0, prefill_tokens=100) == pytest.approx(0.0326)
    assert "Table 1" in profile.source


def test_unknown_profile() -> None:
    with pytest.raises(EngineError, match=", ".join(PROFILES)):
        step_time_profile("abacus")
