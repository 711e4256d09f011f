"""KV that a connector brings back, on vLLM's own scheduler without a model."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timely_llm.core.errors import EngineError
from timely_llm.core.step import StepPlan
from timely_llm.engines.registry import make_engine
from timely_llm.engines.sequences import EngineLimits

if TYPE_CHECKING:
    from timely_llm.conformance.engines.driver import Driver

pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")

from test.engines.vllm.test_engine import Inside
from test.engines.vllm_host import Host, new_host
from test.engines.vllm_runner import LIGHT, ON_CPU, NoModel
from timely_llm.engines.vllm import connectors, kv_loads
from timely_llm.engines.vllm.engine import VllmEngine

PROMPT = list(range(5, 105))  # three blocks and four tokens
LONG = [*PROMPT, *PROMPT]
Make = Callable[..., tuple[Inside, Host]]


@pytest.fixture
def make(llama: Path) -> Any:
    """Make an engine with a host's memory beside it; all blocks must be free at its end."""
    made: list[tuple[Inside, Host, int]] = []

    def make(load_steps: int = 0, send_steps: int = 0, **limits: int) -> tuple[Inside, Host]:
        host, config = new_host(load_steps=load_steps, send_steps=send_steps)
        engine = Inside(llama, kv_transfer_config=config, **limits)
        made.append((engine, host, engine.free_blocks))
        return engine, host

    yield make
    for engine, host, free in made:
        host.load_steps = host.send_steps = 0
        for key in list(engine._sequences.by_key):
            engine.remove(key)
        for _ in range(9):
            engine._core.turn()
        assert engine.free_blocks == free
        scheduler = engine._core._scheduler
        assert not scheduler.requests
        assert scheduler.offers is not None and not scheduler.offers._taken
        engine.close()


@pytest.fixture
def pressed(make: Make, drive: type[Driver]) -> tuple[Inside, Host, dict[str, list[int]]]:
    """An engine with room for two of four sequences, and what they are answered alone."""
    engine, host = make(kv_tokens=288, max_rows=4, max_model_len=256)
    driver = drive(engine)
    for place, key in enumerate("abcd"):
        driver.add_ids(key, [200 + place, *PROMPT])
        driver.answer(key, 24)
        engine.remove(key)
    host.blocks.clear()
    return engine, host, {key: list(said) for key, said in driver.said.items()}


def evict(driver: Driver, key: str, tokens: int = 33) -> None:
    """Let a sequence give up its KV for another, which is then removed."""
    driver.add_ids("other", [300, *range(5, 4 + tokens)])
    assert driver.step({"other": tokens}, evictable=[key]).evicted == (key,)
    driver.engine.remove("other")


def wait(driver: Driver, key: str, most: int = 20) -> int:
    """Step a sequence until its KV is there; return how many steps that took."""
    for step in range(1, most):
        if driver.step({key: 1}).loaded:
            return step
    raise AssertionError("its KV did not come")


@pytest.mark.parametrize("load_steps", [0, 1, 3])
def test_what_was_evicted_is_loaded(make: Make, drive: type[Driver], load_steps: int) -> None:
    engine, host = make(load_steps, kv_tokens=160)
    driver = drive(engine)
    driver.add_ids("alone", PROMPT)
    answer = driver.answer("alone", 40)
    engine.remove("alone")
    host.blocks.clear()
    driver.add_ids("a", PROMPT)
    driver.answer("a", 30)  # 129 tokens, four blocks
    evict(driver, "a")
    first = driver.step({"a": 200})
    if load_steps:
        assert first.only_waited
        assert first.loading == (("a",) if load_steps > 1 else ())
        assert first.loaded or wait(driver, "a") == load_steps - 1
    else:
        assert first.loaded == {"a": 128}
        assert first.computed == {"a": 2}
    assert driver.answer("a", 40) == answer
    assert driver.loaded == {"a": 128}
    assert driver.recomputed - driver.loaded == {"a": 1}
    assert host.loaded == [4]


