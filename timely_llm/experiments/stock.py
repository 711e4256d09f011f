"""Stock vLLM's own schedulers as baselines, in the harness of our policies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timely_llm.core.generation import Generation, PlanGeneration
from timely_llm.core.time_utility import NORMAL
from timely_llm.engines.track import Limits
from timely_llm.engines.vllm_version import import_core
from timely_llm.experiments.contract import STOCK, ExperimentError
from timely_llm.policies.contract import Capacity, StepPlan
from timely_llm.policies.step_time import StepTime

if TYPE_CHECKING:
    from timely_llm.engines.vllm_stock_engine import StockEngine

_ROWS = "rows="


@dataclass(frozen=True)
class StockSpec:
    """One of vLLM's schedulers, as users write it: `vllm-priority:rows=8`.

    Attributes:
        text: as the user wrote it.
        scheduling: what vLLM calls its policy.
        limits: of the engine: vLLM's `max_num_seqs` is `rows`.
    """

    text: str
    scheduling: str
    limits: Limits

    @classmethod
    def parse(cls, text: str) -> StockSpec | None:
        """Return what a text means, None if it is of no such scheduler.

        Raises:
            ExperimentError: it has an option that is not possible.
        """
        name, _, option = text.partition(":")
        if name not in STOCK:
            return None
        limits, rows = Limits(), option.removeprefix(_ROWS)
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
        max_model_len: int = Limits().max_model_len,
    ) -> StockEngine:
        """Return a new engine.

        Args:
            model: folder, or id on the Hugging Face hub.
            engine_args: options of vLLM's own.
            max_model_len: most tokens of one sequence.

        Raises:
            TimelyError: vLLM is missing, or the model cannot be run.
        """
        import_core()
        from timely_llm.engines.vllm_stock_engine import StockEngine

        limits = replace(self.limits, max_model_len=max_model_len)
        return StockEngine(model, "float32", limits, self.scheduling, engine_args)


class StockPolicy:
    """Names everybody, in order of arrival, with the priority that vLLM's scheduler is told.

    Args:
        engine: told who is urgent.
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
        """Return everyone."""
        order = sorted(generations, key=attrgetter("arrival_s"))
        for generation in order:
            self._engine.priorities[generation.key] = 0 if _urgent(generation) else 1
        return StepPlan(tuple((g.key, max(g.to_compute, 1)) for g in order))


def _urgent(generation: Generation) -> bool:
    if isinstance(generation, PlanGeneration):
        return generation.request.time_utility.beta > NORMAL.beta
    return False
