"""What all engines have in common; see timely_llm/engines/contract.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from test.engines.conftest import ANSWER
from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import GREEDY, Decoding, Engine

if TYPE_CHECKING:
    from test.engines.conftest import Driver, MakeEngine


Steps = list[dict[str, int]]
schedules = st.lists(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 2, 7, 30]), min_size=1),
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
    engine: Engine,
    answers: dict[str, list[int]],
    schedule: Steps,
    evictions: bool,
    drive: type[Driver],
    tasks: dict[str, str],
) -> None:
    driver = drive(engine)
    for key in tasks:
        driver.add_task(key)
    for entries in schedule:
        resting = [key for key in tasks if key not in entries]
        driver.step(entries, resting if evictions else ())  # there is room: none is evicted
    for key in tasks:
        both = min(len(driver.said[key]), len(answers[key]))
        assert driver.said[key][:both] == answers[key][:both]
        prompt = len(engine.tokenizer.encode(tasks[key]))
        said = len(driver.said[key])
        assert driver.computed[key] + driver.left[key] == prompt + said
    assert not driver.recomputed
    driver.remove_all()


@pytest.mark.parametrize("chunk", [1, 5, 16])
def test_prefill_in_chunks(driver: Driver, answers: dict[str, list[int]], chunk: int) -> None:
    driver.add_task("b")
    assert driver.answer("b", chunk=chunk) == answers["b"]


def test_suspended_for_long_while_others_come_and_go(
    driver: Driver, answers: dict[str, list[int]]
) -> None:
    driver.add_task("a")
    driver.answer("a", 5)
    for key in "bcd":
        driver.add_task(key)
        assert driver.answer(key) == answers[key]
        driver.engine.remove(key)
    assert driver.answer("a") == answers["a"]
    assert not driver.recomputed


def test_a_pinned_prefix_is_computed_once(
    make: MakeEngine,
    answers: dict[str, list[int]],
    drive: type[Driver],
    tasks: dict[str, str],
    fixed: str,
) -> None:
    engine = make()
    driver = drive(engine)
    shared = engine.tokenizer.encode(fixed)
    before = engine.capacity.free_tokens
    prefix = engine.pin_prefix(shared)
    assert prefix.token_ids == tuple(shared)
    pinned = engine.capacity.free_tokens
    whole = driver.whole_blocks(len(shared))
    assert before - pinned == whole
    assert engine.pin_prefix(shared) is prefix
    assert engine.capacity.free_tokens == pinned
    total = 0
    for key, task in tasks.items():
        left = driver.add_task(key, prefix)
        assert left == len(engine.tokenizer.encode(task)) - whole
        total += left
    driver.step(dict.fromkeys(tasks, 100))
    assert driver.computed.total() == total
    assert engine.capacity.free_tokens == pinned - driver.stored(*tasks)
    while len(driver.said["a"]) < len(answers["a"]):
        driver.step(dict.fromkeys(tasks, 1))
    for key in tasks:
        assert driver.said[key] == answers[key]
    driver.remove_all()
    assert engine.capacity.free_tokens == pinned  # kept for whoever comes next
    assert driver.add_task("a", prefix) == len(engine.tokenizer.encode(tasks["a"])) - whole
    assert driver.answer("a") == answers["a"]
    engine.close()


def test_a_prefix_is_prepared_in_parts_while_others_go_on(
    driver: Driver, answers: dict[str, list[int]], tasks: dict[str, str], fixed: str
) -> None:
    engine = driver.engine
    free, shared = engine.capacity.free_tokens, engine.tokenizer.encode(fixed)
    driver.add_task("a")
    left, parts = len(shared) + 1, 0
    while (now := engine.prepare_prefix(shared, 5)) and now < left:
        left, parts = now, parts + 1
        assert free - engine.capacity.free_tokens == (
            driver.whole_blocks(len(shared)) + driver.stored("a")
        )
        driver.answer("a", min(len(driver.said["a"]) + 1, ANSWER))
    assert driver.answer("a") == answers["a"]
    driver.engine.remove("a")
    prefix = engine.pin_prefix(shared)
    assert engine.prepare_prefix(shared, 5) == 0
    driver.add_task("b", prefix)
    assert driver.answer("b") == answers["b"]
    if driver.whole_blocks(len(shared)):  # else it shares nothing
        with pytest.raises(EngineError, match="1 sequences begin with the prefix: remove them"):
            engine.unpin_prefix(shared)
    driver.engine.remove("b")
    engine.unpin_prefix(shared)
    assert engine.capacity.free_tokens == free
    with pytest.raises(EngineError, match="not pinned"):
        driver.add_task("c", prefix)


def test_a_prefix_that_was_unpinned_is_computed_anew(
    driver: Driver, answers: dict[str, list[int]], fixed: str
) -> None:
    engine = driver.engine
    free, shared = engine.capacity.free_tokens, engine.tokenizer.encode(fixed)
    for _ in range(3):
        prefix = engine.pin_prefix(shared)
        driver.add_task("a", prefix)
        assert driver.answer("a") == answers["a"]
        engine.remove("a")
        engine.unpin_prefix(shared)
        assert engine.capacity.free_tokens == free
    engine.unpin_prefix(shared)  # an unknown one is no error


def test_a_prefix_that_is_only_prepared_can_be_given_up(driver: Driver, fixed: str) -> None:
    engine = driver.engine
    free, shared = engine.capacity.free_tokens, engine.tokenizer.encode(fixed)
    engine.prepare_prefix(shared, 7)
    with pytest.raises(EngineError, match="another prefix is being prepared"):
        engine.pin_prefix(shared[:-1])
    engine.unpin_prefix(shared)
    assert engine.capacity.free_tokens == free
    engine.pin_prefix(shared[:-1])
    engine.unpin_prefix(shared[:-1])
    assert engine.capacity.free_tokens == free


def test_an_empty_prefix_is_none(driver: Driver, tasks: dict[str, str]) -> None:
    prefix = driver.engine.pin_prefix([])
    assert driver.add("c", tasks["c"], prefix) == len(driver.engine.tokenizer.encode(tasks["c"]))


def test_outside_words(driver: Driver, fixed: str) -> None:
    driver.add("a", fixed)
    driver.answer("a", 3)
    said = driver.engine.tokenizer
    driver.append("a", " it is True. ")
    words = len(said.encode(" it is True. "))
    again = driver.left["a"] - words - 1
    assert 0 <= again < driver.block_tokens
    driver.answer("a", 12, chunk=2)
    assert driver.computed["a"] == len(said.encode(fixed)) + words + 11 + again
    assert driver.recomputed["a"] == again
    # As if they had been in the prompt.
    prompt = [*said.encode(fixed), *driver.said["a"][:3], *said.encode(" it is True. ")]
    driver.add_ids("b", prompt)
    assert driver.answer("b", 9) == driver.said["a"][3:]


def test_outside_words_in_the_place_of_the_newest_token(driver: Driver, fixed: str) -> None:
    driver.add("a", fixed)
    driver.answer("a", 3)
    driver.append("a", "=> True ", drop=1)
    encode = driver.engine.tokenizer.encode
    again = driver.left["a"] - len(encode("=> True "))
    driver.answer("a", 12, chunk=3)
    assert driver.computed["a"] == len(encode(fixed)) + 2 + len(encode("=> True ")) + 8 + again
    assert driver.recomputed["a"] == again
    driver.add_ids("b", [*encode(fixed), *driver.said["a"][:2], *encode("=> True ")])
    assert driver.answer("b", 9) == driver.said["a"][3:]


def test_a_sequence_goes_on_under_another_name(driver: Driver, fixed: str) -> None:
    encode = driver.engine.tokenizer.encode
    driver.add("a", fixed)
    first = driver.answer("a", 3)
    driver.resume("a", "second", " And now? ")
    again = driver.left["second"] - 1 - len(encode(" And now? "))
    driver.answer("second", 6, chunk=2)
    assert driver.computed["second"] == 1 + len(encode(" And now? ")) + 5 + again
    assert driver.recomputed["second"] == again
    driver.add_ids("a", [*encode(fixed), *first, *encode(" And now? ")])  # the name is free
    assert driver.answer("a", 6) == driver.said["second"]
    driver.engine.remove("second")


def test_an_evicted_sequence_goes_on_too(make: MakeEngine, drive: type[Driver], fixed: str) -> None:
    probe = make()
    prompt = len(probe.tokenizer.encode(fixed))
    probe.close()
    driver = drive(make(kv_tokens=prompt + 30))
    driver.add("a", fixed)
    driver.answer("a", 3)
    driver.add("b", fixed)
    result = driver.step({"b": 512}, evictable=["a"])
    assert result.evicted == ("a",)
    driver.engine.remove("b")
    driver.resume("a", "second", " On.")
    said = driver.answer("second", 3)
    assert driver.recomputed["second"] == prompt + 2
    driver.engine.remove("second")
    driver.add("a", fixed)
    driver.answer("a", 3)
    driver.resume("a", "second", " On.")
    assert driver.answer("second", 3) == said
    driver.engine.close()


@pytest.mark.parametrize(
    ("key", "new_key", "words", "decoding"),
    [
        ("nobody", "new", " on", GREEDY),
        ("a", "b", " on", GREEDY),
        ("a", "new", "", GREEDY),
        ("a", "new", " on", Decoding(-1.0)),
        ("a", "new", " on", Decoding(grammar='start: "a"')),
    ],
)
def test_a_sequence_that_cannot_go_on_is_as_it_was(
    driver: Driver, fixed: str, key: str, new_key: str, words: str, decoding: Decoding
) -> None:
    driver.add("a", fixed)
    driver.add("b", fixed)
    expected = driver.answer("b", 4)
    with pytest.raises(EngineError):
        driver.engine.resume(key, new_key, driver.engine.tokenizer.encode(words), decoding)
    assert driver.answer("a", 4) == expected


def test_removal_frees_everything_at_once(driver: Driver, fixed: str) -> None:
    free = driver.engine.capacity.free_tokens
    driver.add("a", fixed)
    driver.step({"a": 9})
    assert driver.engine.capacity.free_tokens == free - driver.stored("a")
    driver.engine.remove("a")
    driver.engine.remove("a")
    assert driver.engine.capacity.free_tokens == free
    driver.add("a", fixed)  # the key can be used again
    driver.answer("a", 2)


def test_tokens_are_taken_back(driver: Driver, answers: dict[str, list[int]]) -> None:
    driver.add_task("a")
    engine, said = driver.engine, driver.said
    while len(said["a"]) < ANSWER // 2:
        new = driver.step({"a": 512}).tokens.get("a", ())
        for tokens in (-1, max(len(new), 1)):
            with pytest.raises(EngineError, match="taken back"):
                engine.take_back("a", tokens)
        assert engine.take_back("a", 0) == driver.left["a"]
        if len(new) > 1:  # only of an engine that guesses
            driver.take_back("a", len(new) - 1)
            with pytest.raises(EngineError, match="taken back"):
                engine.take_back("a", 1)
    assert driver.answer("a") == answers["a"]
    driver.append("a", " it is True. ")
    with pytest.raises(EngineError, match="taken back"):
        engine.take_back("a", 1)
    with pytest.raises(EngineError, match="'nobody'"):
        engine.take_back("nobody", 0)


def test_words_follow_tokens_that_were_taken_back(driver: Driver, fixed: str) -> None:
    driver.add("a", fixed)
    new: Sequence[int] = ()
    # A model with random weights may never repeat itself, so that no guess is right; the runner
    # without a model does.
    most = 100 if driver.engine.capacity.guesses else 9
    while len(driver.said["a"]) < 9 or (len(new) < 2 and len(driver.said["a"]) < most):
        new = driver.step({"a": 512}).tokens.get("a", ())
    if len(new) > 1:
        driver.take_back("a", len(new) - 1)
    said = list(driver.said["a"])
    driver.append("a", " it is True. ", drop=1)
    words = driver.engine.tokenizer.encode(" it is True. ")
    driver.add_ids("b", [*driver.engine.tokenizer.encode(fixed), *said[:-1], *words])
    assert driver.answer("a", len(said) + 9)[len(said) :] == driver.answer("b", 9)
