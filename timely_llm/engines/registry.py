"""Engines by name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from timely_llm.core.clock import Clock
from timely_llm.core.errors import ConfigurationError, EngineError, EngineSettingError, TimelyError
from timely_llm.core.object_reference import is_reference, load, raised, unknown
from timely_llm.core.requirements import RequirementError, need
from timely_llm.core.text import quoted
from timely_llm.engines.contract import Engine
from timely_llm.engines.example_script import ExampleScript
from timely_llm.engines.paces import STAGED, pace_profile
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import (
    DEFAULT_PROFILE,
    PROFILES,
    Profile,
    Script,
    SimulatedEngine,
)
from timely_llm.engines.wrappers import PacedEngine


def parse_engine_args(texts: Iterable[str]) -> dict[str, Any]:
    """Return options by name; a value that is not JSON is a text. Empty texts are skipped.

    Raises:
        EngineError: a text is not `name=value`, or a name comes twice.
    """
    args: dict[str, Any] = {}
    for text in filter(None, texts):
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()):
            raise EngineSettingError(f"engine_args: {text!r} is not name=value")
        if name in args:
            raise EngineSettingError(f"engine_args: {name!r} is given twice")
        try:
            args[name] = json.loads(value)
        except ValueError:
            args[name] = value
    return args


ENGINES = ("simulated", "transformers", "vllm")
EXTRAS = {"simulated": (), "transformers": ("server",), "vllm": ("vllm",)}
"""Extras of this package that each engine needs."""


MEMBERS = (
    *Engine.__annotations__, *(name for name in vars(Engine) if not name.startswith("_"))
)  # fmt: skip
"""Names that the contract asks of an engine."""


def check_packages(name: str, process: bool = False) -> None:
    """Check that the packages of an engine are installed.

    Args:
        name: one of `ENGINES`, or a user's own engine, which has no known packages.
        process: whether it runs in a process of its own.

    Raises:
        EngineError: one is missing or too old.
    """
    if is_reference(name) or (name == "vllm" and not process):
        return  # the engine vllm checks its own versions
    try:
        need(f"the engine {name}", *EXTRAS[name])
    except RequirementError as error:
        raise EngineSettingError(str(error)) from error


def own_engine(
    reference: str,
    limits: EngineLimits,
    model: str | Path = "",
    engine_args: Mapping[str, Any] | None = None,
) -> Engine:
    """Return a new engine of the user's own.

    Args:
        reference: names a class or function, such as `my_module:MyEngine`. It is called with the
            limits, with `model` as a keyword if one is given, and with `engine_args` as keywords.
        limits: limits of the engine.
        model: keyword `model` of the user's engine; empty: not given.
        engine_args: options of the user's engine by their names.

    Raises:
        EngineError: it cannot be made, or lacks a member of the contract.
    """
    try:
        make = load(reference)
    except ConfigurationError as error:
        raise EngineSettingError(str(error)) from error
    if not callable(make):
        raise EngineSettingError(f"{reference} is no engine: it is {quoted(make)}, not a class")
    options = {**({"model": str(model)} if model else {}), **(engine_args or {})}
    try:
        engine: Engine = make(limits, **options)
        lacking = [member for member in MEMBERS if not hasattr(engine, member)]
    except TimelyError:
        raise
    except Exception as error:  # whatever a user's class raises
        raise EngineError(f"{reference} cannot be made: {raised(error)}") from error
    if lacking:
        raise EngineSettingError(f"{reference} is no engine: it has no {' and no '.join(lacking)}")
    return engine


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
    micro_batches: int = 0,
) -> Engine:
    """Return a new engine.

    Args:
        name: one of `ENGINES`, or a user's own: see `own_engine`.
        model: folder, or id on the Hugging Face hub; `simulated` needs none.
        dtype: number type of weights and KV.
        device: cpu, cuda or auto; `vllm` runs where its build does.
        threads: CPU threads; `vllm` has its own options for them.
        max_model_len: most tokens of one sequence, prompt and answer.
        kv_tokens: tokens of KV, pinned prefixes included.
        max_rows: most sequences in one step.
        max_step_tokens: most tokens computed in one step.
        pace: name of a profile: the step times of `simulated` (None: `DEFAULT_PROFILE`), and the
            least step times of any other engine. Only `simulated` can follow one with stages.
        script: answers of `simulated`; None: it answers that it has no model.
        clock: clock of `simulated`; None: the wall clock.
        engine_args: more options of `vllm` or of a user's own engine, by name.
        process: run the engine in a process of its own; not for `simulated`.
        micro_batches: most steps in flight of an engine in stages; 0: as many as stages.

    Raises:
        EngineError: the name is unknown, an option is impossible, or a package is missing.
        ModelError: the model cannot be loaded.
    """
    limits = EngineLimits(max_model_len, kv_tokens, max_rows, max_step_tokens)
    profile = pace_profile(pace) if pace else None
    own = is_reference(name)
    if not own and name not in ENGINES:
        raise EngineSettingError(unknown("engine", name, ENGINES, "my_module:MyEngine"))
    if engine_args and not (own or name == "vllm"):
        raise EngineSettingError(
            f"engine_args are options of vllm and of engines of your own, not of {name}"
        )
    if name == "simulated":
        if process:
            raise EngineSettingError("the engine simulated computes nothing: it needs no process")
        said = script or ExampleScript(tuple)
        return _simulated(profile or PROFILES[DEFAULT_PROFILE], said, clock, limits, micro_batches)
    if isinstance(profile, PipelineProfile):
        raise EngineSettingError(
            f"the pace {profile.name} has stages, and the engine {name} has one: choose a pace of"
            " one stage"
        )
    if micro_batches and (name != "vllm" or profile):
        why = "takes one step at a time with a pace" if name == "vllm" else "has one stage"
        raise EngineSettingError(
            f"micro_batches={micro_batches}: the engine {name} {why}, so only 0 is allowed"
        )
    if own:
        if process:
            raise EngineSettingError(
                f"engine_process is for engines of the package, not for {name}"
            )
        engine = own_engine(name, limits, model, engine_args)
        return PacedEngine(engine, profile) if profile else engine
    check_packages(name, process)
    if process:
        from timely_llm.engines.remote import RemoteEngine
        from timely_llm.engines.tokenizer import HubTokenizer

        options = {
            "name": name, "model": model, "dtype": dtype, "device": device, "threads": threads,
            "max_model_len": max_model_len, "kv_tokens": kv_tokens, "max_rows": max_rows,
            "max_step_tokens": max_step_tokens, "engine_args": engine_args,
            "micro_batches": micro_batches,
        }  # fmt: skip
        engine = RemoteEngine(HubTokenizer(model), options)
        return PacedEngine(engine, profile) if profile else engine
    # Imported here, since it imports torch.
    if name == "vllm":
        from timely_llm.engines.vllm.engine import VllmEngine

        engine = VllmEngine(
            model, dtype, limits, engine_args=engine_args, micro_batches=micro_batches
        )
    else:
        from timely_llm.engines.transformers.engine import TransformersEngine

        engine = TransformersEngine(model, dtype, device, threads, limits)
    return PacedEngine(engine, profile) if profile else engine


def _simulated(
    profile: Profile | PipelineProfile,
    script: Script,
    clock: Clock | None,
    limits: EngineLimits,
    micro_batches: int,
) -> Engine:
    if isinstance(profile, PipelineProfile):
        return PipelinedEngine(profile, script, clock, limits, micro_batches or None)
    if micro_batches:
        raise EngineSettingError(
            f"micro_batches={micro_batches}: the engine simulated has one stage at the pace"
            f" {profile.name}, so only 0 is allowed; paces with stages: {', '.join(STAGED)}"
        )
    return SimulatedEngine(profile, script, clock, limits)
