"""What all engines do when there is not enough of something, or the impossible is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Decoding, Engine, Prefix
from timely_llm.policies.contract import StepPlan

if TYPE_CHECKING:
    from test.engines.conftest import Driver, MakeEngine


@pytest.fixture(scope="module")
def small(make: MakeEngine, tasks: dict[str, str]) -> Engine:
    """An engine with room for about two of the tasks."""
    probe = make()
    longest = max(len(probe.tokenizer.encode(task)) for task in tasks.values())
    probe.close()
    return make(kv_tokens=2 * longest)


def test_eviction_under_pressure_and_recovery(
    make: MakeEngine, answers: dict[str, list[int]], drive: type[Driver], tasks: dict[str, str]
) -> None:
    probe = drive(make())
    for key in "ab":
        probe.kept[key] = len(probe.engine.tokenizer.encode(tasks[key])) + len(answers["a"])
    probe.engine.close()
    engine = make(kv_tokens=probe.stored("a", "b"))  # for two, not three
    driver = drive(engine)
    free = engine.capacity.free_tokens
    for key in "abd":
        driver.add_task(key)
    driver.answer("a", 6)
    driver.answer("b", 6)
    kept = driver.computed["a"], driver.computed["b"]
    result = driver.step({"d": 512}, evictable=["b", "a", "gone", "d"])
    assert result.evicted == ("b",)
    assert engine.capacity.free_tokens == free - driver.stored("a", "d")
    driver.answer("d")
    engine.remove("d")
    for key in "ab":
        driver.answer(key)
        assert driver.said[key] == answers[key]
    assert driver.recomputed == {"b": kept[1]}
    for key in "ab":
        engine.remove(key)
    assert engine.capacity.free_tokens == free
    engine.close()


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    schedule=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 9, 100]), min_size=1),
            st.sampled_from(["", "", "", "a", "d"]),
        ),
        max_size=40,
    )
)
def test_any_schedule_under_pressure_gives_the_same_tokens(
    small: Engine,
    answers: dict[str, list[int]],
    drive: type[Driver],
    tasks: dict[str, str],
    schedule: list[tuple[dict[str, int], str]],
) -> None:
    driver = drive(small)
    room = small.capacity.free_tokens
    for key in tasks:
        driver.add_task(key)
    for entries, removed in schedule:
        driver.step(entries, [key for key in tasks if key not in entries])
        if removed:  # and asked again from the beginning
            small.remove(removed)
            driver.add_task(removed)
        # Blocks that are begun may be more than were free: the engine has a few more.
        assert small.capacity.free_tokens == max(room - driver.stored(*driver.kept), 0)
    for key, answer in answers.items():
        both = min(len(driver.said[key]), len(answer))
        assert driver.said[key][:both] == answer[:both]
        once = driver.computed[key] - driver.recomputed[key]
        assert once <= len(small.tokenizer.encode(tasks[key])) + len(driver.said[key])
    driver.remove_all()
    assert small.capacity.free_tokens == room


def test_an_eviction_leaves_the_pinned_prefix(
    make: MakeEngine, drive: type[Driver], fixed: str
) -> None:
    engine = make(kv_tokens=256)
    driver = drive(engine)
    shared = engine.tokenizer.encode(fixed)
    prefix = engine.pin_prefix(shared)
    room = engine.capacity.free_tokens
    own = driver.add("a", fixed + "tc(30);", prefix)
    expected = list(driver.answer("a", 9))
    engine.remove("a")
    driver.add("a", fixed + "tc(30);", prefix)
    driver.answer("a", 4)
    driver.add_ids("big", (shared * 9)[: room - 2])
    assert driver.step({"big": room}, evictable=["a"]).evicted == ("a",)
    engine.remove("big")
    assert driver.answer("a", 9) == expected
    # What of the prefix fills no whole block is computed again for each that begins with it.
    assert driver.recomputed == {"a": own + 3 + len(shared) - driver.whole_blocks(len(shared))}
    engine.close()


def test_what_does_not_fit_fails_alone(make: MakeEngine, drive: type[Driver]) -> None:
    engine = make(kv_tokens=48)
    driver = drive(engine)
    driver.add("long", "find the apple and " * 40)
    driver.add("short", "tc(30);")
    result = driver.step({"long": 512, "short": 512})
    assert set(result.failures) == {"long"}
    assert "48" in result.failures["long"]
    driver.answer("short", 8)
    engine.remove("long")
    engine.remove("short")
    assert engine.capacity.free_tokens == 48
    engine.close()


def test_a_sequence_at_its_longest_fails_alone(make: MakeEngine, drive: type[Driver]) -> None:
    engine = make(max_model_len=40)
    driver, free = drive(engine), engine.capacity.free_tokens
    driver.add("a", "tc(30);")
    driver.add("b", "mf(50);tc(30);tp();")
    prompt = driver.left["a"]
    driver.answer("a", 40 - prompt)
    result = driver.step({"a": 1, "b": 40})
    assert list(result.failures) == ["a"]
    assert "40" in result.failures["a"]
    assert list(result.tokens) == ["b"]
    driver.remove_all()
    assert engine.capacity.free_tokens == free
    engine.close()


def test_impossible_plans(driver: Driver, tasks: dict[str, str]) -> None:
    driver.add("a", tasks["a"])
    for entries, reason in (
        ((), "empty"),
        ((("a", 1), ("who", 1)), "'who'"),
        ((("a", 1), ("a", 1)), "once"),
        ((("a", 0),), "at least 1"),
    ):
        with pytest.raises(EngineError, match=reason):
            driver.engine.submit(StepPlan(entries))
    driver.answer("a", 3)


def test_a_step_larger_than_the_capacity(make: MakeEngine, drive: type[Driver], fixed: str) -> None:
    engine = make(max_rows=2, max_step_tokens=12)
    driver = drive(engine)
    for key in "abc":
        driver.add(key, fixed)
    with pytest.raises(EngineError, match="at most 2"):
        driver.step(dict.fromkeys("abc", 1))
    with pytest.raises(EngineError, match="at most 12"):
        driver.step({"a": 10, "b": 3})
    driver.step({"a": 10, "b": 2})
    engine.close()


def test_impossible_sequences(make: MakeEngine, drive: type[Driver], fixed: str) -> None:
    engine = make()
    driver, encode = drive(engine), engine.tokenizer.encode
    prefix = engine.pin_prefix(encode("mf(50);"))
    driver.add("a", fixed)
    with pytest.raises(EngineError, match="already"):
        engine.add("a", encode(fixed))
    with pytest.raises(EngineError, match="begin"):
        engine.add("x", encode("tc(30);mf(50);"), prefix)
    with pytest.raises(EngineError, match="more than"):
        engine.add("x", encode("mf(50);"), prefix)
    with pytest.raises(EngineError, match="more than"):
        engine.add("x", [])
    with pytest.raises(EngineError, match="not pinned"):
        engine.add("x", encode("tc(30);mf(50);"), Prefix(tuple(encode("tc(30);"))))
    with pytest.raises(EngineError, match="max_model_len"):
        engine.add("x", encode("apple; " * 2000))
    with pytest.raises(EngineError, match="max_model_len"):
        engine.append("a", encode("apple; " * 2000))
    with pytest.raises(EngineError, match="max_model_len"):
        engine.pin_prefix(encode("apple; " * 2000))
    with pytest.raises(EngineError, match="'x'"):
        engine.append("x", encode("apple"))
    driver.answer("a", 3)


def test_what_cannot_be_replaced(driver: Driver, fixed: str) -> None:
    driver.add("a", fixed)
    engine, words = driver.engine, driver.engine.tokenizer.encode("=> True ")
    with pytest.raises(EngineError, match="generated"):
        engine.append("a", words, drop=1)  # the newest token is the prompt's
    driver.answer("a", 2)
    with pytest.raises(EngineError, match="2 tokens"):
        engine.append("a", words, drop=2)
    with pytest.raises(EngineError, match="words"):
        engine.append("a", [], drop=1)  # nothing would be left to go on from
    driver.append("a", "=> True ", drop=1)
    with pytest.raises(EngineError, match="generated"):
        engine.append("a", words, drop=1)  # the newest token is an outside word
    driver.answer("a", 4)


def test_the_newest_token_can_be_replaced_after_an_eviction(
    make: MakeEngine, drive: type[Driver]
) -> None:
    engine = make(kv_tokens=64)
    driver = drive(engine)
    driver.add("a", "mf(50);", decoding=Decoding(1.0, seed=4))
    driver.answer("a", 3)
    driver.add_ids("b", [*engine.tokenizer.encode("find the apple and ") * 9][:60])
    assert driver.step({"b": 60}, evictable=["a"]).evicted == ("a",)
    engine.remove("b")
    driver.append("a", "tc(30);", drop=1)
    prompt = [*engine.tokenizer.encode("mf(50);"), *driver.said["a"][:2]]
    driver.add_ids("c", prompt + engine.tokenizer.encode("tc(30);"), decoding=Decoding(1.0, seed=4))
    assert driver.answer("a", 9)[3:] == driver.answer("c", 6)
    engine.close()


@pytest.mark.parametrize("temperature", [-1.0, float("nan"), float("inf")])
def test_impossible_temperature(driver: Driver, temperature: float) -> None:
    with pytest.raises(EngineError, match="temperature"):
        driver.add("a", "mf(50);", decoding=Decoding(temperature))
    driver.add("a", "mf(50);")


def test_no_room_for_a_prefix(make: MakeEngine) -> None:
    engine = make(kv_tokens=16)
    with pytest.raises(EngineError, match="kv_tokens"):
        engine.pin_prefix(engine.tokenizer.encode("find the apple and " * 8))
    assert engine.capacity.free_tokens == 16
    engine.close()
