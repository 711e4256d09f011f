"""What all engines have in common; see timely_llm/engines/contract.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Engine, Prefix, StepResult
from timely_llm.policies.contract import StepPlan

FIXED = "You control a small drone. Answer with a plan and nothing else, one skill a line. "
TASKS = {
    "a": "Find the apple.",
    "b": "Go to the chair, and if there is a cup on it, take a picture of the cup.",
    "c": "Turn!",
    "d": "Look around for my keys; say yes when you have found them, say no otherwise.",
}
ANSWER = 24


class Driver:
    """Runs steps and notes what came of them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.left: Counter[str] = Counter()
        self.computed: Counter[str] = Counter()
        self.recomputed: Counter[str] = Counter()
        self.said: dict[str, list[int]] = {}

    def add(self, key: str, text: str, prefix: Prefix | None = None) -> int:
        token_ids = self.engine.tokenizer.encode(text)
        self.left[key] = self.engine.add(key, token_ids, prefix)
        self.said[key] = []
        return self.left[key]

    def append(self, key: str, text: str) -> None:
        token_ids = self.engine.tokenizer.encode(text)
        self.engine.append(key, token_ids)
        self.left[key] += len(token_ids)

    def step(self, entries: dict[str, int], evictable: Sequence[str] = ()) -> StepResult:
        """Make a step and check that only its sequences went on, as far as they were told."""
        wanted = {key: min(tokens, self.left[key]) for key, tokens in entries.items()}
        self.engine.submit(StepPlan(tuple(entries.items()), tuple(evictable)))
        result = self.engine.collect()
        served = {key: tokens for key, tokens in wanted.items() if key not in result.failures}
        assert result.computed == served
        for key, tokens in served.items():
            self.left[key] -= tokens
        assert set(result.tokens) == {key for key in served if self.left[key] == 0}
        self.computed.update(result.computed)
        self.recomputed.update(result.recomputed)
        for key, tokens_said in result.tokens.items():
            self.said[key] += tokens_said
            self.left[key] += len(tokens_said)
        return result

    def answer(self, key: str, tokens: int = ANSWER, chunk: int = 512) -> list[int]:
        """Go on with one sequence until it has said so many tokens."""
        while len(self.said[key]) < tokens:
            self.step({key: chunk})
        return self.said[key][:tokens]

    def remove_all(self) -> None:
        for key in self.said:
            self.engine.remove(key)


@pytest.fixture(scope="module")
def engine(make: Callable[..., Engine]) -> Iterator[Engine]:
    engine = make(max_rows=8)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def answers(engine: Engine) -> dict[str, list[int]]:
    """What each task is answered when it is served alone, and whole."""
    driver = Driver(engine)
    for key, task in TASKS.items():
        driver.add(key, FIXED + task)
        driver.answer(key)
    driver.remove_all()
    return driver.said


@pytest.fixture
def driver(engine: Engine) -> Iterator[Driver]:
    driver = Driver(engine)
    free = engine.capacity.free_tokens
    yield driver
    driver.remove_all()
    assert engine.capacity.free_tokens == free


Steps = list[dict[str, int]]
schedules = st.lists(
    st.dictionaries(st.sampled_from(sorted(TASKS)), st.sampled_from([1, 2, 7, 30]), min_size=1),
    max_size=60,
)


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(schedule=schedules, evictions=st.booleans())
def test_any_schedule_gives_the_same_tokens_and_computes_none_twice(
    engine: Engine, answers: dict[str, list[int]], schedule: Steps, evictions: bool
) -> None:
    driver = Driver(engine)
    for key, task in TASKS.items():
        driver.add(key, FIXED + task)
    for entries in schedule:
        resting = [key for key in TASKS if key not in entries]
        driver.step(entries, resting if evictions else ())  # there is room: none is evicted
    for key in TASKS:
        assert driver.said[key][:ANSWER] == answers[key][: len(driver.said[key])]
        prompt = len(engine.tokenizer.encode(FIXED + TASKS[key]))
        said = len(driver.said[key])
        assert driver.computed[key] + driver.left[key] == prompt + said
    assert not driver.recomputed
    driver.remove_all()


