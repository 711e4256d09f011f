"""The seconds of the next step of a pipeline, for policies that plan no cycles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.builders import generation, running, suspended
from test.policies.micro_batches.pipelines import shops
from test.policies.test_pipeline_time import engine_of, time_of
from timely_llm.core.clock import VirtualClock
from timely_llm.core.step import Capacity, StepContent, StepPlan
from timely_llm.core.time_utility import URGENT
from timely_llm.engines.pipeline_profiles import pipeline_profile
from timely_llm.policies.least_served import FastServe
from timely_llm.policies.micro_batches.flow_shop import FlowShop
from timely_llm.policies.packing import Memory
from timely_llm.policies.pipeline_time import of_next_step
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import WorstCase

RTX_4070 = pipeline_profile().step_time()
EIGHT = StepContent(rows=8)
ALONE, BESIDE_THREE = RTX_4070.beside(()), RTX_4070.beside((EIGHT,) * 3)


def test_eight_rows_on_four_stages() -> None:
    latency_s = 4 * (0.0153 + 8 * 0.00015) + 3 * 8 * 0.001305
    busy_s = 0.0153 + 8 * (0.00015 + 2 * 0.001305)
    assert (round(latency_s, 4), round(4 * busy_s, 4)) == (0.0973, 0.1495)
    assert RTX_4070.predict_s(8) == pytest.approx(0.0833, abs=1e-4), "two rows in each step"
    assert ALONE.predict_s(8) == ALONE.first_s(8) == pytest.approx(latency_s)
    assert BESIDE_THREE.predict_s(8) == pytest.approx(4 * busy_s)
    assert BESIDE_THREE.first_s(8) == pytest.approx(latency_s + 3 * busy_s)
    assert BESIDE_THREE.coefficients == ALONE.coefficients
    assert ALONE.coefficients[2] == pytest.approx(4 * 0.00015 + 3 * 0.001305)


def test_a_small_step_waits_for_large_ones() -> None:
    prompt = RTX_4070.beside((StepContent(prompts=1, prompt_tokens=100),))
    assert prompt.first_s(1) == pytest.approx(
        RTX_4070.latency_s(1, 100) + RTX_4070.occupancy_s(0, 100)
    )
    assert prompt.predict_s(1) == pytest.approx(ALONE.predict_s(1)), "the prompt is computed once"
    assert BESIDE_THREE.predict_s(1) == pytest.approx(
        RTX_4070.occupancy_s(1) + 3 * RTX_4070.occupancy_s(8)
    )


def test_without_stages_it_is_the_step_time_itself() -> None:
    one = StepTime()
    assert of_next_step(one, Capacity(100, 8, 64, in_flight=(EIGHT,))) is one
    assert of_next_step(RTX_4070, Capacity(100, 8, 64)) is RTX_4070
    staged = Capacity(100, 8, 64, stages=4, in_flight=(EIGHT,) * 3)
    assert of_next_step(one, staged) is one
    assert of_next_step(RTX_4070, staged).predict_s(8) == BESIDE_THREE.predict_s(8)
    assert one.first_s(3, 40, 900) == one.predict_s(3, 40, 900)


sizes = st.tuples(st.integers(1, 30), st.booleans())
"""Tokens of a step, and whether they are of a prompt."""


@given(shops(), st.lists(st.tuples(sizes, st.floats(0.0, 0.1)), max_size=6), sizes)
@examples(100)
def test_no_step_takes_longer_wherever_the_others_are(
    shop: FlowShop, in_flight: list[tuple[tuple[int, bool], float]], last: tuple[int, bool]
) -> None:
    engine = engine_of(shop, len(in_flight) + 1)
    clock = engine._clock
    assert isinstance(clock, VirtualClock)
    contents = []
    for number, ((tokens, prompt), rest_s) in enumerate([*in_flight, (last, 0.0)]):
        keys = [f"{number}-{row}" for row in range(1 if prompt else tokens)]
        each = tokens + 1 if prompt else 1
        for key in keys:
            engine.add(key, [1] * each)
        engine.submit(StepPlan(tuple((key, each) for key in keys)))
        contents.append(
            StepContent(prompts=1, prompt_tokens=each) if prompt else StepContent(rows=tokens)
        )
        clock.advance(rest_s)
    submitted_s = clock.now()
    for _ in contents:
        engine.collect()
    *others, own = contents
    bound_s = time_of(shop).beside(others).first_s(own.rows, own.prompt_tokens)
    assert clock.now() - submitted_s <= bound_s + 1e-9
    if not others:
        assert clock.now() - submitted_s == pytest.approx(bound_s)


@given(shops(), st.integers(1, 7), st.integers(1, 20))
@examples(40)
def test_the_simulated_engine_has_this_cycle(shop: FlowShop, steps: int, rows: int) -> None:
    engine = engine_of(shop, steps)
    plans = []
    for number in range(steps):
        keys = [f"{number}-{row}" for row in range(rows)]
        for key in keys:
            engine.add(key, [1])
        plans.append(StepPlan(tuple((key, 1) for key in keys)))
        engine.submit(plans[-1])
    ends_s = []
    for turn in range(12 * steps):
        engine.collect()
        ends_s.append(engine._clock.now())
        engine.submit(plans[turn % steps])
    cycle_s = (ends_s[-1] - ends_s[-1 - 6 * steps]) / 6
    others = (StepContent(rows=rows),) * (steps - 1)
    assert time_of(shop).beside(others).predict_s(rows) == pytest.approx(cycle_s)


@given(shops(), st.integers(1, 7), st.integers(1, 12), st.integers(0, 60))
@examples(60)
def test_all_sequences_of_a_cycle_have_a_token_in_time(
    shop: FlowShop, micro_batches: int, rows: int, prompt: int
) -> None:
    """The last step has the prompt: each other one is in front of it."""
    engine, time = engine_of(shop, micro_batches), time_of(shop, micro_batches)
    for number in range(micro_batches):
        keys = [f"{number}-{row}" for row in range(rows)]
        for key in keys:
            engine.add(key, [1])
        entries = [(key, 1) for key in keys]
        if number == micro_batches - 1 and prompt > 1:
            engine.add("prompt", [1] * prompt)
            entries.append(("prompt", prompt))
        engine.submit(StepPlan(tuple(entries)))
    for _ in range(micro_batches):
        engine.collect()
    prompt_tokens = prompt if prompt > 1 else 0
    bound_s = time.first_s(micro_batches * rows, prompt_tokens)
    assert engine._clock.now() <= bound_s + 1e-9
    assert time.predict_s(micro_batches * rows, prompt_tokens) <= bound_s + 1e-9
    if not prompt_tokens:
        assert engine._clock.now() == pytest.approx(bound_s)


@pytest.mark.parametrize(
    ("in_flight", "needed_s"),
    [(0, 2 * 0.0973), (1, 0.0973 + 0.0374 + 0.0973), (3, 0.2094 + 0.1495)],
)
def test_the_worst_case_of_a_batch_counts_what_is_in_front(in_flight: int, needed_s: float) -> None:
    """An urgent plan has two tokens to go, and half a second; an eighth row wants to join."""
    batch = [running("u", utility=URGENT, segment_tokens=8)]
    batch += [running(f"r{place}", context=0) for place in range(6)]
    step_time = RTX_4070.beside((EIGHT,) * in_flight)
    for spare_s, fits in ((0.001, True), (-0.001, False)):
        check = WorstCase(batch, 0.5 - needed_s - spare_s, step_time, 10)
        assert check.allows(running("one more")) is fits


def test_a_segment_and_the_first_level_of_a_prompt_count_what_is_in_front() -> None:
    one = suspended("s", 10.0, to_compute=50)
    prompt = generation("p", to_compute=110)
    for step_time, first_s, level in ((ALONE, 0.5578, 6), (BESIDE_THREE, 0.7061, 7)):
        assert step_time.first_s(0, 110) == pytest.approx(first_s, abs=1e-4)
        assert FastServe()._join_level(prompt, step_time) == level
        start_s = Memory([], [one], Capacity(0, 8, 64), step_time, 10).next_start_s([one], 0.0)
        segment_s = step_time.first_s(0, 50) + 9 * step_time.predict_s(1)
        assert start_s == pytest.approx(10.0 - segment_s)
