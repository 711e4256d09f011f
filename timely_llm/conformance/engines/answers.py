"""The contract for engines: tokens do not depend on when and beside what they are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isclose

from hypothesis import strategies as st

from timely_llm.conformance.cases import for_all
from timely_llm.conformance.check import NotApplicable, expect, expect_same
from timely_llm.conformance.engines.bench import ENGINE_CHECKS, EngineBench
from timely_llm.conformance.engines.driver import ANSWER, FIXED, PROMPTS, TASKS, InFlightDriver
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import GREEDY, Decoding

TOOL_OUTPUT = " it is True. "
CHUNKS = (1, 5, 16)
schedules = st.lists(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 2, 7, 30]), min_size=1),
    max_size=60,
)
check = ENGINE_CHECKS.check


@check
def any_schedule(bench: EngineBench) -> None:
    """A sequence gets the same tokens in any schedule, and none is computed twice."""
    answers = bench.answers

    def serve(schedule: list[dict[str, int]], evictions: bool) -> None:
        with bench.driver() as driver:
            for key in TASKS:
                driver.add_task(key)
            for entries in schedule:
                resting = [key for key in TASKS if key not in entries]
                driver.step(entries, resting if evictions else ())  # there is room for all
            for key, prompt in PROMPTS.items():
                said = driver.said[key]
                both = min(len(said), len(answers[key]))
                expect_same(f"the answer to {key}", said[:both], answers[key][:both])
                expect_same(
                    f"tokens of {key} computed and left to compute",
                    driver.computed[key] + driver.left[key],
                    len(driver.engine.tokenizer.encode(prompt)) + len(said),
                )
            expect_same("tokens computed again", dict(driver.recomputed), {})

    for_all(serve, bench.seed, 25, schedule=schedules, evictions=st.booleans())


@check
def by_another_engine(bench: EngineBench) -> None:
    """What one engine has begun, another one goes on with: prompt, tokens so far, grammar."""
    answers = bench.answers
    for begun in (1, ANSWER // 2):
        with bench.driver() as driver:
            for key, prompt in PROMPTS.items():
                said, decoding = answers[key][:begun], driver.decodings[key]
                if decoding.grammar is not None:
                    decoding = replace(decoding, read=tuple(said))
                token_ids = driver.engine.tokenizer.encode(prompt) + said
                driver.add_ids(key, token_ids, decoding=decoding)
                driver.expect_answer(key, answers[key][begun:], ANSWER - begun)


@check
def prefill_in_chunks(bench: EngineBench) -> None:
    """A prompt that is computed in chunks gets the same answer."""
    answers = bench.answers
    for chunk in CHUNKS:
        with bench.driver() as driver:
            driver.add_task("b")
            driver.expect_answer("b", answers["b"], chunk=chunk)


@check
def suspended_for_long(bench: EngineBench) -> None:
    """A suspended sequence keeps its KV while others come and go."""
    answers = bench.answers
    with bench.driver() as driver:
        driver.add_task("a")
        driver.answer("a", 5)
        for key in "bcd":
            driver.add_task(key)
            driver.expect_answer(key, answers[key])
            driver.engine.remove(key)
        driver.expect_answer("a", answers["a"])
        expect_same("tokens computed again", dict(driver.recomputed), {})


@check
def tool_output(bench: EngineBench) -> None:
    """Appended words are computed once, and the sequence goes on as if they were its prompt's."""
    with bench.driver() as driver:
        encode = driver.engine.tokenizer.encode
        driver.add("a", FIXED)
        driver.answer("a", 3)
        driver.append("a", TOOL_OUTPUT)
        words = len(encode(TOOL_OUTPUT))
        again = driver.left["a"] - words - 1
        expect(
            0 <= again < driver.block_tokens,
            f"append leaves {driver.left['a']} tokens to compute, {words} of them new",
        )
        driver.answer("a", 12, chunk=2)
        total = len(encode(FIXED)) + words + 11 + again
        expect_same("tokens computed of a", driver.computed["a"], total)
        expect_same("tokens of a computed again", driver.recomputed["a"], again)
        driver.add_ids("b", [*encode(FIXED), *driver.said["a"][:3], *encode(TOOL_OUTPUT)])
        driver.expect_answer("b", driver.said["a"][3:], 9)