@pytest.mark.parametrize("chunk", [1, 5, 16])
def test_prefill_in_chunks(driver: Driver, answers: dict[str, list[int]], chunk: int) -> None:
    driver.add("b", FIXED + TASKS["b"])
    assert driver.answer("b", chunk=chunk) == answers["b"]


def test_suspended_for_long_while_others_come_and_go(
    driver: Driver, answers: dict[str, list[int]]
) -> None:
    driver.add("a", FIXED + TASKS["a"])
    driver.answer("a", 5)
    for key in "bcd":
        driver.add(key, FIXED + TASKS[key])
        assert driver.answer(key) == answers[key]
        driver.engine.remove(key)
    assert driver.answer("a") == answers["a"]
    assert not driver.recomputed


def test_a_pinned_prefix_is_computed_once(
    make: Callable[..., Engine], answers: dict[str, list[int]]
) -> None:
    engine = make()
    driver = Driver(engine)
    fixed = engine.tokenizer.encode(FIXED)
    before = engine.capacity.free_tokens
    prefix = engine.pin_prefix(fixed)
    assert prefix.token_ids == tuple(fixed)
    pinned = engine.capacity.free_tokens
    assert before - pinned == len(fixed)
    assert engine.pin_prefix(fixed) is prefix
    assert engine.capacity.free_tokens == pinned
    total = 0
    for key, task in TASKS.items():
        prompt = [*fixed, *engine.tokenizer.encode(task)]
        driver.left[key] = engine.add(key, prompt, prefix)
        driver.said[key] = []
        assert driver.left[key] == len(prompt) - len(fixed)
        total += driver.left[key]
    driver.step(dict.fromkeys(TASKS, 100))
    assert driver.computed.total() == total
    assert engine.capacity.free_tokens == pinned - total
    while len(driver.said["a"]) < ANSWER:
        driver.step(dict.fromkeys(TASKS, 1))
    for key in TASKS:
        assert driver.said[key] == answers[key]
    driver.remove_all()
    assert engine.capacity.free_tokens == pinned
    engine.close()


def test_an_empty_prefix_is_none(driver: Driver) -> None:
    prefix = driver.engine.pin_prefix([])
    assert driver.add("c", TASKS["c"], prefix) == len(driver.engine.tokenizer.encode(TASKS["c"]))


def test_eviction_under_pressure_and_recovery(
    make: Callable[..., Engine], answers: dict[str, list[int]]
) -> None:
    probe = make()
    prompts = {key: len(probe.tokenizer.encode(FIXED + TASKS[key])) for key in "ab"}
    probe.close()
    engine = make(kv_tokens=sum(prompts.values()) + 2 * ANSWER)  # for two of them, not for three
    driver = Driver(engine)
    free = engine.capacity.free_tokens
    for key in "abd":
        driver.add(key, FIXED + TASKS[key])
    driver.answer("a", 6)
    driver.answer("b", 6)
    kept = driver.computed["a"], driver.computed["b"]
    result = driver.step({"d": 512}, evictable=["b", "a", "gone", "d"])
    assert result.evicted == ("b",)
    driver.left["b"] += kept[1]
    assert engine.capacity.free_tokens == free - kept[0] - driver.computed["d"]
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


def test_an_eviction_leaves_the_pinned_prefix(make: Callable[..., Engine]) -> None:
    engine = make(kv_tokens=100)
    driver = Driver(engine)
    prefix = engine.pin_prefix(engine.tokenizer.encode("mf(50);"))
    own = driver.add("a", "mf(50);tc(30);", prefix)
    expected = list(driver.answer("a", 9))
    engine.remove("a")
    driver.add("a", "mf(50);tc(30);", prefix)
    driver.answer("a", 4)
    driver.left["big"] = engine.add("big", engine.tokenizer.encode("apple " * 100)[:90])
    driver.said["big"] = []
    assert driver.step({"big": 90}, evictable=["a"]).evicted == ("a",)
    engine.remove("big")
    driver.left["a"] += own + 3
    assert driver.answer("a", 9) == expected
    assert driver.recomputed == {"a": own + 3}
    engine.close()


