"""Prompts that are found in vLLM's prefix cache, on its own scheduler and with a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timely_llm.core.errors import EngineError
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import Decoding
from timely_llm.engines.sequences import EngineLimits

if TYPE_CHECKING:
    from timely_llm.conformance.engines.driver import Driver

pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")

from test.engines.vllm.test_engine import Inside
from test.engines.vllm_host import new_host
from test.engines.vllm_runner import NoModel, asynchronous
from timely_llm.engines.vllm.engine import VllmEngine

PROMPT = list(range(5, 105))  # three blocks and four tokens
LONG = [*PROMPT, *PROMPT]
FINDS = {"enable_prefix_caching": True}
Make = Callable[..., Inside]


@pytest.fixture
def make(llama: Path) -> Iterator[Make]:
    """Make an engine that looks prompts up; all blocks but pinned ones must be free at its end."""
    made: list[tuple[Inside, int]] = []

    def make(**options: Any) -> Inside:
        engine = Inside(llama, engine_args=FINDS, **options)
        made.append((engine, engine.free_blocks))
        return engine

    yield make
    for engine, free in made:
        for key in list(engine._sequences.by_key):
            engine.remove(key)
        assert engine.free_blocks == free - engine._sequences._pinned_tokens // engine.block_tokens
        assert not engine._core._scheduler.requests
        assert engine._core._held.keys() == set(engine._prefix_keys.values())
        engine.close()


def test_what_was_asked_before_is_found(make: Make, drive: type[Driver]) -> None:
    engine = make()
    driver = drive(engine)
    driver.add_ids("a", PROMPT)
    answer = driver.answer("a", 40)
    driver.add_ids("b", PROMPT)
    result = driver.step({"b": 100})
    assert (result.loaded, result.computed, result.recomputed) == ({"b": 96}, {"b": 4}, {})
    assert engine.blocks("a")[:3] == engine.blocks("b")[:3]
    assert driver.answer("b", 40) == answer
    driver.remove_all()
    driver.add_ids("c", [*PROMPT, *answer[:30]])  # its answer, too
    result = driver.step({"c": 100})
    assert (result.loaded, result.computed) == ({"c": 128}, {"c": 2})
    assert driver.answer("c", 10) == answer[30:]


def test_nothing_is_found_without_the_option(llama: Path, drive: type[Driver]) -> None:
    for args in (None, {"enable_prefix_caching": False}):
        engine = Inside(llama, engine_args=args)
        driver = drive(engine)
        for key in "ab":
            driver.add_ids(key, PROMPT)
            driver.answer(key, 9)
            assert driver.computed[key] == 108
        assert not driver.loaded
        engine.close()


@pytest.mark.parametrize("tokens", [32, 33, 64, 65])
def test_one_token_is_left_to_compute(make: Make, drive: type[Driver], tokens: int) -> None:
    driver = drive(make())
    driver.add_ids("a", LONG)
    driver.answer("a", 1)
    driver.add_ids("b", LONG[:tokens])
    driver.answer("b", 1)
    assert driver.loaded["b"] == (tokens - 1) // 32 * 32
    driver.add_ids("other", [9, *LONG[1:tokens]])  # the first token is another
    driver.answer("other", 1)
    assert not driver.loaded["other"]


def test_what_was_evicted_is_found_while_it_is_there(make: Make, drive: type[Driver]) -> None:
    engine = make(kv_tokens=256, max_rows=2, max_model_len=256)
    driver = drive(engine)
    driver.add_ids("alone", PROMPT)
    answer = driver.answer("alone", 50)
    engine.remove("alone")
    driver.add_ids("a", PROMPT)
    driver.answer("a", 30)
    driver.add_ids("b", [300, *PROMPT, *PROMPT[:30]])
    assert driver.step({"b": 131}, evictable=["a"]).evicted == ("a",)
    engine.remove("b")
    result = driver.step({"a": 200})
    found = result.loaded["a"]
    assert 0 < found < 130
    assert result.computed == {"a": 130 - found}
    assert result.recomputed == ({"a": 129 - found} if found < 129 else {})
    assert driver.answer("a", 40) == answer[:40]
    driver.add_ids("c", [301, *LONG])
    assert driver.step({"c": 201}, evictable=["a"]).evicted == ("a",)
    engine.remove("c")
    driver.add_ids("d", [302, *LONG, *range(200, 250)])  # all other blocks
    driver.step({"d": 251})
    engine.remove("d")
    assert not driver.step({"a": 200}).loaded
    assert driver.answer("a", 50) == answer


def test_found_blocks_are_not_given_to_others_of_the_step(make: Make, drive: type[Driver]) -> None:
    engine = make(kv_tokens=320, max_rows=4, max_model_len=330)
    driver = drive(engine)
    driver.add_ids("a", PROMPT)
    answer = driver.answer("a", 9)
    blocks = engine.blocks("a")[:3]
    engine.remove("a")
    driver.add_ids("other", [9, *range(5, 324)])
    driver.answer("other", 1)
    engine.remove("other")
    driver.add_ids("b", [8, *range(5, 140)])
    driver.step({"b": 10})
    pool = engine._core._scheduler.kv_cache_manager.block_pool
    free = pool.free_block_queue.get_all_free_blocks()
    assert {block.block_id for block in free[:3]} == set(blocks)  # what b would get next
    driver.add_ids("a", PROMPT)
    assert driver.step({"b": 118, "a": 100}).loaded == {"a": 96}
    assert engine.blocks("a")[:3] == blocks
    assert driver.answer("a", 9) == answer


def test_a_victims_blocks_are_found(make: Make, drive: type[Driver]) -> None:
    engine = make(kv_tokens=160, max_rows=1, max_model_len=160)
    driver = drive(engine)
    driver.add_ids("a", PROMPT)
    answer = driver.answer("a", 9)
    driver.add_ids("b", PROMPT)
    result = driver.step({"b": 100}, evictable=["a"])
    assert (result.evicted, result.loaded, result.computed) == (("a",), {"b": 96}, {"b": 4})
    assert driver.answer("b", 9) == answer


def test_a_pinned_prefix_stays_shared(make: Make, drive: type[Driver]) -> None:
    engine = make(kv_tokens=512, max_rows=2)
    driver = drive(engine)
    driver.add_ids("a", LONG)
    answer = driver.answer("a", 4)
    prefix = engine.pin_prefix(PROMPT[:70])  # in blocks of its own, alike
    (pinned,) = engine._core._held.values()
    ids = [block.block_id for block in pinned.blocks[0]]
    assert not set(ids) & set(engine.blocks("a"))
    assert driver.add_ids("b", LONG, prefix) == 136
    result = driver.step({"b": 200})
    assert (result.loaded, result.computed) == ({"b": 128}, {"b": 8})
    assert not result.recomputed  # not even of the block that the prefix does not fill
    assert engine.blocks("b")[:2] == ids
    assert engine.blocks("b")[2:6] == engine.blocks("a")[2:6]
    assert driver.answer("b", 4) == answer


def test_tool_output_that_was_computed_before(make: Make, drive: type[Driver]) -> None:
    engine = make()
    driver = drive(engine)
    words = "find the apple and go to the chair, then take a picture of all the cups there"
    driver.add_ids("a", PROMPT)
    driver.answer("a", 9)
    driver.append("a", words)
    answer = driver.answer("a", 12)
    context = len(PROMPT) + 8 + 1 + len(engine.tokenizer.encode(words))
    driver.add_ids("b", PROMPT)
    driver.answer("b", 9)
    blocks = engine.blocks("b")
    driver.resume("b", "c", words)
    result = driver.step({"c": 200})
    assert result.loaded["c"] == (context - 1) // 32 * 32 - 96 >= 32
    assert engine.blocks("c")[:3] == blocks[:3]
    assert driver.answer("c", 3) == answer[9:12]


def test_a_lookup_takes_no_more_than_is_spare(make: Make, drive: type[Driver]) -> None:
    engine = make(kv_tokens=256, max_rows=2, max_model_len=256)
    driver = drive(engine)
    driver.add_ids("a", LONG)
    driver.answer("a", 1)
    driver.remove_all()
    driver.add_ids("a", LONG)  # a chunk of it, and all that is spare
    result = driver.step({"a": 40})
    assert (result.loaded, result.computed) == ({"a": 192}, {"a": 8})
    driver.remove_all()
    driver.add_ids("b", [9, *PROMPT[:32]])
    driver.answer("b", 2)
    driver.add_ids("a", LONG)
    result = driver.step({"a": 40, "b": 1})  # six blocks would be the last ones
    assert (result.loaded, result.computed) == ({}, {"a": 40, "b": 1})


@pytest.mark.parametrize("fails_at", ["execute_model", "sample_tokens"])
def test_what_a_broken_step_left_is_not_found(
    make: Make, drive: type[Driver], monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    engine = make()
    driver = drive(engine)
    prefix = engine.pin_prefix(PROMPT[:64])
    driver.add_ids("alone", [*PROMPT, 7])
    answer = driver.answer("alone", 9)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the device is gone")

    other = [8, *LONG]
    with monkeypatch.context() as patch:
        patch.setattr(engine.runner, fails_at, fail)
        for key in "ab":
            driver.add_ids(key, other)
            with pytest.raises(RuntimeError, match="gone"):
                engine.submit(StepPlan(((key, 201),)))
            engine.remove(key)
        with pytest.raises(RuntimeError, match="gone"):
            engine.pin_prefix(other[:96])
    driver.add_ids("c", other)
    engine.submit(StepPlan((("c", 201),)))
    result = engine.collect()
    assert (result.computed, result.loaded) == ({"c": 201}, {})
    driver.add_ids("d", [*PROMPT, 7], prefix)
    assert driver.answer("d", 9) == answer
    driver.add_ids("e", [*PROMPT, 7])
    assert driver.answer("e", 9) == answer
    assert driver.loaded["e"] == 96
    driver.add_ids("f", other)
    assert driver.answer("f", 1) == result.tokens["c"]
    assert driver.loaded["f"] == 192


def test_with_guesses(make: Make, drive: type[Driver]) -> None:
    if find_spec("numba") is None:
        pytest.skip("vLLM guesses tokens with the package numba")
    engine = make(guesses=5, max_rows=4)
    driver = drive(engine)
    driver.add_ids("a", PROMPT)
    answer = driver.answer("a", 60)
    for key, tokens in (("b", 6), ("c", 1), ("d", 4)):
        driver.add_ids(key, [*PROMPT, *answer[:29]])
        driver.step({key: tokens})
        assert driver.answer(key, 30) == answer[29:59]
        assert driver.loaded[key] == 128


@pytest.fixture(scope="module")
def pressed(llama: Path) -> Iterator[Inside]:
    """An engine with room for two of four sequences."""
    engine = Inside(llama, engine_args=FINDS, kv_tokens=288, max_rows=4, max_model_len=256)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def answers(llama: Path) -> dict[str, list[int]]:
    """What the four are answered without the option, and alone."""
    from timely_llm.conformance.engines.driver import Driver

    engine = Inside(llama)
    driver = Driver(engine)
    for key, token_ids in PROMPTS.items():
        driver.add_ids(key, token_ids)
        driver.answer(key, 60)
        driver.append(key, "and on")
        driver.answer(key, 80)
    engine.close()
    return driver.said


PROMPTS = {"a": PROMPT, "b": [*PROMPT[:70], 200], "c": PROMPT, "d": [201, *PROMPT]}


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    schedule=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 40, 200]), min_size=1),
            st.sampled_from(["", "", "", "", "a", "c", "d"]),
        ),
        max_size=40,
    ),
)
def test_any_schedule_under_pressure(
    pressed: Inside,
    drive: type[Driver],
    answers: dict[str, list[int]],
    schedule: list[tuple[dict[str, int], str]],
) -> None:
    driver, free, blocks = drive(pressed), pressed.capacity.free_tokens, pressed.free_blocks
    for key, token_ids in PROMPTS.items():
        driver.add_ids(key, token_ids)
    for entries, removed in schedule:
        driver.step(entries, [key for key in "abcd" if key not in entries])
        # Whatever is shared is counted for each: there are always as many blocks as promised.
        assert pressed.free_blocks * 32 >= pressed.capacity.free_tokens
        if removed:
            pressed.remove(removed)
            driver.add_ids(removed, PROMPTS[removed])
    for key, said in driver.said.items():
        assert said == answers[key][: len(said)]
    driver.remove_all()
    assert pressed.capacity.free_tokens == free
    assert pressed.free_blocks == blocks


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"enable_prefix_caching": 1}, "enable_prefix_caching must be true or false, not 1"),
        ({"async_scheduling": True}, "prefix caching and several steps in flight .* exclude"),
        ({"pipeline_parallel_size": 2}, "prefix caching and several steps in flight .* exclude"),
        ({"kv_transfer_config": {}}, "prefix caching and a KV connector exclude each other"),
    ],
)  # fmt: skip
def test_what_it_does_not_go_with(llama: Path, args: dict[str, Any], says: str) -> None:
    if "kv_transfer_config" in args:
        args = {"kv_transfer_config": new_host()[1]}
    args = {**FINDS, "distributed_executor_backend": NoModel, **args}
    with asynchronous(), pytest.raises(EngineError, match=says):
        VllmEngine(llama, engine_args=args)


def test_with_a_model(llama: Path, drive: type[Driver]) -> None:
    said = {}
    for finds in (False, True):
        engine = VllmEngine(
            llama,
            limits=EngineLimits(max_model_len=256, kv_tokens=256, max_rows=4),
            engine_args={"enable_prefix_caching": finds},
        )
        driver = drive(engine)
        driver.add_ids("a", PROMPT)
        driver.answer("a", 12)
        engine.remove("a")
        driver.add_ids("greedy", PROMPT)
        driver.add_ids("drawn", PROMPT, decoding=Decoding(1.0, seed=4))
        for key in ("greedy", "drawn"):
            driver.answer(key, 12)
        assert driver.loaded == ({"greedy": 96, "drawn": 96} if finds else {})
        driver.append("greedy", "and on")
        driver.answer("greedy", 20)
        said[finds] = driver.said
        engine.close()
    assert said[True] == said[False]
    assert said[True]["greedy"][:12] == said[True]["a"]