@check
def words_in_the_place_of_a_token(bench: EngineBench) -> None:
    """Appended words can take the place of the newest token."""
    with bench.driver() as driver:
        encode = driver.engine.tokenizer.encode
        driver.add("a", FIXED)
        driver.answer("a", 3)
        driver.append("a", "=> True ", drop=1)
        again = driver.left["a"] - len(encode("=> True "))
        driver.answer("a", 12, chunk=3)
        total = len(encode(FIXED)) + 2 + len(encode("=> True ")) + 8 + again
        expect_same("tokens computed of a", driver.computed["a"], total)
        expect_same("tokens of a computed again", driver.recomputed["a"], again)
        driver.add_ids("b", [*encode(FIXED), *driver.said["a"][:2], *encode("=> True ")])
        driver.expect_answer("b", driver.said["a"][3:], 9)


@check
def another_name(bench: EngineBench) -> None:
    """A sequence goes on under another name with its KV, and its old name is free."""
    with bench.driver() as driver:
        encode = driver.engine.tokenizer.encode
        driver.add("a", FIXED)
        first = driver.answer("a", 3)
        driver.resume("a", "second", " And now? ")
        again = driver.left["second"] - 1 - len(encode(" And now? "))
        driver.answer("second", 6, chunk=2)
        total = 1 + len(encode(" And now? ")) + 5 + again
        expect_same("tokens computed under the new name", driver.computed["second"], total)
        expect_same("tokens computed again", driver.recomputed["second"], again)
        driver.add_ids("a", [*encode(FIXED), *first, *encode(" And now? ")])
        driver.expect_answer("a", driver.said["second"], 6)
        driver.engine.remove("second")


@check
def another_name_after_an_eviction(bench: EngineBench) -> None:
    """An evicted sequence goes on under another name, and what was evicted is computed again."""
    prompt = len(bench.engine.tokenizer.encode(FIXED))
    with bench.engine_with(kv_tokens=prompt + 30) as driver:
        driver.add("a", FIXED)
        driver.answer("a", 3)
        driver.add("b", FIXED)
        evicted = driver.step({"b": 512}, evictable=["a"]).evicted
        expect_same("keys evicted for b", evicted, ("a",))
        driver.engine.remove("b")
        driver.resume("a", "second", " On.")
        said = driver.answer("second", 3)
        expect_same("tokens computed again", driver.recomputed["second"], prompt + 2)
        driver.engine.remove("second")
        driver.add("a", FIXED)
        driver.answer("a", 3)
        driver.resume("a", "second", " On.")
        driver.expect_answer("second", said, 3)


@check
def another_end(bench: EngineBench) -> None:
    """A sequence goes on from its first tokens as any prompt does, and frees the KV of the rest."""
    answers = bench.answers

    def serve(moves: list[tuple[str, bool]]) -> None:
        with bench.driver() as driver:
            encode = driver.engine.tokenizer.encode
            free, before = driver.engine.capacity.free_tokens, "first"
            driver.add(before, PROMPTS["a"])
            for turn, (task, computed) in enumerate(moves):
                if computed:  # else it is cut before anything of it is
                    driver.answer(before, 4, chunk=9)
                key, prompt, keep = f"{task}{turn}", encode(PROMPTS[task]), len(encode(FIXED)) - 1
                driver.resume_ids(before, key, prompt[keep:], keep, driver.decodings[task])
                driver.expect_free(free - driver.stored(key))
                before = key
            driver.expect_answer(before, answers[moves[-1][0]])
            driver.engine.remove(before)
            driver.expect_free(free)

    moves = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=4)
    for_all(serve, bench.seed, 6, moves=moves)