def test_two_wait_for_their_kv_while_a_third_goes_on(make: Make, drive: type[Driver]) -> None:
    engine, _ = make(4, max_rows=4)
    driver = drive(engine)
    for place, key in enumerate("abc"):
        driver.add_ids(key, [200 + place, *PROMPT])
        driver.answer(key, 2)
    answers = {key: list(said) for key, said in driver.said.items()}
    for key in "ab":
        engine.remove(key)
        driver.add_ids(key, [200 + "abc".index(key), *PROMPT])
    first = len(engine.steps)
    result = driver.step({"a": 101, "c": 1, "b": 101})
    assert result.loading == ("a", "b")
    assert result.computed == {"c": 1}
    seen = []
    for _ in range(5):
        result = driver.step({"c": 1})
        assert result.computed == {"c": 1}
        seen.append(dict(result.loaded))
    assert sorted(map(len, seen)) == [0, 0, 0, 0, 2]
    assert all(step == {"c": 1} for step in engine.steps[first:])
    driver.step({"b": 5, "c": 1, "a": 5})
    assert engine.steps[-1] == {"b": 5, "c": 1, "a": 5}
    for key in "ab":
        assert driver.answer(key, 2) == answers[key]
    assert driver.computed - driver.loaded == {"a": 6, "b": 6, "c": 109}


def test_a_waiting_sequence_is_not_disturbed(make: Make, drive: type[Driver]) -> None:
    engine, host = make(-1, kv_tokens=256)
    driver = drive(engine)
    driver.add_ids("a", PROMPT)
    driver.answer("a", 2)
    evict(driver, "a", tokens=140)
    assert driver.step({"a": 200}).loading == ("a",)
    free = engine.capacity.free_tokens
    assert free == 256 - 96
    steps = len(engine.steps)
    for _ in range(5):
        result = driver.step({"a": 1})
        assert (result.computed, result.loading, result.only_waited) == ({}, ("a",), True)
    assert len(engine.steps) == steps
    driver.add_ids("b", LONG)
    result = driver.step({"b": 200}, evictable=["a"])  # more than is free
    assert list(result.failures) == ["b"]
    assert not result.evicted
    assert engine.capacity.free_tokens == free
    assert host.loaded == [3]


@pytest.mark.parametrize("load_steps", [-1, 5])
def test_removed_while_its_kv_comes(make: Make, drive: type[Driver], load_steps: int) -> None:
    engine, host = make(load_steps)
    driver, free = drive(engine), engine.free_blocks
    driver.add_ids("a", PROMPT)
    driver.answer("a", 2)
    evicted = engine.capacity.free_tokens
    engine.remove("a")
    driver.add_ids("a", PROMPT)
    assert driver.step({"a": 100}).loading == ("a",)
    engine.remove("a")
    assert engine.capacity.free_tokens == evicted + 128
    assert free - engine.free_blocks == 3  # vLLM still loads into them
    driver.add_ids("b", [9, *PROMPT])
    driver.answer("b", 9)
    if load_steps > 0:
        assert free - engine.free_blocks == 4
    else:
        assert free - engine.free_blocks == 7
    assert host.loaded == [3]


def test_tool_output_for_a_sequence_with_a_running_load(make: Make, drive: type[Driver]) -> None:
    engine, host = make(2)
    driver = drive(engine)
    driver.add_ids("a", PROMPT)
    driver.answer("a", 2)
    driver.append("a", "find the apple")
    answer = driver.answer("a", 8)
    for when in ("coming", "there"):
        driver.add_ids(when, PROMPT)
        assert driver.step({when: 100}).loading == (when,)
        if when == "there":
            wait(driver, when)
        driver.append(when, "no")  # a block that is not full is not there yet
        if when == "coming":
            assert driver.step({"a": 1}).loaded == {"coming": 0}
        words = [*PROMPT, *engine.tokenizer.encode("no")]
        driver.answer(when, 3)
        driver.add_ids("twin", [*words])
        host.load_steps = 0
        assert driver.answer("twin", 3) == driver.said[when][:3]
        host.load_steps = 2
        engine.remove("twin")
    assert len(answer) == 8


@pytest.mark.parametrize("load_steps", [0, 3])
def test_what_cannot_be_read_is_computed(make: Make, drive: type[Driver], load_steps: int) -> None:
    engine, host = make(load_steps, kv_tokens=256)
    driver = drive(engine)
    driver.add_ids("a", PROMPT)
    driver.add_ids("b", [7, *PROMPT])
    driver.answer("b", 2)
    answer = driver.answer("a", 9)
    engine.remove("a")
    driver.add_ids("a", PROMPT)
    host.broken = True
    result = driver.step({"a": 100, "b": 1}, lost=("a",))
    assert result.computed == {"b": 1}
    assert not result.evicted
    while load_steps and "a" not in driver.step({"b": 1}).loaded:
        pass
    assert driver.loaded["a"] == 0
    assert driver.answer("a", 9) == answer
    assert driver.computed["a"] == 108
    assert host.loaded == [3]


