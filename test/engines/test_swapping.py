"""Evicted KV that goes to host memory and comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.engines.letters_child import babble
from test.examples import examples
from timely_llm.conformance.check import Check, NotApplicable
from timely_llm.conformance.engines import ENGINE_CHECKS, EngineBench
from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import EngineError
from timely_llm.core.step import StepPlan, StepResult
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import PROFILES, Profile, SimulatedEngine
from timely_llm.engines.swapping import SwappingEngine

STEPWISE = Profile("stepwise", "made up", 1.0, 0.1, 0.01, swap_token_s=0.001)


def script(key: str, prompt: str) -> str:
    return key * 60


def step(engine: SimulatedEngine, key: str, tokens: int, *evictable: str) -> StepResult:
    engine.submit(StepPlan(((key, tokens),), evictable))
    return engine.collect()


def swapping(kv_tokens: int = 60) -> SwappingEngine:
    limits = EngineLimits(kv_tokens=kv_tokens)
    engine = SwappingEngine(STEPWISE, script, VirtualClock(), limits)
    for key in "ab":
        engine.add(key, engine.tokenizer.ids("x" * 40))
    return engine


@pytest.mark.parametrize("check", [*ENGINE_CHECKS], ids=lambda check: check.name)
@pytest.mark.parametrize(("in_flight", "ahead"), [(1, False), (3, True)])
def test_it_keeps_the_contract(check: Check[EngineBench], in_flight: int, ahead: bool) -> None:
    def make(limits: EngineLimits) -> SwappingEngine:
        return SwappingEngine(STEPWISE, babble, VirtualClock(), limits, in_flight, ahead)

    try:
        check(EngineBench(make, our_words=True))
    except NotApplicable:
        assert in_flight == 1


def test_an_evicted_sequence_is_loaded_and_not_computed_again() -> None:
    engine = swapping()
    step(engine, "a", 40)
    out = step(engine, "b", 40, "a")
    assert (out.evicted, out.loaded) == (("a",), {})
    assert out.duration_s == pytest.approx(1.0 + 0.4 + 0.04), "40 tokens computed, 40 copied"
    assert out.transfer_s == pytest.approx(0.04)
    assert out.progress["a"].to_compute == 41, "its memory is needed again"
    back = step(engine, "a", 41, "b")
    assert (dict(back.loaded), dict(back.computed), dict(back.recomputed)) == (
        {"a": 40}, {"a": 1}, {},
    )  # fmt: skip
    assert back.duration_s == pytest.approx(1.0 + 0.1 + 0.08), "40 copied, 40 loaded"
    assert back.transfer_s == pytest.approx(0.08)
    assert step(engine, "a", 1).transfer_s == 0.0
    assert engine.capacity.free_tokens == 60 - 42


def test_the_host_keeps_its_copy_and_takes_only_what_is_new() -> None:
    engine = swapping()
    step(engine, "a", 40)
    step(engine, "b", 40, "a")
    step(engine, "a", 41, "b")
    again = step(engine, "b", 41, "a")
    assert again.duration_s == pytest.approx(1.0 + 0.1 + 0.001 + 0.04)


@pytest.mark.parametrize(
    ("kv_tokens", "loads", "computes"), [(60, 0, 30), (75, 5, 30), (130, 40, 1)]
)
def test_an_entry_for_a_part_of_a_sequence_loads_what_fits_beside_it(
    kv_tokens: int, loads: int, computes: int
) -> None:
    engine = swapping(kv_tokens)
    step(engine, "a", 40)
    engine.add("c", engine.tokenizer.ids("x" * (kv_tokens - 40)))
    step(engine, "c", kv_tokens - 40)
    step(engine, "b", 40, "a")
    engine.remove("c")
    part = step(engine, "a", 30, "b")
    assert (part.loaded.get("a", 0), part.computed["a"]) == (loads, computes)
    if computes > 1:
        rest = step(engine, "a", 100, "b")
        assert (rest.loaded["a"], rest.computed["a"]) == (40 - loads - computes, 1)


def test_a_sequence_that_ends_or_gets_another_key_leaves_nothing_or_takes_its_copy() -> None:
    engine = swapping()
    step(engine, "a", 40)
    step(engine, "b", 40, "a")
    engine.resume("a", "c", engine.tokenizer.ids("yes"))
    assert dict(step(engine, "c", 44, "b").loaded) == {"c": 40}
    engine.remove("c")
    engine.add("c", engine.tokenizer.ids("x" * 40))
    assert dict(step(engine, "c", 40).loaded) == {}


def test_a_profile_without_times_of_transfers_is_refused() -> None:
    profile = PROFILES["rtx4060ti-chatglm2-6b"]
    with pytest.raises(EngineError, match="rtx4060ti-chatglm2-6b does not say how long KV takes"):
        SwappingEngine(profile, script)


def test_the_context_of_the_paper_takes_what_the_paper_says() -> None:
    profile = step_time_profile("rtx4090-llama3-8b")
    assert profile.swap_token_s * 1300 == pytest.approx(0.0095, rel=0.001)
    assert profile.prefill_token_s * 1300 == pytest.approx(0.13331, rel=0.1)


moves = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60)), min_size=1, max_size=40)


@examples(100)
@given(moves, st.integers(45, 110))
def test_swap_changes_no_word_and_computes_whole_sequences_once(
    wanted: list[tuple[str, int]], kv_tokens: int
) -> None:
    said: list[dict[str, list[int]]] = []
    for kind in (SimulatedEngine, SwappingEngine):
        engine = kind(STEPWISE, script, VirtualClock(), EngineLimits(kv_tokens=kv_tokens))
        to_compute = {key: engine.add(key, engine.tokenizer.ids("x" * 20)) for key in "abc"}
        left = {key: made.to_compute for key, made in to_compute.items()}
        told: dict[str, list[int]] = {key: [] for key in "abc"}
        for key, tokens in wanted:
            others = tuple(other for other in "abc" if other != key)
            lacks = left[key]
            result = step(engine, key, min(tokens, lacks), *others)
            for one, made in result.progress.items():
                left[one] = made.to_compute
            told[key] += result.tokens.get(key, ())
            if kind is SwappingEngine:
                assert not result.recomputed or tokens < lacks
            assert 0 <= engine.capacity.free_tokens <= kv_tokens
        said.append(told)
    for key in "abc":
        both = zip(said[0][key], said[1][key], strict=False)
        assert all(one == other for one, other in both), "the same words, some sooner"