@check
def another_end_after_an_eviction(bench: EngineBench) -> None:
    """An evicted sequence goes on from its first tokens; the KV of the others is forgotten."""
    answers, encode = bench.answers, bench.engine.tokenizer.encode
    longest, keep = max(len(encode(prompt)) for prompt in PROMPTS.values()), len(encode(FIXED)) - 1
    with bench.engine_with(kv_tokens=longest + 40) as driver:
        for key in ("b", "d"):
            free = driver.engine.capacity.free_tokens
            driver.add(key, PROMPTS[key], decoding=driver.decodings[key])
            driver.answer(key, 4)
            driver.add("a", PROMPTS["a"])
            evicted = driver.step({"a": 512}, evictable=[key]).evicted
            expect_same(f"keys evicted for {key}", evicted, (key,))
            driver.engine.remove("a")
            words = encode(PROMPTS["c"])[keep:]
            driver.resume_ids(key, "c", words, keep, driver.decodings["c"])
            driver.expect_answer("c", answers["c"], chunk=7)
            driver.add("a", PROMPTS["a"])
            driver.step({"a": 512}, evictable=["c"])
            driver.engine.remove("a")
            driver.expect_answer("c", answers["c"])
            driver.engine.remove("c")
            driver.expect_free(free)


@check
def a_refused_end(bench: EngineBench) -> None:
    """A sequence keeps no tokens that it does not have, and none fewer than it shares."""
    answers = bench.answers
    with bench.driver() as driver:
        engine = driver.engine
        prompt, words = engine.tokenizer.encode(PROMPTS["c"]), engine.tokenizer.encode(" on")
        prefix = engine.pin_prefix(prompt[:-2])
        driver.add_ids("a", prompt, prefix, driver.decodings["c"])
        refused = [-1, len(prompt) + 1]
        if shared := driver.whole_blocks(len(prompt) - 2):
            refused.append(shared - 1)
        for keep in refused:
            with bench.refused(f"keeping {keep} of {len(prompt)} tokens", "can keep"):
                engine.resume("a", "new", words, keep=keep)
        driver.expect_answer("a", answers["c"])
        engine.remove("a")
        engine.unpin_prefix(prefix.token_ids)


@check
def a_refused_name(bench: EngineBench) -> None:
    """A sequence that cannot go on under another name stays as it was."""
    refusals = (
        ("nobody", "new", " on", GREEDY),
        ("a", "b", " on", GREEDY),
        ("a", "new", "", GREEDY),
        ("a", "new", " on", Decoding(-1.0)),
    )
    for key, new_key, words, decoding in refusals:
        with bench.driver() as driver:
            engine = driver.engine
            driver.add("a", FIXED)
            driver.add("b", FIXED)
            expected = driver.answer("b", 4)
            with bench.refused(f"resume({key!r}, {new_key!r}, {words!r}, {decoding})"):
                engine.resume(key, new_key, engine.tokenizer.encode(words), decoding)
            driver.expect_answer("a", expected, 4)


@check
def removal(bench: EngineBench) -> None:
    """A removed sequence frees all its KV at once, and its key can be used again."""
    with bench.driver() as driver:
        free = driver.engine.capacity.free_tokens
        driver.add("a", FIXED)
        driver.step({"a": 9})
        driver.expect_free(free - driver.stored("a"))
        driver.engine.remove("a")
        driver.engine.remove("a")
        driver.expect_free(free)
        driver.add("a", FIXED)
        driver.answer("a", 2)


@check
def tokens_taken_back(bench: EngineBench) -> None:
    """Speculative tokens of the last step can be taken back, and no other token."""
    answers = bench.answers
    with bench.driver() as driver:
        driver.add_task("a")
        engine, said = driver.engine, driver.said
        while len(said["a"]) < ANSWER // 2:
            new = driver.step({"a": 512}).tokens.get("a", ())
            for tokens in (-1, max(len(new), 1)):
                with bench.refused(f"take_back of {tokens} tokens", "taken back"):
                    engine.take_back("a", tokens)
            left = engine.take_back("a", 0).to_compute
            expect_same("tokens that take_back of none leaves to compute", left, driver.left["a"])
            if len(new) > 1:  # only of speculative decoding
                driver.take_back("a", len(new) - 1)
                with bench.refused("take_back once more", "taken back"):
                    engine.take_back("a", 1)
        driver.expect_answer("a", answers["a"])
        driver.append("a", TOOL_OUTPUT)
        with bench.refused("take_back of tool output", "taken back"):
            engine.take_back("a", 1)
        with bench.refused("take_back of an unknown key", "'nobody'"):
            engine.take_back("nobody", 0)