def test_a_load_takes_no_more_than_is_spare(make: Make, drive: type[Driver]) -> None:
    engine, host = make(kv_tokens=256, max_rows=2)
    driver = drive(engine)
    driver.add_ids("a", LONG)
    driver.answer("a", 1)
    driver.remove_all()
    driver.add_ids("a", LONG)  # a chunk of it, and all that is spare
    result = driver.step({"a": 40})
    assert (result.loaded, result.computed) == ({"a": 192}, {"a": 8})
    driver.remove_all()
    driver.add_ids("b", [9, *PROMPT[:64]])
    driver.answer("b", 2)
    driver.add_ids("a", LONG)
    result = driver.step({"a": 40, "b": 1})  # six blocks would be the last ones
    assert (result.loaded, result.computed) == ({}, {"a": 40, "b": 1})
    assert host.loaded == [6]


def test_a_pinned_prefix_is_not_loaded(make: Make, drive: type[Driver]) -> None:
    engine, host = make(2)
    driver, free = drive(engine), engine.free_blocks
    driver.add_ids("a", LONG)
    answer = driver.answer("a", 4)
    driver.remove_all()
    prefix = engine.pin_prefix(PROMPT[:70])
    assert free - engine.free_blocks == 2
    assert not host.loaded
    driver.add_ids("a", LONG, prefix)
    driver.step({"a": 300})
    wait(driver, "a")
    assert driver.loaded == {"a": 128}
    assert driver.answer("a", 4) == answer
    assert host.loaded == [4]
    driver.remove_all()
    engine._core.end(next(iter(engine._core._held)))  # pinned for good otherwise


def test_blocks_that_are_still_stored_are_waited_for(make: Make, drive: type[Driver]) -> None:
    engine, _ = make(send_steps=4, kv_tokens=256, max_rows=1, max_model_len=256)
    driver = drive(engine)
    answers = []
    for turn in range(4):
        key = f"s{turn}"
        driver.add_ids(key, [9 + turn, *PROMPT, *PROMPT[:90]])
        driver.step({key: 200}, evictable=[f"s{turn - 1}"])
        answers.append(list(driver.said[key]))
    for turn in (0, 3, 1, 2):
        key = f"s{turn}"
        others = [other for other in driver.said if other != key]
        while len(driver.said[key]) < 3:
            driver.step({key: 200}, evictable=others)
        assert driver.said[key][:1] == answers[turn]
    assert sum(driver.loaded.values()) >= 3 * 160


def test_blocks_that_never_come_back(
    make: Make, drive: type[Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_loads, "ROOM_S", 0.05)
    engine, host = make(send_steps=-1, kv_tokens=256, max_rows=1, max_model_len=256)
    driver = drive(engine)
    driver.add_ids("a", LONG)
    driver.answer("a", 1)
    engine.remove("a")
    driver.add_ids("b", LONG)
    with pytest.raises(EngineError, match="has kept the blocks of other sequences"):
        engine.submit(StepPlan((("b", 200),)))
    host.send_steps = 0
    engine.submit(StepPlan((("b", 200),)))
    assert engine.collect().loaded == {"b": 192}


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    host_does=st.tuples(st.sampled_from([0, 1, 2, 5]), st.sampled_from([0, 3]), st.booleans()),
    schedule=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 40, 200]), min_size=1),
            st.sampled_from(["", "", "", "a", "d"]),
        ),
        max_size=40,
    ),
)
def test_any_schedule_gives_the_same_tokens(
    pressed: tuple[Inside, Host, dict[str, list[int]]],
    drive: type[Driver],
    host_does: tuple[int, int, bool],
    schedule: list[tuple[dict[str, int], str]],
) -> None:
    engine, host, answers = pressed
    host.load_steps, host.send_steps, broken = host_does
    driver, room = drive(engine), engine.capacity.free_tokens
    for place, key in enumerate("abcd"):
        driver.add_ids(key, [200 + place, *PROMPT])
    for turn, (entries, removed) in enumerate(schedule):
        host.broken = broken and turn % 3 == 0
        lost = list(entries) if host.broken else ()
        driver.step(entries, [key for key in "abcd" if key not in entries], lost)
        if removed:
            engine.remove(removed)
            driver.add_ids(removed, [200 + "abcd".index(removed), *PROMPT])
    for key, answer in answers.items():
        both = min(len(driver.said[key]), len(answer))
        assert driver.said[key][:both] == answer[:both]
    driver.remove_all()
    assert engine.capacity.free_tokens == room


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (3, "kv_transfer_config must be as"),
        ({"kv_role": "kv_both"}, "kv_transfer_config must be as"),
        ({"kv_connector": "HostKv", "kv_role": "kv_producer"}, "kv_role must be 'kv_both'"),
        ({"kv_connector": "NoSuch"}, "vLLM does not start: Unsupported connector type: NoSuch"),
    ],
)
def test_connectors_that_cannot_be_had(llama: Path, asked: Any, says: str) -> None:
    with pytest.raises(EngineError, match=says):
        Inside(llama, kv_transfer_config=asked)


