"""vLLM's own schedulers as users name them; with vLLM: test_vllm_experiments.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from test.policies.builders import generation, stream
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.experiments.catalog.timelyllm.drone import EXPERIMENT
from timely_llm.experiments.contract import STOCK, ExperimentError
from timely_llm.experiments.realtime.run import StockPolicy, StockSpec, run
from timely_llm.policies.step_time import StepTime


def test_a_scheduler_is_named_with_its_rows() -> None:
    plain, few = StockSpec.parse("vllm-fcfs"), StockSpec.parse("vllm-priority:rows=8")
    assert plain is not None
    assert few is not None
    assert (plain.scheduling, plain.limits.max_rows) == ("fcfs", 64)
    assert (few.text, few.scheduling, few.limits.max_rows) == (
        "vllm-priority:rows=8", "priority", 8,
    )  # fmt: skip
    assert StockSpec.parse("fcfs") is StockSpec.parse("vllm") is None


@pytest.mark.parametrize("text", ["vllm-fcfs:rows=0", "vllm-fcfs:8", "vllm-fcfs:rows=x"])
def test_other_options_are_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match="is not rows=1 to rows=1024"):
        StockSpec.parse(text)


def test_they_are_baselines_where_vllm_is_the_engine() -> None:
    assert EXPERIMENT.options(engine="vllm").policies[:2] == STOCK
    assert EXPERIMENT.options(engine="vllm").policies[2:] == (
        "fcfs",
        "stream",
        "timely",
        "deadline",
    )
    assert not set(STOCK) & set(EXPERIMENT.options(engine="transformers").policies)
    assert EXPERIMENT.options(engine="vllm", policies=("timely",)).policies == ("timely",)


@pytest.mark.parametrize(
    ("engine", "policies", "complaint"),
    [
        ("transformers", STOCK, "unknown policy 'vllm-fcfs'"),
        ("vllm", ("vllm-fcfs", "vllm-fcfs"), "named twice"),
        ("vllm", (), "no policy is named"),
    ],
)
def test_what_is_not_there_is_refused(
    engine: str, policies: tuple[str, ...], complaint: str
) -> None:
    options = EXPERIMENT.options(engine=engine, policies=policies)
    with pytest.raises(ExperimentError, match=complaint):
        run(EXPERIMENT, options, ("wid1",), lambda done, total: None)


def test_all_generations_are_planned_and_the_scheduler_gets_their_priorities() -> None:
    engine: Any = SimpleNamespace(priorities={})
    generations = [
        generation("late", 2.0, utility=NORMAL),
        generation("urgent", 1.0, utility=URGENT),
        stream("talk", 0.0),
    ]
    made = StockPolicy(engine).plan(3.0, generations, StepTime(), Capacity(0, 1, 1))
    assert [key for key, _ in made.entries] == ["talk", "urgent", "late"]
    assert all(tokens >= 1 for _, tokens in made.entries)
    assert engine.priorities == {"talk": 1, "urgent": 0, "late": 1}