@check
def words_after_tokens_taken_back(bench: EngineBench) -> None:
    """Appended words follow what is left after tokens were taken back."""
    with bench.driver() as driver:
        encode = driver.engine.tokenizer.encode
        driver.add("a", FIXED)
        new: Sequence[int] = ()
        # A model with random weights may never repeat itself: no speculative token is right then.
        most = 100 if driver.engine.capacity.speculative_tokens else 9
        while len(driver.said["a"]) < 9 or (len(new) < 2 and len(driver.said["a"]) < most):
            new = driver.step({"a": 512}).tokens.get("a", ())
        if len(new) > 1:
            driver.take_back("a", len(new) - 1)
        said = list(driver.said["a"])
        driver.append("a", TOOL_OUTPUT, drop=1)
        driver.add_ids("b", [*encode(FIXED), *said[:-1], *encode(TOOL_OUTPUT)])
        after = driver.answer("a", len(said) + 9)[len(said) :]
        driver.expect_answer("b", after, 9)


@check
def too_many_steps(bench: EngineBench) -> None:
    """No more than `in_flight` steps are taken, and they are collected in order."""
    with bench.driver() as driver:
        engine = driver.engine
        driver.add("a", FIXED)
        with bench.refused("collect without a step", "no step to collect"):
            engine.collect()
        for _ in range(engine.in_flight):
            engine.submit(StepPlan((("a", 5),)))
        with bench.refused(f"step {engine.in_flight + 1}", "collect the submitted step"):
            engine.submit(StepPlan((("a", 5),)))
        for _ in range(engine.in_flight):
            expect_same("tokens computed", dict(engine.collect().computed), {"a": 5})
        with bench.refused("collect without a step", "no step to collect"):
            engine.collect()


@check
def any_schedule_in_flight(bench: EngineBench) -> None:
    """With several steps in flight the tokens are the same, and none is computed twice."""
    bench.need_in_flight()
    answers = bench.answers

    def serve(schedule: list[dict[str, int]]) -> None:
        with bench.in_flight_driver() as in_flight:
            for key in TASKS:
                in_flight.add(key)
            for entries in schedule:
                in_flight.step(entries, tuple(key for key in TASKS if key not in entries))
            in_flight.collect_all()
            said = in_flight.driver.said
            for key, prompt in PROMPTS.items():
                both = min(len(said[key]), len(answers[key]))
                expect_same(f"the answer to {key}", said[key][:both], answers[key][:both])
                expect_same(
                    f"tokens of {key} computed and left to compute",
                    in_flight.computed[key] + in_flight.can_compute(key),
                    len(in_flight.engine.tokenizer.encode(prompt)) + len(said[key]),
                )

    for_all(serve, bench.seed, 40, schedule=schedules)


@check
def a_token_still_to_come(bench: EngineBench) -> None:
    """A sequence that waits for a token takes part only if the engine has `async_scheduling`."""
    with bench.in_flight_driver() as in_flight:
        engine = in_flight.engine
        in_flight.add("a")
        left = in_flight.can_compute("a")
        engine.submit(StepPlan((("a", left),)))
        again = StepPlan((("a", 1),))
        if engine.async_scheduling:
            engine.submit(again)
            expect_same("tokens computed first", dict(engine.collect().computed), {"a": left})
            expect_same("tokens computed next", dict(engine.collect().computed), {"a": 1})
        else:
            with bench.refused("a sequence that waits for a token", "waits for a step in flight"):
                engine.submit(again)
            engine.collect()


@check
def invalidated_in_flight(bench: EngineBench) -> None:
    """A sequence that is changed or removed gets nothing of steps in flight."""
    bench.need_in_flight()
    answers = bench.answers
    for way in ("take_back", "append", "resume", "remove"):
        with bench.in_flight_driver() as in_flight:
            _change(in_flight, way, answers)


