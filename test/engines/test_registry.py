"""Engines by name, paced or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import EngineError, ModelError
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import Engine
from timely_llm.engines.registry import make_engine
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import Profile, SimulatedEngine
from timely_llm.engines.wrappers import PacedEngine


def say(engine: Engine, tokens: int) -> list[int]:
    prefix = engine.pin_prefix([5, 6, 7])
    left = engine.add("a", [5, 6, 7, 8, 9], prefix).to_compute
    said: list[int] = []
    while len(said) < tokens:
        engine.submit(StepPlan((("a", left if not said else 1),)))
        said += engine.collect().tokens["a"]
    return said


def test_engines_by_name(llama: Path) -> None:
    limits: dict[str, Any] = {
        "max_model_len": 99,
        "kv_tokens": 500,
        "max_rows": 3,
        "max_step_tokens": 64,
    }
    simulated = make_engine("simulated", clock=VirtualClock(), **limits)
    real = make_engine("transformers", model=llama, device="cpu", **limits)
    for engine in (simulated, real):
        assert engine.in_flight == 1
        capacity = engine.capacity
        assert (capacity.free_tokens, capacity.max_rows, capacity.max_step_tokens) == (500, 3, 64)
        engine.close()


def test_unknown_engine() -> None:
    with pytest.raises(EngineError, match="simulated, transformers, vllm"):
        make_engine("steam")


def test_impossible_limit() -> None:
    with pytest.raises(EngineError, match="max_rows must be at least 1, not 0"):
        make_engine("simulated", max_rows=0)


def test_unknown_pace() -> None:
    with pytest.raises(EngineError, match="abacus"):
        make_engine("simulated", pace="abacus")


def test_no_model() -> None:
    with pytest.raises(ModelError):
        make_engine("transformers", device="cpu")


def test_a_paced_engine_says_the_same(llama: Path) -> None:
    plain = make_engine("transformers", model=llama, device="cpu")
    paced = make_engine("transformers", model=llama, device="cpu", pace="millisecond")
    assert isinstance(paced, PacedEngine)
    assert say(paced, 9) == say(plain, 9)


def test_a_paced_step_takes_at_least_its_time() -> None:
    fast = SimulatedEngine(Profile("", "", 0, 0, 0), lambda key, prompt: "", VirtualClock())
    engine = PacedEngine(fast, Profile("slow", "made up", 0.01, 0.005, 0.004, 0.001))
    left = engine.add("a", [0] * 5, engine.pin_prefix([0, 0])).to_compute
    engine.submit(StepPlan((("a", left),)))
    assert engine.collect().duration_s >= 0.01 + 3 * 0.004 + 2 * 0.001
    engine.submit(StepPlan((("a", 1),)))
    assert engine.collect().duration_s >= 0.01 + 0.005 + 5 * 0.001
    engine.append("a", [0])
    engine.remove("a")
    assert engine.capacity == fast.capacity
    engine.close()


def test_only_the_engine_that_needs_torch_imports_it() -> None:
    code = (
        "import sys; from timely_llm.engines.registry import make_engine;"
        "import timely_llm.engines.tokenizer; make_engine('simulated');"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def own(limits: EngineLimits, **options: Any) -> SimulatedEngine:
    """Return an engine as a user's function makes it."""
    engine = SimulatedEngine(
        Profile("", "", 0, 0, 0), lambda key, prompt: "", VirtualClock(), limits
    )
    engine.options = options  # type: ignore[attr-defined]
    return engine


def test_an_engine_of_a_user_s_own_gets_limits_model_and_options() -> None:
    made: Any = make_engine(
        f"{__name__}:own", model="a/model", kv_tokens=99, engine_args={"seed": 3}
    )
    assert made.capacity.free_tokens == 99
    assert made.options == {"model": "a/model", "seed": 3}
    made = make_engine(f"{__name__}:own", pace="millisecond")
    assert isinstance(made, PacedEngine)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("nowhere:Mine", {}, "the module nowhere is not found"),
        (f"{__name__}:own", {"process": True}, "engine_process is for engines of the package"),
        (f"{__name__}:say", {}, "cannot be made: TypeError"),
        ("timely_llm.engines.sequences:Sequences", {"engine_args": {"block_tokens": 1}},
         "is no engine: it has no in_flight and no async_scheduling and no tokenizer"),
        ("timely_llm.engines.sequences:Sequences", {"engine_args": {"blocks": 1}}, "TypeError"),
    ],
)  # fmt: skip
def test_what_is_no_engine_is_refused_in_one_sentence(
    name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(EngineError, match=words) as found:
        make_engine(name, **options)
    assert "\n" not in str(found.value)
