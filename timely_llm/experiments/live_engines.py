"""The engines of an experiment in real time: ours, and one for each of vLLM's own schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timely_llm.engines.contract import Engine
from timely_llm.engines.engine_args import parse_engine_args
from timely_llm.engines.paced import PacedEngine
from timely_llm.engines.profiles import step_time_profile
from timely_llm.engines.registry import make_engine
from timely_llm.engines.track import Limits
from timely_llm.experiments.contract import Options
from timely_llm.experiments.policy_spec import PolicySpec
from timely_llm.experiments.scripted import MAX_MODEL_LEN
from timely_llm.experiments.stock import StockPolicy, StockSpec
from timely_llm.policies.contract import Policy
from timely_llm.resources import resource

if TYPE_CHECKING:
    from timely_llm.engines.vllm_stock_engine import StockEngine

EMBEDDED = "models/tiny_planner"


class LiveEngines:
    """The engines of a run, each made when it is needed first.

    Args:
        options: the user's.

    Raises:
        EngineError: an option of vLLM's own is not written as one.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._model = options.model or resource(EMBEDDED)
        self._args = parse_engine_args(options.engine_args)
        self._pace = None if options.own_pace else options.profile
        self._max_model_len = MAX_MODEL_LEN if options.scripted else Limits().max_model_len
        self._ours: Engine | None = None
        self._stock: dict[str, StockEngine] = {}

    def of(self, arm: PolicySpec | StockSpec) -> tuple[Engine, Policy]:
        """Return the engine that an arm runs on, without requests, and a new policy.

        Raises:
            TimelyError: the engine cannot be had.
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
        """Free them."""
        for stock in self._stock.values():
            stock.close()
        if self._ours is not None:
            self._ours.close()