def test_one_step_at_a_time_with_a_connector(llama: Path) -> None:
    args = {
        "distributed_executor_backend": NoModel,
        "pipeline_parallel_size": 2,
        "kv_transfer_config": new_host()[1],
    }
    with pytest.raises(EngineError, match=r"several steps in flight .* exclude each other"):
        VllmEngine(llama, engine_args=args)


def test_another_version_of_vllm(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectors, "_QUEUES", ("waiting", "elsewhere"))
    with pytest.raises(EngineError, match="not known well enough for a KV connector"):
        Inside(llama, kv_transfer_config=new_host()[1])


@pytest.mark.skipif(not ON_CPU, reason="vLLM runs on a GPU")
def test_the_hosts_memory_on_a_cpu(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, args = EngineLimits(kv_tokens=512), {"kv_offloading_size": 0.1}
    with pytest.raises(EngineError, match="moves KV between a GPU and the host's memory"):
        VllmEngine(llama, limits=limits, engine_args=args)
    monkeypatch.setattr(connectors, "_OF_GPUS", ())  # vLLM's own words
    with pytest.raises(EngineError, match="vLLM does not start: CPU Offloading is currently only"):
        VllmEngine(llama, limits=limits, engine_args=args)
    VllmEngine(llama, limits=limits).close()


@pytest.mark.skipif(ON_CPU, reason="vLLM runs on a CPU")
@pytest.mark.parametrize("simple", ["0", "1"])
def test_kv_in_the_hosts_memory(
    llama: Path, drive: type[Driver], monkeypatch: pytest.MonkeyPatch, simple: str
) -> None:
    monkeypatch.setenv("VLLM_USE_SIMPLE_KV_OFFLOAD", simple)
    limits = EngineLimits(max_model_len=256, kv_tokens=256)
    engine = VllmEngine(llama, limits=limits, engine_args={"kv_offloading_size": 0.1})
    driver = drive(engine)
    driver.add_ids("a", PROMPT)
    driver.answer("a", 9)
    evict(driver, "a", tokens=140)
    for _ in range(5000):
        if driver.step({"a": 200}).loaded:
            break
        time.sleep(0.002)
    answer = driver.answer("a", 24)
    assert driver.loaded == {"a": 96}
    assert driver.recomputed - driver.loaded == {"a": 108 - 96}
    engine.close()
    plain = drive(VllmEngine(llama, limits=limits))
    plain.add_ids("a", PROMPT)
    assert plain.answer("a", 24) == answer
    plain.engine.close()


def test_kv_in_files(llama: Path, tmp_path: Path, drive: type[Driver]) -> None:
    args = {
        "kv_transfer_config": {
            "kv_connector": "ExampleConnector",
            "kv_connector_extra_config": {"shared_storage_path": str(tmp_path)},
        }
    }
    limits = EngineLimits(max_model_len=256, kv_tokens=256)
    engine = VllmEngine(llama, limits=limits, engine_args=args)
    driver = drive(engine)
    driver.add_ids("a", PROMPT)
    driver.answer("a", 9)
    evict(driver, "a", tokens=140)
    answer = driver.answer("a", 24)
    assert driver.loaded == {"a": 96}
    assert driver.recomputed - driver.loaded == {"a": 108 - 96}
    with pytest.raises(EngineError, match="another engine of this process has a KV connector"):
        VllmEngine(llama, limits=limits)
    engine.close()
    for process, loaded in ((True, 96), (False, 0)):  # the files are still there
        other = make_engine(
            "vllm", model=llama, max_model_len=256, kv_tokens=256, process=process,
            engine_args={**args, **LIGHT} if process else None,
        )  # fmt: skip
        driver = drive(other)
        driver.add_ids("a", PROMPT)
        assert driver.answer("a", 24) == answer
        assert driver.loaded["a"] == loaded
        other.close()
