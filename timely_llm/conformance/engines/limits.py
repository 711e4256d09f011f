"""The contract for engines: what does not fit, and what is impossible."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from timely_llm.conformance.cases import for_all
from timely_llm.conformance.check import expect, expect_same
from timely_llm.conformance.engines.bench import ENGINE_CHECKS, EngineBench
from timely_llm.conformance.engines.driver import ANSWER, FIXED, PROMPTS, TASKS
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import Decoding, Prefix

LONG = "apple; " * 4000
"""More tokens than a sequence may have."""
pressed = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 9, 100]), min_size=1),
        st.sampled_from(["", "", "", "a", "d"]),
    ),
    max_size=40,
)
check = ENGINE_CHECKS.check


@check
def eviction_and_recovery(bench: EngineBench) -> None:
    """The first evictable sequence is evicted if KV lacks, and goes on with the same tokens."""
    answers = bench.answers
    probe = bench.driver_of(bench.engine)
    for key in "ab":
        prompt = len(probe.engine.tokenizer.encode(PROMPTS[key]))
        probe.kept[key] = prompt + len(answers["a"])
    with bench.engine_with(kv_tokens=probe.stored("a", "b")) as driver:  # for two, not three
        engine = driver.engine
        free = engine.capacity.free_tokens
        for key in "abd":
            driver.add_task(key)
        driver.answer("a", 6)
        driver.answer("b", 6)
        kept = driver.computed["b"]
        result = driver.step({"d": 512}, evictable=["b", "a", "gone", "d"])
        expect_same("keys evicted for d", result.evicted, ("b",))
        driver.expect_free(free - driver.stored("a", "d"))
        driver.answer("d")
        engine.remove("d")
        for key in "ab":
            driver.expect_answer(key, answers[key])
        expect_same("tokens computed again", dict(driver.recomputed), {"b": kept})
        for key in "ab":
            engine.remove(key)
        driver.expect_free(free)


@check
def any_schedule_under_pressure(bench: EngineBench) -> None:
    """With too little KV for all, a sequence gets the same tokens in any schedule."""
    answers = bench.answers

    def serve(schedule: list[tuple[dict[str, int], str]]) -> None:
        with bench.small_driver() as driver:
            engine = driver.engine
            room = engine.capacity.free_tokens
            for key in TASKS:
                driver.add_task(key)
            for entries, removed in schedule:
                driver.step(entries, [key for key in TASKS if key not in entries])
                if removed:  # and asked again from the beginning
                    engine.remove(removed)
                    driver.add_task(removed)
                # Blocks that are begun may be more than were free: the engine has a few more.
                driver.expect_free(max(room - driver.stored(*driver.kept), 0))
            for key, answer in answers.items():
                said = driver.said[key]
                both = min(len(said), len(answer))
                expect_same(f"the answer to {key}", said[:both], answer[:both])
                once = driver.computed[key] - driver.recomputed[key]
                most = len(engine.tokenizer.encode(PROMPTS[key])) + len(said)
                expect(once <= most, f"{once} tokens of {key} are computed once, it has {most}")

    for_all(serve, bench.seed, 25, schedule=pressed)


@check
def what_does_not_fit_fails_alone(bench: EngineBench) -> None:
    """A sequence without room for its KV fails with a reason, and the rest of its step goes on."""
    with bench.engine_with(kv_tokens=48) as driver:
        driver.add("long", "find the apple and " * 40)
        driver.add("short", "tc(30);")
        result = driver.step({"long": 512, "short": 512})
        expect_same("sequences that fail", set(result.failures), {"long"})
        bench.expect_words("the failure", result.failures["long"], "48")
        driver.answer("short", 8)
        driver.engine.remove("long")
        driver.engine.remove("short")
        driver.expect_free(48)


@check
def the_longest_sequence_fails_alone(bench: EngineBench) -> None:
    """A sequence of max_model_len tokens fails with a reason, and the rest of its step goes on."""
    with bench.engine_with(max_model_len=40) as driver:
        free = driver.engine.capacity.free_tokens
        driver.add("a", "tc(30);")
        driver.add("b", "mf(50);tc(30);tp();")
        driver.answer("a", 40 - driver.left["a"])
        result = driver.step({"a": 1, "b": 40})
        expect_same("sequences that fail", list(result.failures), ["a"])
        bench.expect_words("the failure", result.failures["a"], "40")
        expect_same("sequences with a new token", list(result.tokens), ["b"])
        driver.remove_all()
        driver.expect_free(free)


@check
def impossible_plans(bench: EngineBench) -> None:
    """A plan that is empty, or names a sequence that is unknown or there twice, is refused."""
    with bench.driver() as driver:
        driver.add("a", PROMPTS["a"])
        for entries, reason in (
            ((), "empty"),
            ((("a", 1), ("who", 1)), "'who'"),
            ((("a", 1), ("a", 1)), "once"),
            ((("a", 0),), "at least 1"),
        ):
            with bench.refused(f"the plan {entries}", reason):
                driver.engine.submit(StepPlan(entries))
        driver.answer("a", 3)


@check
def a_step_beyond_the_capacity(bench: EngineBench) -> None:
    """A plan with more rows or tokens than the capacity is refused."""
    with bench.engine_with(max_rows=2, max_step_tokens=12) as driver:
        for key in "abc":
            driver.add(key, FIXED)
        with bench.refused("a plan of 3 rows", "at most 2"):
            driver.step(dict.fromkeys("abc", 1))
        with bench.refused("a plan of 13 tokens", "at most 12"):
            driver.step({"a": 10, "b": 3})
        driver.step({"a": 10, "b": 2})


@check
def impossible_sequences(bench: EngineBench) -> None:
    """A sequence with a taken key, a wrong prefix or too many tokens is refused."""
    with bench.engine_with() as driver:
        engine, encode = driver.engine, driver.engine.tokenizer.encode
        prefix = engine.pin_prefix(encode("mf(50);"))
        driver.add("a", FIXED)
        with bench.refused("a key that is taken", "already"):
            engine.add("a", encode(FIXED))
        with bench.refused("a prompt that does not begin with its prefix", "begin"):
            engine.add("x", encode("tc(30);mf(50);"), prefix)
        with bench.refused("a prompt that is its prefix", "more than"):
            engine.add("x", encode("mf(50);"), prefix)
        with bench.refused("an empty prompt", "more than"):
            engine.add("x", [])
        with bench.refused("a prefix of another engine", "not pinned"):
            engine.add("x", encode("tc(30);mf(50);"), Prefix(tuple(encode("tc(30);"))))
        with bench.refused("a prompt that is too long", "max_model_len"):
            engine.add("x", encode(LONG))
        with bench.refused("words that are too long", "max_model_len"):
            engine.append("a", encode(LONG))
        with bench.refused("a prefix that is too long", "max_model_len"):
            engine.pin_prefix(encode(LONG))
        with bench.refused("words for an unknown key", "'x'"):
            engine.append("x", encode("apple"))
        driver.answer("a", 3)


@check
def what_cannot_be_replaced(bench: EngineBench) -> None:
    """Only a newest token that was generated and not computed yet can be replaced."""
    with bench.driver() as driver:
        driver.add("a", FIXED)
        engine, words = driver.engine, driver.engine.tokenizer.encode("=> True ")
        with bench.refused("words in the place of the prompt's last token", "generated"):
            engine.append("a", words, drop=1)
        driver.answer("a", 2)
        with bench.refused("words in the place of two tokens", "2 tokens"):
            engine.append("a", words, drop=2)
        with bench.refused("no words in the place of a token", "words"):
            engine.append("a", [], drop=1)  # nothing would be left to go on from
        driver.append("a", "=> True ", drop=1)
        with bench.refused("words in the place of tool output", "generated"):
            engine.append("a", words, drop=1)
        driver.answer("a", 4)


@check
def replaced_after_an_eviction(bench: EngineBench) -> None:
    """The newest token can be replaced also after its sequence was evicted."""
    decoding = Decoding(1.0, seed=4)
    with bench.engine_with(kv_tokens=64) as driver:
        encode = driver.engine.tokenizer.encode
        driver.add("a", "mf(50);", decoding=decoding)
        driver.answer("a", 3)
        driver.add_ids("b", [*encode("find the apple and ") * 15][:60])
        expect_same("keys evicted", driver.step({"b": 60}, evictable=["a"]).evicted, ("a",))
        driver.engine.remove("b")
        driver.append("a", "tc(30);", drop=1)
        prompt = [*encode("mf(50);"), *driver.said["a"][:2]]
        driver.add_ids("c", prompt + encode("tc(30);"), decoding=decoding)
        after = driver.answer("a", 9)[3:]
        driver.expect_answer("c", after, 6)


@check
def impossible_temperatures(bench: EngineBench) -> None:
    """A temperature that is negative, infinite or no number is refused."""
    for temperature in (-1.0, math.nan, math.inf):
        with bench.driver() as driver:
            with bench.refused(f"the temperature {temperature}", "temperature"):
                driver.add("a", "mf(50);", decoding=Decoding(temperature))
            driver.add("a", "mf(50);")


@check
def a_pinned_prefix(bench: EngineBench) -> None:
    """A pinned prefix is computed once and shared by all sequences that begin with it."""
    answers = bench.answers
    with bench.engine_with() as driver:
        engine = driver.engine
        encode = engine.tokenizer.encode
        shared = encode(FIXED)
        before = engine.capacity.free_tokens
        prefix = engine.pin_prefix(shared)
        expect_same("token ids of the prefix", prefix.token_ids, tuple(shared))
        pinned = engine.capacity.free_tokens
        whole = driver.whole_blocks(len(shared))
        expect_same("tokens of KV that the prefix takes", before - pinned, whole)
        expect(engine.pin_prefix(shared) is prefix, "pinned again, the prefix is another object")
        driver.expect_free(pinned)
        total = 0
        for key, task in PROMPTS.items():
            left = driver.add_task(key, prefix)
            expect_same(f"tokens of {key} left to compute", left, len(encode(task)) - whole)
            total += left
        driver.step(dict.fromkeys(PROMPTS, 100))
        expect_same("tokens computed of all prompts", driver.computed.total(), total)
        driver.expect_free(pinned - driver.stored(*PROMPTS))
        while len(driver.said["a"]) < len(answers["a"]):
            driver.step(dict.fromkeys(PROMPTS, 1))
        for key in PROMPTS:
            expect_same(f"the answer to {key}", driver.said[key], answers[key])
        driver.remove_all()
        driver.expect_free(pinned)
        left = driver.add_task("a", prefix)
        expect_same("tokens of a left to compute", left, len(encode(PROMPTS["a"])) - whole)
        driver.expect_answer("a", answers["a"])


@check
def a_prefix_in_parts(bench: EngineBench) -> None:
    """A prefix is prepared in parts between the steps of others, and then shared like any other."""
    answers = bench.answers
    with bench.driver() as driver:
        engine = driver.engine
        free, shared = engine.capacity.free_tokens, engine.tokenizer.encode(FIXED)
        driver.add_task("a")
        left = len(shared) + 1
        while (now := engine.prepare_prefix(shared, 5)) and now < left:
            left = now
            taken = driver.whole_blocks(len(shared)) + driver.stored("a")
            expect_same("KV taken meanwhile", free - engine.capacity.free_tokens, taken)
            driver.answer("a", min(len(driver.said["a"]) + 1, ANSWER))
        expect_same("tokens of the prefix left to prepare", now, 0)
        driver.expect_answer("a", answers["a"])
        driver.engine.remove("a")
        prefix = engine.pin_prefix(shared)
        expect_same("tokens left to prepare once pinned", engine.prepare_prefix(shared, 5), 0)
        driver.add_task("b", prefix)
        driver.expect_answer("b", answers["b"])
        if driver.whole_blocks(len(shared)):  # else it shares nothing
            words = "1 sequences begin with the prefix: remove them"
            with bench.refused("unpinning a prefix that a sequence begins with", words):
                engine.unpin_prefix(shared)
        driver.engine.remove("b")
        engine.unpin_prefix(shared)
        driver.expect_free(free)
        with bench.refused("a sequence that begins with an unpinned prefix", "not pinned"):
            driver.add_task("c", prefix)


@check
def a_prefix_pinned_anew(bench: EngineBench) -> None:
    """An unpinned prefix frees its KV, and pinned again it is computed anew."""
    answers = bench.answers
    with bench.driver() as driver:
        engine = driver.engine
        free, shared = engine.capacity.free_tokens, engine.tokenizer.encode(FIXED)
        for _ in range(3):
            prefix = engine.pin_prefix(shared)
            driver.add_task("a", prefix)
            driver.expect_answer("a", answers["a"])
            engine.remove("a")
            engine.unpin_prefix(shared)
            driver.expect_free(free)
        engine.unpin_prefix(shared)  # an unknown one is no error


@check
def a_prepared_prefix_given_up(bench: EngineBench) -> None:
    """One prefix is prepared at a time, and its KV is free when it is given up."""
    with bench.driver() as driver:
        engine = driver.engine
        free, shared = engine.capacity.free_tokens, engine.tokenizer.encode(FIXED)
        engine.prepare_prefix(shared, 7)
        with bench.refused("a second prefix", "another prefix is being prepared"):
            engine.pin_prefix(shared[:-1])
        engine.unpin_prefix(shared)
        driver.expect_free(free)
        engine.pin_prefix(shared[:-1])
        engine.unpin_prefix(shared[:-1])
        driver.expect_free(free)


@check
def an_empty_prefix(bench: EngineBench) -> None:
    """An empty prefix can be pinned and shares nothing."""
    with bench.driver() as driver:
        prefix = driver.engine.pin_prefix([])
        left = driver.add("c", PROMPTS["c"], prefix)
        prompt = len(driver.engine.tokenizer.encode(PROMPTS["c"]))
        expect_same("tokens of c left to compute", left, prompt)


@check
def an_eviction_leaves_the_prefix(bench: EngineBench) -> None:
    """An eviction takes a sequence's own KV and leaves that of its prefix."""
    with bench.engine_with(kv_tokens=256) as driver:
        engine = driver.engine
        shared = engine.tokenizer.encode(FIXED)
        prefix = engine.pin_prefix(shared)
        room = engine.capacity.free_tokens
        own = driver.add("a", FIXED + "tc(30);", prefix)
        expected = list(driver.answer("a", 9))
        engine.remove("a")
        driver.add("a", FIXED + "tc(30);", prefix)
        driver.answer("a", 4)
        driver.add_ids("big", (shared * (1 + room // len(shared)))[: room - 2])
        evicted = driver.step({"big": room}, evictable=["a"]).evicted
        expect_same("keys evicted for big", evicted, ("a",))
        engine.remove("big")
        driver.expect_answer("a", expected, 9)
        # What of the prefix fills no whole block is computed again for each that begins with it.
        again = own + 3 + len(shared) - driver.whole_blocks(len(shared))
        expect_same("tokens computed again", dict(driver.recomputed), {"a": again})


@check
def no_room_for_a_prefix(bench: EngineBench) -> None:
    """A prefix that does not fit is refused and takes nothing."""
    with bench.engine_with(kv_tokens=16) as driver:
        with bench.refused("a prefix larger than the KV", "kv_tokens"):
            driver.engine.pin_prefix(driver.engine.tokenizer.encode("find the apple and " * 8))
        driver.expect_free(16)
