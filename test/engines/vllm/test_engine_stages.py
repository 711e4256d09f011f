"""Two real stages of the engine vllm, each in a process: their tokens, their times, their end."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from timely_llm.core.clock import WallClock
from timely_llm.core.errors import EngineError, EngineLost
from timely_llm.core.events.schema import StepEvent
from timely_llm.core.request import ChatMessage, StreamRequest
from timely_llm.core.step import StepResult
from timely_llm.engines.sequences import EngineLimits
from timely_llm.policies.micro_batches.policy import Mode, in_micro_batches
from timely_llm.policies.registry import make_policy
from timely_llm.serving.loop import Loop

pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")

from test.engines.conftest import INTERPRETED
from test.engines.vllm_runner import ON_CPU, NoModel, need_runner
from timely_llm.engines.vllm.engine import VllmEngine

LIMITS = EngineLimits(max_model_len=256)
TWO = {"pipeline_parallel_size": 2}
WITHOUT_MODEL = {**TWO, "distributed_executor_backend": NoModel}
SLOW = 1_000_000
"""Bytes a second of the link: a token of the tests' model takes a fraction of a millisecond."""

on_cpu = pytest.mark.skipif(not ON_CPU, reason="times of stages are measured on a CPU")
compiled = pytest.mark.skipif(INTERPRETED, reason="Model Runner V1 takes no interpreted Triton")


def serve(
    engine: VllmEngine, mode: Mode, policy: str = "fcfs"
) -> tuple[dict[str, list[int]], list[StepResult]]:
    """Serve six requests; return the tokens of each, and the steps."""
    loop = Loop(engine, in_micro_batches(make_policy(policy), mode), WallClock())
    made: dict[str, list[int]] = {}
    steps: list[StepResult] = []
    for number in range(6):
        words = "Turn left. " * (1 + 3 * number)
        messages = (ChatMessage("user", words),)
        loop.admit(StreamRequest(f"{number}", "person", messages, max_tokens=12))
    while loop.generations:
        for event in loop.turn().events:
            if isinstance(event, StepEvent):
                assert event.result is not None
                steps.append(event.result)
                for key, tokens in event.result.tokens.items():
                    made.setdefault(key, []).extend(tokens)
    loop.turn()
    return made, steps


@compiled
@on_cpu
def test_each_rule_gives_the_same_tokens_and_a_dead_stage_ends_the_engine(llama: Path) -> None:
    args: dict[str, Any] = {**TWO, "model_runner": "v1", "slow_link_for_tests": SLOW}
    engine = VllmEngine(llama, limits=LIMITS, engine_args=args, micro_batches=4)
    capacity = engine.capacity
    assert (capacity.stages, capacity.micro_batches, engine.in_flight) == (2, 4, 4)

    said = {}
    for mode in (Mode.OFF, Mode.PAPER, Mode.CYCLE):
        said[mode], steps = serve(engine, mode)
        measured = [step.stages for step in steps if step.stages is not None]
        assert measured
        for one in measured:
            assert one.fit
            assert len(one.begins_s) == 2
            assert all(seconds > 0 for seconds in (*one.stage_s, *one.link_s))
            assert one.blocked_s[0] > 0, "a slowed send keeps its stage"
        assert steps[0].overhead_s > 0, "the first stage was free"
        assert all(0.0 <= step.overhead_s < step.duration_s for step in steps)
    assert len(said[Mode.OFF]) == 6
    assert said[Mode.OFF] == said[Mode.PAPER] == said[Mode.CYCLE]
    for mode in said:
        assert serve(engine, mode, "deadline")[0] == said[mode]

    processes = [worker.proc for worker in engine._core._core.model_executor.workers]
    processes[1].kill()
    with pytest.raises(EngineLost, match="a worker process of vLLM has ended, and vLLM ends"):
        for _ in range(1000):
            serve(engine, Mode.CYCLE)
    engine.close()
    for process in processes:
        process.join(20)
        assert not process.is_alive()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("micro_batches", "runner", "message"),
    [
        (1, "v1", "micro_batches must be 0 or at least 2, not 1"),
        (6, "v1", "vLLM's queue to its workers holds 5 steps, so at most 5 are allowed"),
        (3, "v2", "Model Runner V2 has buffers for 2 steps in flight, so only 0 and 2 are allowed"),
    ],
)
def test_steps_in_flight_that_vllm_has_no_room_for_are_refused(
    llama: Path, micro_batches: int, runner: str, message: str
) -> None:
    if runner == "v1" and not ON_CPU:
        message = "Model Runner V1 on a GPU" if micro_batches > 2 else message
    args = {**WITHOUT_MODEL, "model_runner": runner}
    need_runner(runner)
    with pytest.raises(EngineError, match=message):
        VllmEngine(llama, limits=LIMITS, engine_args=args, micro_batches=micro_batches)


def test_one_stage_takes_no_number_of_micro_batches(llama: Path) -> None:
    args = {"distributed_executor_backend": NoModel}
    with pytest.raises(EngineError, match="the engine vllm has one stage, so only 0 is allowed"):
        VllmEngine(llama, limits=LIMITS, engine_args=args, micro_batches=2)


@pytest.mark.parametrize("rate", [-1, True, "fast", float("inf")])
def test_the_rate_of_a_slow_link_is_bytes_a_second(llama: Path, rate: Any) -> None:
    args = {**WITHOUT_MODEL, "slow_link_for_tests": rate}
    with pytest.raises(EngineError, match="slow_link_for_tests must be bytes a second, 0 or more"):
        VllmEngine(llama, limits=LIMITS, engine_args=args)


def test_one_stage_has_no_link_to_slow(llama: Path) -> None:
    args = {"distributed_executor_backend": NoModel, "slow_link_for_tests": 1}
    with pytest.raises(EngineError, match="slow_link_for_tests is for pipeline stages on a CPU"):
        VllmEngine(llama, limits=LIMITS, engine_args=args)


def test_steps_without_times_of_a_worker_have_none(llama: Path) -> None:
    engine = VllmEngine(llama, limits=LIMITS, engine_args=WITHOUT_MODEL)
    _, steps = serve(engine, Mode.OFF)
    assert steps
    assert {(step.stages, step.overhead_s) for step in steps} == {(None, 0.0)}
    engine.close()
