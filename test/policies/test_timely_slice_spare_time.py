"""Unused time of the engine goes to the streams that do not fit."""

import math
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.builders import ROOMY, running, stream, talking
from timely_llm.conformance.policies.service import Listeners
from timely_llm.core.generation import StreamGeneration
from timely_llm.core.slo import Slo, SloClass
from timely_llm.core.step import Capacity
from timely_llm.policies.engine_share import EngineShare
from timely_llm.policies.slice import Slice
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely_slice import TimelySlice

STEP = StepTime(0.0216, 0.00015, 0.00011)
QUICK = StepTime(0.005, 0.0002, 0.00005)
DEAR = StepTime(0.004, 0.004, 0.00005)
ROWS = StepTime(0.004, 0.02, 0.00005)


def behind_s(stream: StreamGeneration, now: float) -> float:
    """Return how long its next token has been due, seconds; below 0 if it is not due yet."""
    return now - stream.due_s if not math.isnan(stream.due_s) else -math.inf


def asks(
    key: str, tpot_s: float, arrival_s: float = 0.0, weight: float = 1.0, prompt: int = 40
) -> StreamGeneration:
    kind = SloClass(key, Slo(tpot_s=tpot_s), weight)
    return stream(key, arrival_s, of_class=kind, to_compute=prompt)


@pytest.mark.parametrize("slow_s", [2.0, 10.0, 3600.0])
def test_a_slow_stream_leaves_the_rest_of_the_engine_to_a_fast_one(slow_s: float) -> None:
    slow, fast = asks("slow", slow_s), asks("fast", 1 / 50, 0.5)
    engine = Listeners(TimelySlice(), STEP, ROOMY)
    engine.serve([slow, fast], 30.0)
    assert engine.tokens("fast", 1.0, 30.0) > 0.93 * 29.0 / 0.02175, "all there is"
    assert behind_s(slow, engine.now) < 0.05


MANY_SLOW = [(math.log(10.0), 0.02 * n, 1.0, 40) for n in range(60)]
"""At ROWS, Eq. 7 counts each ten times and finds that they are too many."""

one_each = st.tuples(
    st.floats(math.log(0.02), math.log(10.0)),
    st.floats(0.0, 2.0),
    st.sampled_from([0.1, 1.0, 100.0]),
    st.integers(2, 200),
)


@given(st.lists(one_each, min_size=1, max_size=60), st.sampled_from([QUICK, DEAR, ROWS]))
@example(MANY_SLOW, ROWS)
@example([(math.log(0.05), 0.0, 1.0, 40), *MANY_SLOW], ROWS)
@examples(25)
def test_where_there_is_time_for_all_rates_each_stream_has_its_own(
    asked: list[tuple[float, float, float, int]], step_time: StepTime
) -> None:
    share = EngineShare(step_time.steps_s)
    streams = [
        asks(f"s{n}", math.exp(tpot), at_s, weight, prompt)
        for n, (tpot, at_s, weight, prompt) in enumerate(asked)
        if share.offer(math.exp(-tpot), 0.8)
    ]
    engine = Listeners(TimelySlice(credit_tokens=1.0), step_time, ROOMY)
    engine.serve(streams, 25.0)
    longest_s = step_time.predict_s(len(streams))
    for one in streams:
        assert one.token_ids
        assert behind_s(one, engine.now) < 0.3 + 1.5 * longest_s, one.request.slo.tpot_s
        times_s = engine.times_s[one.key]
        due = (times_s[-1] - times_s[0]) / one.request.slo.tpot_s
        assert len(times_s) - 1 <= due + 2.0, "no stream gets much more"


@given(
    st.lists(
        st.tuples(st.floats(math.log(0.02), math.log(10.0)), st.floats(0.0, 6.0)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([STEP, DEAR, ROWS]),
)
@example([(math.log(2.0), 0.0), (math.log(0.02), 0.5)], STEP)
@example([(math.log(10.0), 0.0), (math.log(0.02), 0.5), (math.log(0.021), 0.6)], STEP)
@examples(25)
def test_the_engine_never_rests_while_a_stream_is_behind(
    asked: list[tuple[float, float]], step_time: StepTime
) -> None:
    streams = [asks(f"s{n}", math.exp(tpot), at_s) for n, (tpot, at_s) in enumerate(asked)]
    Listeners(TimelySlice(), step_time, ROOMY).serve(streams, 10.0)


def test_the_selected_ones_keep_what_they_were_promised() -> None:
    voices = [asks(f"v{n}", 1 / 8, 0.1 * n) for n in range(6)]
    greedy = [asks(f"g{n}", 1 / 60, 1.0, prompt=1500) for n in range(3)]
    engine = Listeners(TimelySlice(credit_tokens=1.0), STEP, ROOMY)
    engine.serve([*voices, *greedy], 20.0)
    for voice in voices:
        times_s = engine.times_s[voice.key]
        assert (times_s[-1] - times_s[0]) / (len(times_s) - 1) <= 1 / 8
        assert max(b - a for a, b in pairwise(times_s[1:])) < 0.25
    assert all(engine.tokens(one.key, 4.0, 20.0) > 100 for one in greedy)


def test_a_plan_that_comes_waits_for_a_short_step_only() -> None:
    policy = TimelySlice(credit_tokens=1.0)
    voice = talking("v", of_class=SloClass("v", Slo(tpot_s=5.0)))
    prompt = asks("g", 1 / 60, prompt=2000)
    policy.plan(0.0, [voice, prompt], STEP, ROOMY)
    voice.token_ids.append(0)
    plan = policy.plan(0.03, [voice, prompt], STEP, ROOMY)
    [(key, tokens)] = plan.entries
    assert key == "g"
    assert STEP.predict_s(0, tokens) <= 0.1
    robot = running("r")
    assert policy.plan(0.13, [voice, prompt, robot], STEP, ROOMY).keys == {"r"}


def test_spare_time_is_no_reason_for_an_eviction() -> None:
    policy = TimelySlice()
    slow = talking("slow", of_class=SloClass("slow", Slo(tpot_s=5.0)), context=900, tokens=2)
    greedy, other = asks("g", 1 / 60, prompt=500), talking("o", context=300, tokens=2)
    other.request = asks("o", 1 / 60).request
    full = Capacity(free_tokens=250, max_rows=8, max_step_tokens=512)
    plan = policy.plan(1.0, [slow, greedy, other], STEP, full)
    assert plan.keys == {"o"}, "the longer prompt does not fit beside those who talk"
    plan = policy.plan(1.1, [slow, greedy], STEP, full)
    assert not plan
    assert "slow" not in plan.evictable


@pytest.mark.parametrize("fill", [False, True])
def test_slice_as_published_starves_tasks_that_do_not_fit_and_with_fill_does_not(
    fill: bool,
) -> None:
    slow, fast = asks("slow", 2.0), asks("fast", 1 / 50, 0.5)
    engine = Listeners(Slice(fill=fill), STEP, ROOMY)
    engine.serve([slow, fast], 30.0)
    tokens = engine.tokens("fast", 1.0, 30.0)
    assert tokens > 0.9 * 29.0 / 0.02175 if fill else tokens == 0
    assert engine.tokens("slow", 1.0, 30.0) >= 14
