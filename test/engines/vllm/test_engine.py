"""vLLM's own scheduler and blocks under the engine, with a model and without one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from timely_llm.conformance.engines.driver import InFlightDriver
from timely_llm.core.errors import EngineError, EngineLost, ModelError
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import Decoding
from timely_llm.engines.registry import make_engine
from timely_llm.engines.sequences import EngineLimits

if TYPE_CHECKING:
    from timely_llm.conformance.engines.driver import Driver

pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")

from test.engines.vllm_runner import (
    LIGHT,
    ON_CPU,
    ONE_GPU,
    NoModel,
    asynchronous,
    need_runner,
)
from timely_llm.engines.vllm.engine import BLOCK_TOKENS, VllmEngine

PROMPT = list(range(5, 105))  # three blocks and four tokens


class Inside(VllmEngine):
    """The engine without a model, and a view of what vLLM does inside."""

    def __init__(
        self,
        model: Path,
        guesses: int = 0,
        kv_transfer_config: Any = None,
        engine_args: Any = None,
        **limits: int,
    ) -> None:
        args: dict[str, Any] = {"distributed_executor_backend": NoModel, **(engine_args or {})}
        if kv_transfer_config is not None:
            args["kv_transfer_config"] = kv_transfer_config
        if guesses:
            args["speculative_config"] = {"method": "ngram", "num_speculative_tokens": guesses}
        super().__init__(model, limits=EngineLimits(**limits), engine_args=args)
        self.runner: NoModel = self._core._core.model_executor

    @property
    def free_blocks(self) -> int:
        """Blocks that vLLM could give to any request."""
        return int(self._core._scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    @property
    def steps(self) -> list[dict[str, int]]:
        """What vLLM's steps were, key -> tokens."""
        return [
            {request_id.partition("-")[2]: tokens for request_id, tokens in step.items()}
            for step in self.runner.scheduled
        ]

    def blocks(self, key: str) -> list[int]:
        """The blocks of a sequence."""
        return list(self.runner.blocks[self._core._ids[key]])


@pytest.fixture(scope="module")
def shared_inside(llama: Path) -> Iterator[Inside]:
    engine = Inside(llama, max_rows=4)
    yield engine
    engine.close()


@pytest.fixture
def inside(shared_inside: Inside) -> Iterator[Inside]:
    before = shared_inside.free_blocks
    yield shared_inside
    for key in list(shared_inside._sequences.by_key):
        shared_inside.remove(key)
    assert shared_inside.free_blocks == before
    assert not shared_inside._core._scheduler.requests


def test_a_step_is_the_plan_and_nothing_else(inside: Inside, drive: type[Driver]) -> None:
    driver = drive(inside)
    for key in "abcdef":
        driver.add_ids(key, PROMPT)
    first = len(inside.steps)
    plans = (
        {"c": 7, "a": 100},
        {"b": 33, "c": 1},
        {"a": 1},
        {"c": 92, "b": 67, "a": 1, "e": 40},
        {"a": 1, "c": 1, "b": 1},
        {"b": 1, "a": 1, "c": 1},
    )
    for plan in plans:
        driver.step(plan)
    for plan, step in zip(plans, inside.steps[first:], strict=True):
        assert step == plan
    # In the plan's order, once no sequence is new in it.
    assert [list(step) for step in inside.steps[-2:]] == [list(plan) for plan in plans[-2:]]