def _change(in_flight: InFlightDriver, way: str, answers: dict[str, list[int]]) -> None:
    engine, driver = in_flight.engine, in_flight.driver
    for key in "ac":
        in_flight.add(key)
    while len(driver.said["a"]) < 3:
        in_flight.step({"a": 512, "c": 512})
    in_flight.collect_all()
    said = len(driver.said["a"])
    engine.submit(StepPlan((("a", 1), ("c", 1))))
    words = engine.tokenizer.encode(" Yes.")
    left = 0
    if way == "take_back":
        left = engine.take_back("a", 0).to_compute
    elif way == "append":
        left = engine.append("a", words).to_compute
    elif way == "resume":
        left = engine.resume("a", "b", words).to_compute
    else:
        engine.remove("a")
    result = engine.collect()
    expect_same(f"tokens computed after {way}", dict(result.computed), {"c": 1})
    tokens = {key: list(new) for key, new in result.tokens.items()}
    expected = {"c": [answers["c"][len(driver.said["c"])]]}
    expect_same(f"new tokens after {way}", tokens, expected)
    if way == "remove":
        return
    key = "b" if way == "resume" else "a"
    least = 1 + (0 if way == "take_back" else len(words))
    expect(left >= least, f"{way} leaves {left} tokens to compute, there are {least}")
    engine.submit(StepPlan(((key, left),)))
    again = engine.collect()
    expect_same(f"tokens computed next after {way}", dict(again.computed), {key: left})
    if way == "take_back":
        expect_same("the next token", list(again.tokens["a"]), answers["a"][said : said + 1])
    engine.remove("b")


@check
def no_eviction_in_flight(bench: EngineBench) -> None:
    """A sequence that takes part in a step in flight is not evicted."""
    bench.need_in_flight()
    with bench.engine_with(max_rows=4, kv_tokens=256) as driver:
        engine, in_flight = driver.engine, InFlightDriver(driver)
        in_flight.add("a")
        in_flight.step({"a": in_flight.can_compute("a") - 1})
        driver.add_ids("x", [5] * 250)
        engine.submit(StepPlan((("x", 250),), ("a",)))
        first, second = engine.collect(), engine.collect()
        expect("a" not in first.evicted + second.evicted, "a is evicted while it is in flight")
        expect_same("sequences that fail", set(second.failures), {"x"})
        bench.expect_words("the failure", second.failures["x"], "no room")


@check
def all_take_turns(bench: EngineBench) -> None:
    """Sequences that take turns with several steps in flight get their answers."""
    bench.need_in_flight()
    answers = bench.answers
    with bench.in_flight_driver() as in_flight:
        for key in answers:
            in_flight.add(key)
        said = in_flight.driver.said
        while any(len(said[key]) < ANSWER for key in said):
            for keys in ("ab", "cd"):
                in_flight.step(dict.fromkeys(keys, 512))
        expect_same("the answers", {key: said[key][:ANSWER] for key in said}, answers)
        in_flight.collect_all()


@check
def log_probabilities(bench: EngineBench) -> None:
    """Sequences that ask for it get a log-probability with each token, others none."""
    answers = bench.answers
    if not bench.gives_logprobs:
        raise NotApplicable("the engine gives no log-probabilities")
    alone: dict[str, list[float]] = {}
    for keys in (*TASKS, "abcd"):
        with bench.driver() as driver:
            found: dict[str, list[float]] = {key: [] for key in keys}
            for key in keys:
                decoding = replace(bench.decodings[key], logprobs=key != "c")
                driver.add(key, PROMPTS[key], decoding=decoding)
            while any(len(driver.said[key]) < ANSWER for key in keys):
                result = driver.step({key: max(driver.left[key], 1) for key in keys})
                asking = result.tokens.keys() - {"c"}
                expect_same("keys with log-probabilities", set(result.logprobs), asking)
                for key, of in result.logprobs.items():
                    expect_same(f"log-probabilities of {key}", len(of), len(result.tokens[key]))
                    expect(all(-inf < one <= 0.0 for one in of), f"{key} has {of}")
                    found[key] += of
            for key in keys:
                expect_same(f"the answer to {key}", driver.said[key][:ANSWER], answers[key])
                both = zip(found[key], alone.setdefault(key, found[key]), strict=False)
                expect(all(isclose(*two, abs_tol=0.01) for two in both), f"{key} has others alone")
