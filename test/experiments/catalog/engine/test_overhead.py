"""Our serving loop beside an engine's bare steps, on an engine that is always there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from timely_llm.core.errors import EngineError
from timely_llm.engines.vllm.version import installed_version
from timely_llm.experiments.catalog.engine.overhead import (
    EXPERIMENT,
    OUR_STEPS,
    OURS,
    EngineOverheadOptions,
    compare,
    prompts,
)
from timely_llm.experiments.contract import ExperimentError


def test_loop_and_steps_are_measured_with_every_number_of_requests() -> None:
    told: list[tuple[int, int]] = []
    options = EXPERIMENT.options(engine="transformers", requests=(3, 1), tokens=4, repeats=2)
    run = EXPERIMENT.run(options, lambda done, total: told.append((done, total)))
    assert [(row["requests"], row["arm"]) for row in run.rows] == [
        (requests, arm) for requests in (1, 3) for _ in range(2) for arm in (OURS, OUR_STEPS)
    ]
    assert {row["seed"] for row in run.rows} == {0, 1}
    for row in run.rows:
        assert float(row["tokens_per_second"] or 0) > 0
        assert float(row["step_ms"] or 0) > 0
        assert row["share_of_stock"] is row["over_stock_us"] is None, "it is not vLLM"
    assert set(run.measures) <= run.rows[0].keys() >= set(run.keys)
    assert run.definitions.keys() >= set(run.measures)
    assert told[0] == (0, 6)
    assert told[-1] == (1, 1)


def test_a_simulated_engine_takes_no_time() -> None:
    with pytest.raises(ExperimentError, match="a simulated engine takes no time"):
        EXPERIMENT.run(EngineOverheadOptions(engine="simulated"), lambda done, total: None)


@pytest.mark.skipif(installed_version() is not None, reason="vLLM is installed")
def test_vllm_is_the_default_and_is_reported_missing() -> None:
    with pytest.raises(EngineError, match="needs the package vllm, which is not installed"):
        EXPERIMENT.run(EXPERIMENT.options(), lambda done, total: None)


class Scripted:
    """An arm with a fixed number of tokens for each step."""

    def __init__(self, name: str, steps: Sequence[int], turns: list[str]) -> None:
        self._name = name
        self._steps = list(steps)
        self._turns = turns

    def ask(self, prompts: Sequence[str], tokens: int) -> None:
        self._turns.append(f"{self._name} is asked for {len(prompts)} x {tokens}")

    def step(self) -> int:
        self._turns.append(self._name)
        return self._steps.pop(0) if self._steps else 0


def test_arms_take_turns_in_alternating_order() -> None:
    turns: list[str] = []
    arms = [Scripted("a", [0, 2, 2], turns), Scripted("b", [1, 2, 1], turns)]
    spent = compare(arms, [["x", "y"], ["z", "u"]], 2)
    assert turns == ["a is asked for 2 x 2", "b is asked for 2 x 2", *"abbaab"]
    assert [one.tokens for one in spent] == [4, 4]
    assert [len(one.decode_s) for one in spent] == [2, 1], "steps in which both got a token"
    for one in spent:
        assert one.wall_s >= sum(one.decode_s) > 0
        assert len(one.decode_cpu_s) == len(one.decode_s)


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [([1, 1, 1, 2], "made 5 tokens, not 4"), ([3, 3], "made 6 tokens"), ([1], "but no tokens")],
)
def test_an_arm_that_makes_other_tokens_is_found_out(steps: list[int], complaint: str) -> None:
    arms = [Scripted("a", steps, []), Scripted("b", [1, 1, 1, 1], [])]
    with pytest.raises(EngineError, match=complaint):
        compare(arms, [["x", "y"], ["z", "u"]], 2)


def test_prompts_differ_from_the_first_word_on() -> None:
    texts = [*prompts(30, "a"), *prompts(30, "b")]
    assert len({text.split()[0] for text in texts}) == 60
    assert {len(text.split()) for text in texts} == {41}
