"""The benchmark of stages measures what they do; how long, no test may ask."""

from __future__ import annotations

import pytest

from timely_llm.benchmarks.stages import STOCK, AlikeRequests, rows, stock_rows
from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Engine
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile, StageLink
from timely_llm.engines.simulated import Profile, ScriptTokenizer, SimulatedEngine
from timely_llm.policies.micro_batches.policy import Mode

STAGE = Profile("stage", "made up", 0.001, 0.0001, 0.0001)


def two_stages() -> Engine:
    profile = PipelineProfile("two", "made up", (STAGE, STAGE), (StageLink(0.0, 0.0001),))
    return PipelinedEngine(profile, lambda key, prompt: "a", VirtualClock(), micro_batches=4)


def test_a_row_for_each_rule_and_run() -> None:
    found = rows(two_stages(), 100, [Mode.OFF, Mode.CYCLE], AlikeRequests(6, 8, 4), repetitions=2)
    assert [(row["micro_batching"], row["seed"]) for row in found] == [
        ("off", 1), ("cycle", 1), ("off", 2), ("cycle", 2),
    ]  # fmt: skip
    for row in found:
        assert row["steps"] >= 4
        assert row["compute_ms"] > 1.0
        assert row["link_ms"] > 0.0
        assert 0.0 < row["idle_1"] < 1.0
        assert 0.0 < row["idle_2"] < 1.0
    for first, other in zip(found[::2], found[1::2], strict=True):
        assert (first["seconds_ratio"], first["idle_more"]) == (1.0, 0.0)
        assert other["seconds_ratio"] == other["seconds"] / first["seconds"]
        more = sum(other[name] - first[name] for name in ("idle_1", "idle_2")) / 2
        assert other["idle_more"] == pytest.approx(more)


def test_no_prompt_is_found_in_another_one() -> None:
    tokenizer = ScriptTokenizer()
    prompts = [
        tokenizer.encode(request.messages[0].content) for request in AlikeRequests(512, 8, 4).made()
    ]
    assert {len(prompt) for prompt in prompts} == {8}
    assert len({prompt[0] for prompt in prompts}) == 512


def test_stock_steps_have_rows_of_the_same_columns() -> None:
    asked = AlikeRequests(6, 8, 4)
    (of_rule,) = rows(two_stages(), 100, [Mode.OFF], asked, repetitions=1)
    emptied: list[bool] = []
    found = stock_rows(two_stages(), 100, asked, repetitions=2, forget=lambda: emptied.append(True))
    assert len(emptied) == 3, "no run finds the prompts of the run before it"
    assert [(row["micro_batching"], row["seed"]) for row in found] == [(STOCK, 1), (STOCK, 2)]
    assert all(row.keys() == of_rule.keys() for row in found)


def test_one_stage_is_refused() -> None:
    engine = SimulatedEngine(STAGE, lambda key, prompt: "a", VirtualClock())
    with pytest.raises(EngineError, match="the engine has one stage"):
        rows(engine, 100, [Mode.OFF], AlikeRequests(2, 8, 4))