def test_what_does_not_fit_fails_alone(make: Callable[..., Engine]) -> None:
    engine = make(kv_tokens=48)
    driver = Driver(engine)
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


def test_a_sequence_at_its_longest_fails_alone(make: Callable[..., Engine]) -> None:
    engine = make(max_model_len=40)
    driver = Driver(engine)
    driver.add("a", "tc(30);")
    driver.add("b", "mf(50);tc(30);tp();")
    prompt = driver.left["a"]
    driver.answer("a", 40 - prompt)
    result = driver.step({"a": 1, "b": 40})
    assert list(result.failures) == ["a"]
    assert "40" in result.failures["a"]
    assert list(result.tokens) == ["b"]
    engine.close()


def test_outside_words(driver: Driver) -> None:
    driver.add("a", FIXED)
    driver.answer("a", 3)
    said = driver.engine.tokenizer
    driver.append("a", " it is True. ")
    words = len(said.encode(" it is True. "))
    assert driver.left["a"] == words + 1
    driver.answer("a", 12, chunk=2)
    assert driver.computed["a"] == len(said.encode(FIXED)) + words + 11
    # As if they had been in the prompt.
    prompt = [*said.encode(FIXED), *driver.said["a"][:3], *said.encode(" it is True. ")]
    driver.left["b"] = driver.engine.add("b", prompt)
    driver.said["b"] = []
    assert driver.answer("b", 9) == driver.said["a"][3:]


def test_removal_frees_everything_at_once(driver: Driver) -> None:
    free = driver.engine.capacity.free_tokens
    driver.add("a", FIXED)
    driver.step({"a": 9})
    assert driver.engine.capacity.free_tokens == free - 9
    driver.engine.remove("a")
    driver.engine.remove("a")
    assert driver.engine.capacity.free_tokens == free
    driver.add("a", FIXED)  # the key can be used again
    driver.answer("a", 2)


def test_impossible_plans(driver: Driver) -> None:
    driver.add("a", TASKS["a"])
    for entries, reason in (
        ((), "empty"),
        ((("a", 1), ("who", 1)), "'who'"),
        ((("a", 1), ("a", 1)), "once"),
        ((("a", 0),), "at least 1"),
    ):
        with pytest.raises(EngineError, match=reason):
            driver.engine.submit(StepPlan(entries))
    driver.answer("a", 3)


def test_a_step_larger_than_the_capacity(make: Callable[..., Engine]) -> None:
    engine = make(max_rows=2, max_step_tokens=12)
    driver = Driver(engine)
    for key in "abc":
        driver.add(key, FIXED)
    with pytest.raises(EngineError, match="at most 2"):
        driver.step(dict.fromkeys("abc", 1))
    with pytest.raises(EngineError, match="at most 12"):
        driver.step({"a": 10, "b": 3})
    driver.step({"a": 10, "b": 2})
    engine.close()


def test_impossible_sequences(make: Callable[..., Engine]) -> None:
    engine = make()
    driver, encode = Driver(engine), engine.tokenizer.encode
    prefix = engine.pin_prefix(encode("mf(50);"))
    driver.add("a", FIXED)
    with pytest.raises(EngineError, match="already"):
        engine.add("a", encode(FIXED))
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


def test_no_room_for_a_prefix(make: Callable[..., Engine]) -> None:
    engine = make(kv_tokens=16)
    with pytest.raises(EngineError, match="kv_tokens"):
        engine.pin_prefix(engine.tokenizer.encode("find the apple and " * 8))
    assert engine.capacity.free_tokens == 16
    engine.close()


def test_one_step_at_a_time(driver: Driver) -> None:
    driver.add("a", FIXED)
    plan = StepPlan((("a", 5),))
    with pytest.raises(EngineError, match="collect"):
        driver.engine.collect()
    driver.engine.submit(plan)
    with pytest.raises(EngineError, match="collect"):
        driver.engine.submit(plan)
    assert driver.engine.collect().computed == {"a": 5}
