"""Engines by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timely_llm.core.clock import Clock
from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Engine
from timely_llm.engines.example_script import ExampleScript
from timely_llm.engines.paced import PacedEngine
from timely_llm.engines.profiles import DEFAULT_PROFILE, step_time_profile
from timely_llm.engines.simulated import Script, SimulatedEngine
from timely_llm.engines.track import Limits

ENGINES = ("simulated", "transformers", "vllm")


def make_engine(
    name: str,
    *,
    model: str | Path = "",
    dtype: str = "float32",
    device: str = "auto",
    threads: int = 1,
    max_model_len: int = 2048,
    kv_tokens: int = 131_072,
    max_rows: int = 64,
    max_step_tokens: int = 2048,
    pace: str | None = None,
    script: Script | None = None,
    clock: Clock | None = None,
    engine_args: Mapping[str, Any] | None = None,
    process: bool = False,
) -> Engine:
    """Return a new engine.

    Args:
        name: one of `ENGINES`.
        model: folder, or id on the Hugging Face hub; `simulated` needs none.
        dtype: number type of weights and KV.
        device: cpu, cuda or auto; `vllm` runs where its build does.
        threads: of the CPU; `vllm` has options of its own for that.
        max_model_len: most tokens of one sequence, prompt and answer.
        kv_tokens: tokens of KV, pinned prefixes included.
        max_rows: most sequences in one step.
        max_step_tokens: most tokens computed in one step.
        pace: name of a profile: what `simulated` keeps to (`DEFAULT_PROFILE` if None), and the
            least time that a step of any other engine takes.
        script: what `simulated` answers; None: that it has no model.
        clock: of `simulated`; the wall's if None.
        engine_args: of `vllm`, more options by their names there.
        process: run it in a process of its own; `simulated` has none.

    Raises:
        EngineError: the name is unknown, or an option is not possible.
        ModelError: the model cannot be loaded.
    """
    if name not in ENGINES:
        raise EngineError(f"unknown engine {name!r}: choose one of {', '.join(ENGINES)}")
    if engine_args and name != "vllm":
        raise EngineError(f"engine_args are options that only the engine vllm has, not {name}")
    profile = step_time_profile(pace) if pace else None
    limits = Limits(max_model_len, kv_tokens, max_rows, max_step_tokens)
    if name == "simulated":
        if process:
            raise EngineError("the engine simulated computes nothing: it needs no process")
        profile = profile or step_time_profile(DEFAULT_PROFILE)
        return SimulatedEngine(profile, script or ExampleScript(tuple), clock, limits)
    engine: Engine
    if process:
        from timely_llm.engines.remote import RemoteEngine
        from timely_llm.engines.tokenizer import HubTokenizer

        options = {
            "name": name, "model": model, "dtype": dtype, "device": device, "threads": threads,
            "max_model_len": max_model_len, "kv_tokens": kv_tokens, "max_rows": max_rows,
            "max_step_tokens": max_step_tokens, "engine_args": engine_args,
        }  # fmt: skip
        engine = RemoteEngine(HubTokenizer(model), options)
        return PacedEngine(engine, profile) if profile else engine
    # Only who uses it pays for the import of torch.
    if name == "vllm":
        from timely_llm.engines.vllm import VllmEngine

        engine = VllmEngine(model, dtype, limits, engine_args=engine_args)
    else:
        from timely_llm.engines.transformers import TransformersEngine

        engine = TransformersEngine(model, dtype, device, threads, limits)
    return PacedEngine(engine, profile) if profile else engine
