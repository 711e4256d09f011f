"""Stock vLLM as a baseline: with its own scheduler, and what our engine would say."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from timely_llm.core.errors import EngineError
from timely_llm.core.step import StepPlan, StepResult
from timely_llm.engines.contract import Decoding
from timely_llm.engines.sequences import EngineLimits

pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")

from vllm.v1.core.sched.scheduler import Scheduler

from test.engines.conftest import INTERPRETED
from test.engines.vllm_runner import ON_CPU, ONE_GPU, NoModel
from timely_llm.engines.vllm.engine import BLOCK_TOKENS, VllmEngine
from timely_llm.engines.vllm.stock import StockEngine, StockVllm

PROMPTS = {"a": list(range(5, 75)), "b": list(range(90, 20, -1)), "c": [7, 8, 9] * 30}
TOKENS = 6


@pytest.fixture(scope="module")
def answers(llama: Path) -> dict[str, list[int]]:
    """What our engine says."""
    engine = VllmEngine(llama, limits=EngineLimits(max_rows=4))
    said: dict[str, list[int]] = {key: [] for key in PROMPTS}
    for key, prompt in PROMPTS.items():
        engine.add(key, prompt)
        for _ in range(TOKENS):
            engine.submit(StepPlan(((key, len(prompt)),)))
            said[key] += engine.collect().tokens[key]
    engine.close()
    return said


@pytest.fixture
def make(llama: Path) -> Iterator[Callable[..., StockEngine]]:
    made: list[StockEngine] = []

    def start(scheduling: str = "fcfs", **limits: int) -> StockEngine:
        made.append(StockEngine(llama, "float32", EngineLimits(**limits), scheduling))
        return made[-1]

    yield start
    for engine in made:
        engine.close()


def everyone(engine: StockEngine, tokens: int) -> dict[str, list[int]]:
    """Let vLLM serve until each request has its tokens; return keys by their first tokens."""
    said: dict[str, list[int]] = {}
    left = set(PROMPTS)
    while left:
        engine.submit(StepPlan(tuple((key, 1) for key in sorted(left))))
        for key, made in engine.collect().tokens.items():
            said.setdefault(key, []).extend(made)
            if len(said[key]) >= tokens:
                engine.remove(key)
                left.discard(key)
    return said


def test_its_own_scheduler_says_what_our_engine_says(
    make: Callable[..., StockEngine], answers: dict[str, list[int]]
) -> None:
    engine = make(max_rows=4)
    assert type(engine._core.scheduler) is Scheduler
    free = engine.capacity.free_tokens
    for key, prompt in PROMPTS.items():
        assert engine.add(key, prompt).to_compute == len(prompt)
    assert everyone(engine, TOKENS) == answers
    assert engine.capacity.free_tokens == free
    assert not engine._core.scheduler.requests


def test_its_scheduler_goes_by_priority_where_rows_are_few(
    make: Callable[..., StockEngine],
) -> None:
    first = {}
    for scheduling in ("fcfs", "priority"):
        engine = make(scheduling, max_rows=1)
        engine.priorities.update({"a": 1, "b": 1, "c": 0})
        for key, prompt in PROMPTS.items():
            engine.add(key, prompt)
        first[scheduling] = list(everyone(engine, 2))
        assert engine.priorities == {}
    assert first == {"fcfs": ["a", "b", "c"], "priority": ["c", "a", "b"]}


def test_a_prefix_is_found_in_its_cache(make: Callable[..., StockEngine]) -> None:
    engine = make(max_rows=4)
    prompt = PROMPTS["a"]
    prefix = engine.pin_prefix(prompt[:-3])
    whole = len(prefix.token_ids) // BLOCK_TOKENS * BLOCK_TOKENS
    assert engine.add("a", prompt, prefix).to_compute == len(prompt) - whole
    engine.submit(StepPlan((("a", len(prompt)),)))
    assert engine.collect().computed == {"a": len(prompt) - whole}
    engine.remove("a")
    engine.forget_prefixes()
    engine.add("b", prompt)
    engine.submit(StepPlan((("b", len(prompt)),)))
    assert engine.collect().computed == {"b": len(prompt)}


def test_a_grammar_holds(make: Callable[..., StockEngine]) -> None:
    engine = make(max_rows=4)
    grammar = 'start: "tc" | "mf"'
    engine.add("a", PROMPTS["a"], None, Decoding(grammar=grammar))
    said: list[int] = []
    while len(said) < 4 and not set(said) & engine.tokenizer.eos_ids:
        engine.submit(StepPlan((("a", 1),)))
        said += engine.collect().tokens.get("a", ())
    stream = engine.tokenizer.stream()
    words = "".join(stream.push(i) for i in said if i not in engine.tokenizer.eos_ids)
    assert words in ("tc", "mf")


def test_it_takes_no_tool_output(make: Callable[..., StockEngine]) -> None:
    engine = make(max_rows=4)
    engine.add("a", PROMPTS["a"])
    with pytest.raises(EngineError, match="takes no tool output"):
        engine.append("a", [5])
    with pytest.raises(EngineError, match="takes no further turn"):
        engine.resume("a", "b", [5])
    with pytest.raises(EngineError, match="no step to collect"):
        engine.collect()


def test_llm_engine_and_its_core_say_the_same(llama: Path, answers: dict[str, list[int]]) -> None:
    stock = StockVllm(llama, "float32", EngineLimits(max_rows=4), {})
    for step in (stock.step, stock.core_step):
        said: list[int] = []
        request_id = stock.ask(PROMPTS["a"], TOKENS)
        while len(said) < TOKENS:
            said += step()
        stock.stop(request_id)
        assert said == answers["a"]
    whole = [*PROMPTS["a"], *answers["a"]]
    stock.ask(whole, 1)
    assert len(stock.step()) == 1
    assert stock.cached == (len(whole) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    stock.close()
    stock.close()


def served(engine: StockEngine) -> tuple[dict[str, list[int]], list[StepResult], int]:
    """Serve all prompts; return their tokens, the steps, and the most steps left in flight."""
    for key, prompt in PROMPTS.items():
        engine.add(key, prompt)
    said: dict[str, list[int]] = {key: [] for key in PROMPTS}
    left, steps, most = set(PROMPTS), [], 0
    while left:
        engine.submit(StepPlan(tuple((key, 1) for key in sorted(left))))
        most = max(most, sum(step.tokens > 0 for step in engine._scheduled))
        steps.append(engine.collect())
        for key, made in steps[-1].tokens.items():
            said[key] += made
            if len(said[key]) == TOKENS:
                engine.remove(key)
                left.discard(key)
    return said, steps, most


def test_without_requests_a_step_is_empty(make: Callable[..., StockEngine]) -> None:
    engine = make(max_rows=4)
    for _ in range(2):
        engine.submit(StepPlan((("a", 1),)))
        assert not engine.collect().computed


@pytest.mark.skipif(INTERPRETED, reason="Model Runner V1 takes no interpreted Triton")
def test_in_stages_it_begins_the_next_step_while_one_is_in_flight(llama: Path) -> None:
    """Prompts are too long for one step, so that the next one begins with what is left."""
    found = {}
    for stages in (1, 2):
        args = {
            "pipeline_parallel_size": stages,
            "distributed_executor_backend": NoModel,
            "model_runner": "v1",  # V2 has no empty steps, which the stand-in for workers needs
        }
        engine = StockEngine(llama, "float32", EngineLimits(max_step_tokens=80), "fcfs", args)
        free = engine.capacity.free_tokens
        said, steps, most = served(engine)
        assert all(step.computed for step in steps)
        assert most == stages - 1
        assert engine.capacity.free_tokens == free
        found[stages] = said
        engine.close()
    assert found[1] == found[2]


@pytest.mark.skipif(INTERPRETED, reason="Model Runner V1 takes no interpreted Triton")
@pytest.mark.skipif(ONE_GPU, reason="there is one GPU")
def test_its_stages_in_two_processes_say_the_same(
    llama: Path, answers: dict[str, list[int]]
) -> None:
    args = {"pipeline_parallel_size": 2, "model_runner": "v1"}
    engine = StockEngine(llama, "float32", EngineLimits(max_step_tokens=80), "fcfs", args)
    said, steps, _ = served(engine)
    assert said == answers
    times = [step.stages for step in steps if step.stages is not None]
    assert bool(times) is ON_CPU
    assert all(one.fit and min(one.stage_s) > 0 for one in times)
    workers = multiprocessing.active_children()
    engine.close()
    for worker in workers:
        worker.join(20)
    assert not multiprocessing.active_children()
