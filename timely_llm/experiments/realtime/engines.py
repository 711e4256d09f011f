"""The engines of real-time runs: ours, and stock vLLM with its own schedulers as baselines."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timely_llm.core.generation import Generation, PlanGeneration
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.core.time_utility import NORMAL
from timely_llm.engines.contract import Engine
from timely_llm.engines.registry import make_engine, parse_engine_args
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import step_time_profile
from timely_llm.engines.vllm.version import import_core
from timely_llm.engines.wrappers import PacedEngine
from timely_llm.experiments.contract import STOCK, ExperimentError, RealTimeOptions
from timely_llm.experiments.policy_spec import PolicySpec
from timely_llm.experiments.realtime.serve import MAX_MODEL_LEN
from timely_llm.policies.contract import Policy
from timely_llm.policies.step_time import StepTime

if TYPE_CHECKING:
    from timely_llm.engines.vllm.stock import StockEngine


class LiveEngines:
    """The engines of a run. Each is made at its first use.

    Args:
        options: the user's.

    Raises:
        EngineError: an option for vLLM is not `name=value`.
    """

    def __init__(self, options: RealTimeOptions) -> None:
        self._options = options
        self._model = options.model_path
        self._args = parse_engine_args(options.engine_args)
        self._pace = None if options.own_pace else options.profile
        self._max_model_len = MAX_MODEL_LEN if options.scripted else EngineLimits().max_model_len
        self._ours: Engine | None = None
        self._stock: dict[str, StockEngine] = {}

    def of(self, arm: PolicySpec | StockSpec) -> tuple[Engine, Policy]:
        """Return the engine of an arm, without requests, and a new policy.

        Raises:
            TimelyError: the engine cannot be made.
        """
        if isinstance(arm, PolicySpec):
            if self._ours is None:
                self._ours = make_engine(
                    self._options.engine, model=self._model, max_model_len=self._max_model_len,
                    pace=self._pace, engine_args=self._args,
                )  # fmt: skip
            return self._ours, arm.make()
        if arm.text not in self._stock:
            self._stock[arm.text] = arm.engine(self._model, self._args, self._max_model_len)
        stock = self._stock[arm.text]
        paced = PacedEngine(stock, step_time_profile(self._pace)) if self._pace else stock
        return paced, StockPolicy(stock)

    def close(self) -> None:
        """Close the engines."""
        for stock in self._stock.values():
            stock.close()
        if self._ours is not None:
            self._ours.close()


_ROWS = "rows="


@dataclass(frozen=True)
class StockSpec:
    """One of vLLM's schedulers, in the notation of users: `vllm-priority:rows=8`.

    Attributes:
        text: the user's text.
        scheduling: vLLM's name of its policy.
        limits: limits of the engine; `rows` sets vLLM's `max_num_seqs`.
    """

    text: str
    scheduling: str
    limits: EngineLimits

    @classmethod
    def parse(cls, text: str) -> StockSpec | None:
        """Return the scheduler of a text; None if the text names none.

        Raises:
            ExperimentError: its option is not possible.
        """
        name, _, option = text.partition(":")
        if name not in STOCK:
            return None
        limits, rows = EngineLimits(), option.removeprefix(_ROWS)
        if option:
            possible = rows.isascii() and rows.isdecimal() and 1 <= int(rows[:9]) <= 1024
            if not (option.startswith(_ROWS) and possible):
                raise ExperimentError(f"{text}: {option!r} is not rows=1 to rows=1024")
            limits = replace(limits, max_rows=int(rows))
        return cls(text, name.removeprefix("vllm-"), limits)

    def engine(
        self,
        model: str | Path,
        engine_args: Mapping[str, Any] | None = None,
        max_model_len: int = EngineLimits().max_model_len,
    ) -> StockEngine:
        """Return a new engine.

        Args:
            model: folder, or id on the Hugging Face hub.
            engine_args: vLLM's own options.
            max_model_len: most tokens of one sequence.

        Raises:
            TimelyError: vLLM is missing, or the model cannot be run.
        """
        import_core()
        from timely_llm.engines.vllm.stock import StockEngine

        limits = replace(self.limits, max_model_len=max_model_len)
        return StockEngine(model, "float32", limits, self.scheduling, engine_args)


class StockPolicy:
    """Plans all generations in order of arrival; vLLM's scheduler decides.

    Args:
        engine: receives the priority of each generation.
    """

    whole_plans = True

    def __init__(self, engine: StockEngine) -> None:
        self._engine = engine

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return all generations."""
        order = sorted(generations, key=attrgetter("arrival_s"))
        for generation in order:
            self._engine.priorities[generation.key] = 0 if _urgent(generation) else 1
        return StepPlan(tuple((g.key, max(g.to_compute, 1)) for g in order))


def _urgent(generation: Generation) -> bool:
    if isinstance(generation, PlanGeneration):
        return generation.request.time_utility.beta > NORMAL.beta
    return False