def test_a_step_is_the_plan_if_vllm_also_says_how_much_may_be_found(
    inside: Inside, drive: type[Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 0.33 on, `get_computed_blocks` is called with a second argument."""
    manager = inside._core._scheduler.kv_cache_manager
    hook, told = manager.get_computed_blocks, []

    def newer(request: Any) -> Any:
        told.append(request.request_id)
        assert hook(request, max_cache_hit_length=None)[1:] == (0, 0)
        return hook(request, None)

    monkeypatch.setattr(manager, "get_computed_blocks", newer)
    driver = drive(inside)
    for key in "ab":
        driver.add_ids(key, PROMPT)
    first = len(inside.steps)
    plans = ({"a": 50}, {"a": 50, "b": 100}, {"a": 1, "b": 1})
    for plan in plans:
        driver.step(plan)
    assert inside.steps[first:] == list(plans)
    assert len(told) == 2


def test_a_suspended_sequence_keeps_its_blocks(inside: Inside, drive: type[Driver]) -> None:
    driver = drive(inside)
    driver.add_ids("a", PROMPT)
    driver.answer("a", 4)
    blocks, free = inside.blocks("a"), inside.free_blocks
    for turn in range(20):
        driver.add_ids(f"other {turn}", PROMPT)
        driver.answer(f"other {turn}", 40)
        inside.remove(f"other {turn}")
        assert inside.free_blocks == free
    assert inside.blocks("a") == blocks
    driver.answer("a", 60)
    assert driver.computed["a"] == len(PROMPT) + 59
    assert not driver.recomputed


def test_more_suspended_than_rows(inside: Inside, drive: type[Driver]) -> None:
    driver = drive(inside)
    keys = [f"s{number}" for number in range(20)]  # four rows
    for key in keys:
        driver.add_ids(key, [*PROMPT, 5 + int(key[1:])])
        driver.answer(key, 2)
    for key in reversed(keys):
        driver.answer(key, 5)
    assert not driver.recomputed


def test_an_eviction_frees_blocks_and_is_counted(llama: Path, drive: type[Driver]) -> None:
    engine = Inside(llama, kv_tokens=256, max_rows=2)
    driver, free = drive(engine), engine.free_blocks
    for key in ("a", "b"):
        driver.add_ids(key, PROMPT)
        driver.answer(key, 2)
    assert engine.free_blocks == free - 8
    driver.add_ids("c", PROMPT)
    result = driver.step({"c": 100}, evictable=["b", "a"])
    assert result.evicted == ("b",)
    assert engine.free_blocks == free - 8
    engine.remove("c")
    driver.answer("b", 9)
    assert driver.recomputed == {"b": 101}
    driver.remove_all()
    assert engine.free_blocks == free
    engine.close()


def test_a_prefix_is_shared_by_whole_blocks(inside: Inside, drive: type[Driver]) -> None:
    driver, free = drive(inside), inside.free_blocks
    first = len(inside.steps)
    prefix = inside.pin_prefix(PROMPT)
    assert free - inside.free_blocks == 3
    assert sum(tokens for step in inside.steps[first:] for tokens in step.values()) == 96
    for key in "ab":
        assert driver.add_ids(key, [*PROMPT, 200, 201], prefix) == 6
        driver.answer(key, 2)
    assert inside.blocks("a")[:3] == inside.blocks("b")[:3]
    assert free - inside.free_blocks == 5
    assert driver.recomputed == {"a": 4, "b": 4}
    driver.remove_all()
    inside.unpin_prefix(PROMPT)
    assert inside.free_blocks == free


@pytest.mark.parametrize("said", [1, 2, 27, 28, 29, 30, 60])
def test_tool_output_costs_the_last_block(inside: Inside, drive: type[Driver], said: int) -> None:
    driver = drive(inside)
    driver.add_ids("a", PROMPT)
    driver.answer("a", said)
    blocks, computed = inside.blocks("a"), len(PROMPT) + said - 1
    again = computed % BLOCK_TOKENS
    assert inside.append("a", [200, 201, 202]).to_compute == again + 4
    driver.left["a"], driver.kept["a"] = again + 4, computed - again
    driver.answer("a", said + 3, chunk=2)
    assert driver.recomputed == ({"a": again} if again else {})
    whole = computed // BLOCK_TOKENS
    assert inside.blocks("a")[:whole] == blocks[:whole]


def test_kept_blocks_are_freed_with_their_sequence(inside: Inside, drive: type[Driver]) -> None:
    driver, free = drive(inside), inside.free_blocks
    for key in "ab":
        driver.add_ids(key, PROMPT)
        driver.answer(key, 2)
    inside.append("a", [200])
    inside.resume("b", "c", [200])
    assert free - inside.free_blocks == 6  # the whole ones
    inside.remove("a")
    inside.remove("c")
    assert inside.free_blocks == free


def test_kept_blocks_are_given_to_no_request(llama: Path, drive: type[Driver]) -> None:
    engine = Inside(llama, kv_tokens=512, max_rows=2)
    driver = drive(engine)
    prefix = engine.pin_prefix(PROMPT[:64])
    driver.add_ids("a", PROMPT)
    said = driver.answer("a", 2)
    driver.append("a", "find the apple")
    for turn in range(9):  # through all other blocks, more than once
        driver.add_ids("other", [*range(10 + turn, 260 + turn)])
        driver.answer("other", 30)
        engine.remove("other")
    words = engine.tokenizer.encode("find the apple")
    driver.add_ids("b", [*PROMPT, *said, *words], prefix)
    assert driver.answer("a", 9)[2:] == driver.answer("b", 7)
    assert driver.computed["b"] == len(PROMPT) + 2 + len(words) + 6 - 64
    engine.close()


def test_no_plan_no_step(inside: Inside, drive: type[Driver]) -> None:
    driver = drive(inside)
    driver.add_ids("a", PROMPT)
    driver.answer("a", 2)
    before = len(inside.steps)
    with pytest.raises(EngineError, match="empty"):
        inside.submit(StepPlan(()))
    assert len(inside.steps) == before


def test_a_step_that_breaks_down(
    inside: Inside, drive: type[Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, free = drive(inside), inside.free_blocks
    driver.add_ids("a", PROMPT)
    driver.add_ids("b", PROMPT)
    driver.answer("b", 2)
    answer = driver.answer("a", 2)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(inside.runner, "execute_model", fail)
        with pytest.raises(RuntimeError, match="gone"):
            inside.submit(StepPlan((("a", 1),)))
    assert free - inside.free_blocks == 4  # b has its own still
    driver.left["a"] += driver.kept.pop("a")
    inside.submit(StepPlan((("a", 200), ("b", 1))))
    result = inside.collect()
    assert result.evicted == ("a",)
    assert result.recomputed == {"a": 101}
    assert answer == driver.said["b"][:2]


def test_a_prefix_that_breaks_down(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the device is gone")

    free = inside.capacity
    with monkeypatch.context() as patch:
        patch.setattr(inside.runner, "execute_model", fail)
        with pytest.raises(RuntimeError, match="gone"):
            inside.pin_prefix(PROMPT[10:])
    assert inside.capacity == free
    inside.add("a", PROMPT)  # and goes on
    inside.submit(StepPlan((("a", 100),)))
    assert inside.collect().computed == {"a": 100}


def test_what_cannot_be_used(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        VllmEngine(tmp_path)
    for name in ("scheduler_cls", "logits_processors", "spec_model"):
        with pytest.raises(EngineError, match=f"engine_args cannot set '{name}'"):
            VllmEngine(llama, engine_args={name: 1})
    with pytest.raises(EngineError, match=r"vLLM does not start: .*no_such_option"):
        VllmEngine(llama, engine_args={"no_such_option": 1})
    with pytest.raises(EngineError, match="vLLM does not start"):
        VllmEngine(llama, dtype="float3")
    with pytest.raises(EngineError, match=r"parallel size \(3\)$|World size \(3\) is larger"):
        VllmEngine(llama, engine_args={"tensor_parallel_size": 3})


def test_a_model_with_a_state(make_model: Callable[..., Path]) -> None:
    model = make_model("Mamba2", num_heads=4, head_dim=32, n_groups=1, state_size=16)
    with pytest.raises(EngineError, match="cannot be suspended"):
        VllmEngine(model, limits=EngineLimits(max_model_len=128))


@pytest.fixture(scope="module")
def guessing(llama: Path) -> Iterator[Inside]:
    if find_spec("numba") is None:
        pytest.skip("vLLM guesses tokens with the package numba")
    engine = Inside(llama, guesses=5, max_rows=4, max_step_tokens=120)
    yield engine
    engine.close()


def test_guesses_are_what_a_plan_leaves_room_for(guessing: Inside, drive: type[Driver]) -> None:
    driver, free = drive(guessing), guessing.free_blocks
    assert guessing.capacity.speculative_tokens == 5
    for key in "ab":
        driver.add_ids(key, PROMPT)
        driver.answer(key, 1)
    driver.add_ids("long", PROMPT)
    offered = guessing._core.drafted("ab")
    assert offered == {"a": 5, "b": 5}
    result = driver.step({"a": 4, "b": 1, "long": 98})  # of 120
    assert result.speculative == {"a": 3}
    assert guessing.steps[-1] == {"a": 4, "b": 1, "long": 98}
    result = driver.step({"a": 6, "b": 6, "long": 2})
    assert set(result.speculative.values()) == {5}
    driver.add_ids("longer", [*PROMPT, *PROMPT])
    result = driver.step({"b": 6, "longer": 117})
    assert result.speculative == {"b": 2}
    driver.step({"longer": 83})
    for _ in range(20):
        result = driver.step(dict.fromkeys("ab", 6))
        # What was guessed wrong holds no block of its own.
        assert free - guessing.free_blocks == driver.stored("a", "b", "long", "longer") // 32
    assert guessing.capacity.free_tokens == guessing.capacity.free_tokens // 32 * 32
    driver.remove_all()
    assert guessing.free_blocks == free


def test_nothing_is_guessed_where_tokens_are_drawn(guessing: Inside, drive: type[Driver]) -> None:
    driver = drive(guessing)
    decodings = {
        "greedy": Decoding(),
        "drawn": Decoding(0.8, seed=3),
        "grammar": Decoding(grammar="start: /[a-z ]+/"),
    }
    for key, decoding in decodings.items():
        driver.add_ids(key, PROMPT, decoding=decoding)
        driver.answer(key, 2)
    result = driver.step(dict.fromkeys(decodings, 6))
    assert set(result.speculative) == {"greedy"}
    assert {key: len(said) for key, said in result.tokens.items() if key != "greedy"} == {
        "drawn": 1, "grammar": 1,
    }  # fmt: skip
    driver.remove_all()


def test_guesses_end_with_the_longest_sequence(llama: Path, drive: type[Driver]) -> None:
    if find_spec("numba") is None:
        pytest.skip("vLLM guesses tokens with the package numba")
    engine = Inside(llama, guesses=7, max_model_len=140)
    driver, free = drive(engine), engine.free_blocks
    driver.add_ids("a", PROMPT)
    while len(driver.said["a"]) < 40:
        driver.step({"a": 100})
    assert len(driver.said["a"]) == 40
    assert list(driver.step({"a": 8}).failures) == ["a"]
    driver.remove_all()
    assert engine.free_blocks == free
    engine.close()


def test_an_engine_that_is_made_after_guesses_says_the_same(
    llama: Path, drive: type[Driver]
) -> None:
    if find_spec("numba") is None:
        pytest.skip("vLLM guesses tokens with the package numba")
    said = []
    guessing = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}
    for args in ({}, guessing, {}):
        engine = VllmEngine(llama, limits=EngineLimits(max_model_len=128), engine_args=args)
        driver = drive(engine)
        driver.add_task("a")
        said.append(driver.answer("a"))
        engine.close()
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize(
    "given",
    [
        3,
        {"method": "ngram"},
        {"method": "ngram", "num_speculative_tokens": 0},
        {"method": "ngram", "num_speculative_tokens": True},
        {"method": "eagle", "model": "some/model", "num_speculative_tokens": 2},
    ],
)
def test_other_ways_to_guess_are_refused(llama: Path, given: Any) -> None:
    with pytest.raises(EngineError, match="speculative_config must be as"):
        VllmEngine(llama, engine_args={"speculative_config": given})


two_devices = pytest.mark.skipif(ONE_GPU, reason="there is one GPU")


@two_devices
def test_two_workers_answer_alike_and_an_end_is_reported(llama: Path, drive: type[Driver]) -> None:
    limits = EngineLimits(max_model_len=256, kv_tokens=512)
    said = []
    for workers in (1, 2):
        args = {"tensor_parallel_size": workers} if workers > 1 else {}
        engine = VllmEngine(llama, limits=limits, engine_args=args)
        driver = drive(engine)
        driver.add_ids("greedy", PROMPT)
        driver.add_ids("drawn", PROMPT, decoding=Decoding(1.0, seed=4))
        said.append([driver.answer(key, 12, chunk=40) for key in ("greedy", "drawn")])
        if workers == 1:
            engine.close()
    assert said[0] == said[1]
    processes = [worker.proc for worker in engine._core._core.model_executor.workers]
    processes[1].kill()
    with pytest.raises(EngineLost, match="a worker process of vLLM has ended"):
        for _ in range(1000):  # until vLLM sees it
            assert engine.capacity.max_rows
            time.sleep(0.02)
    with pytest.raises(EngineLost, match="a worker process of vLLM has ended"):
        engine.submit(StepPlan((("greedy", 1),)))
    engine.remove("greedy")
    engine.close()
    for process in processes:
        process.join(20)
        assert not process.is_alive()


@two_devices
@pytest.mark.parametrize("ahead", [False, True])
def test_two_stages_say_the_same(llama: Path, drive: type[Driver], ahead: bool) -> None:
    said = []
    for stages in (1, 2):
        args: dict[str, Any] = {"pipeline_parallel_size": stages, "async_scheduling": ahead}
        if ahead:
            args["model_runner"] = need_runner("v2")
        with asynchronous():
            engine = VllmEngine(llama, limits=EngineLimits(max_model_len=256), engine_args=args)
        assert engine.in_flight == stages + ahead
        in_flight = InFlightDriver(drive(engine))
        said += [in_turns(in_flight), {} if ahead else step_by_step(in_flight.driver, stages > 1)]
        engine.close()
    assert said[:2] == said[2:]


def in_turns(in_flight: InFlightDriver) -> dict[str, list[int]]:
    """Serve two halves of the sequences in turns; return the token ids of each."""
    for key in "abcd":
        in_flight.add(key)
    while any(len(words) < 8 for words in in_flight.driver.said.values()):
        for keys in ("ab", "cd"):
            in_flight.step(dict.fromkeys(keys, 40))
    in_flight.collect_all()
    said = {key: words[:8] for key, words in in_flight.driver.said.items()}
    in_flight.driver.remove_all()
    return said


def step_by_step(driver: Driver, timed: bool) -> dict[str, list[int]]:
    """Serve sequences that pause; a stage has their tokens in the next step all the same."""
    for key in "xyz":
        driver.add_ids(key, [*PROMPT, 5 + ord(key)])
    for plan in ("x", "x", "xy", "x", "y", "xyz", "z", "z", "xy", "zx", "y", "y"):
        result = driver.step(dict.fromkeys(plan, 110))
        if timed and ON_CPU:
            assert result.stages is not None
            assert result.stages.fit
            assert all(result.stages.stage_s)
    return {key: driver.said[key] for key in "xyz"}


@pytest.mark.skipif(not ON_CPU, reason="vLLM runs on a GPU")
def test_no_asynchronous_scheduling_on_a_cpu(llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    args = {"async_scheduling": True, "distributed_executor_backend": NoModel}
    engine = VllmEngine(llama, limits=EngineLimits(max_model_len=256), engine_args=args)
    assert (engine.in_flight, engine.async_scheduling) == (1, False)
    assert "no asynchronous scheduling on this platform: it is off" in caplog.text
    engine.close()


def test_in_a_process_of_its_own(llama: Path, drive: type[Driver]) -> None:
    said = []
    for process in (False, True):
        engine = make_engine("vllm", model=llama, kv_tokens=512, process=process, engine_args=LIGHT)
        driver = drive(engine)
        assert driver.block_tokens == BLOCK_TOKENS
        driver.add_ids("a", PROMPT)
        driver.answer("a", 5)
        driver.append("a", "and on")
        said.append(driver.answer("a", 12))
        engine.close()
    assert said[0] == said[1]


@two_devices
def test_stages_in_a_process_of_its_own(llama: Path, drive: type[Driver]) -> None:
    said = []
    for process in (False, True):
        engine = make_engine(
            "vllm", model=llama, max_model_len=256, process=process,
            engine_args={"pipeline_parallel_size": 2},
        )  # fmt: skip
        assert (engine.in_flight, engine.capacity.stages) == (2, 2)
        said.append(in_turns(InFlightDriver(drive(engine))))
        engine.close()
    assert said[0] == said[1]
