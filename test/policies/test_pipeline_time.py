"""The step-time model of an engine in stages: latency and cycle."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.endurance import steps
from test.examples import examples
from test.policies.micro_batches.pipelines import shops
from timely_llm.core.clock import VirtualClock
from timely_llm.core.step import StageTimes, StepPlan
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile, StageLink
from timely_llm.engines.simulated import Profile
from timely_llm.policies.micro_batches.flow_shop import FlowShop
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.step_time import StepTime


def time_of(shop: FlowShop, micro_batches: int | None = None) -> PipelineTime:
    """Return the model that knows a flow shop; decode rows and prompt tokens take as long."""
    return PipelineTime(
        [StepTime(base_s, token_s, token_s) for base_s, token_s in shop.stages],
        [StepTime(base_s, token_s, token_s) for base_s, token_s in shop.links],
        micro_batches,
        blocking=float(shop.blocking),
        overhead_s=shop.overhead_s,
    )


def engine_of(shop: FlowShop, micro_batches: int) -> PipelinedEngine:
    stages = tuple(Profile("", "", base_s, token_s, token_s) for base_s, token_s in shop.stages)
    links = tuple(StageLink(*link) for link in shop.links)
    profile = PipelineProfile(
        "made", "up", stages, links, shop.blocking, overhead_s=shop.overhead_s
    )
    return PipelinedEngine(
        profile, lambda key, _: "so " * 99, VirtualClock(), None, max(micro_batches, len(stages))
    )


@given(shops(), st.integers(1, 8), st.integers(1, 40))
@examples(100)
def test_a_cycle_is_the_latency_or_all_steps_at_the_busiest_place(
    shop: FlowShop, micro_batches: int, rows: int
) -> None:
    time = time_of(shop, micro_batches)
    sizes = [rows] * micro_batches
    assert time.predict_s(rows * micro_batches) == pytest.approx(shop.bound_s(sizes))
    assert time.latency_s(rows) == pytest.approx(shop.latency_s(rows))
    assert time.latency_s(0, rows) == pytest.approx(shop.latency_s(rows))
    assert time.occupancy_s(rows) == pytest.approx(shop.busy_s(1, rows))


@given(shops(), st.integers(1, 7), st.integers(1, 20))
@examples(40)
def test_the_simulated_engine_has_this_cycle(shop: FlowShop, micro_batches: int, rows: int) -> None:
    engine = engine_of(shop, micro_batches)
    plans = []
    for number in range(micro_batches):
        keys = [f"{number}-{row}" for row in range(rows)]
        for key in keys:
            engine.add(key, [1])
        plans.append(StepPlan(tuple((key, 1) for key in keys)))
    ends_s: list[float] = []
    for plan in plans:
        engine.submit(plan)
    for turn in range(12 * micro_batches):
        engine.collect()
        ends_s.append(engine._clock.now())
        engine.submit(plans[turn % micro_batches])
    cycle_s = (ends_s[-1] - ends_s[-1 - 6 * micro_batches]) / 6
    assert cycle_s == pytest.approx(time_of(shop, micro_batches).predict_s(rows * micro_batches))


@given(st.lists(st.tuples(st.floats(0.001, 2.0), *(st.integers(0, 300),) * 3), max_size=60))
@examples(60)
def test_in_one_stage_it_is_the_step_time(seen: list[tuple[float, int, int, int]]) -> None:
    one, pipeline = StepTime(), PipelineTime([StepTime()], [])
    for number, (seconds, *counts) in enumerate(seen):
        one.observe(seconds, *counts)
        if number % 2:
            pipeline.observe(seconds, *counts)
        else:
            times = StageTimes((0.0,), (seconds,), (), (0.0,), (0.0,))
            pipeline.observe_stages(times, *counts)
        expected = pytest.approx(one.predict_s(*counts))
        assert pipeline.predict_s(*counts) == expected
        assert pipeline.latency_s(*counts) == expected
    assert pipeline.coefficients == pytest.approx(one.coefficients)
    assert pipeline.observations == one.observations


@pytest.mark.parametrize("blocking", [True, False])
def test_it_learns_stages_links_an_overhead_and_whether_transfers_block(blocking: bool) -> None:
    stages = tuple(
        Profile("", "", base_s, 0.0004, 0.0002, 1e-6) for base_s in (0.004, 0.012, 0.007)
    )
    links = (StageLink(0.003, 0.0005),) * 2
    profile = PipelineProfile("unlike", "made up", stages, links, blocking, overhead_s=0.006)
    engine = PipelinedEngine(profile, lambda key, _: "so " * 99, VirtualClock())
    learned, known = PipelineTime.unknown(3), profile.step_time()
    assert learned.blocking == [1.0] * 3
    assert learned.overhead_s == 0.0
    rng = random.Random(0)
    for number in range(400):
        plan = []
        for row in range(rng.randint(1, 8)):
            key, tokens = f"{number}-{row}", rng.choice([1, 1, 40])
            engine.add(key, [1] * tokens)
            plan.append((key, tokens))
        engine.submit(StepPlan(tuple(plan)))
        result = engine.collect()
        assert result.stages is not None
        rows = result.planned.count(1)
        prompts = sum(result.planned) - rows
        learned.observe_stages(result.stages, rows, prompts, 0, result.overhead_s)
        for key, _ in plan:
            engine.remove(key)
    assert learned.blocking == pytest.approx([float(blocking)] * 3)
    assert learned.overhead_s == pytest.approx(0.006, rel=0.05)
    for micro_batches in (1, 3, 9):
        learned.micro_batches = known.micro_batches = micro_batches
        for content in ((1, 0), (8, 0), (4, 80), (24, 0)):
            assert learned.predict_s(*content) == pytest.approx(known.predict_s(*content), rel=0.05)
            assert learned.latency_s(*content) == pytest.approx(known.latency_s(*content), rel=0.05)


@given(st.lists(st.integers(1, 40), min_size=8, max_size=40), st.booleans())
@examples(20)
def test_without_times_of_stages_a_step_that_waited_for_others_is_no_slower_for_it(
    sizes: list[int], blocking: bool
) -> None:
    stages = tuple(Profile("", "", base_s, 0.0004, 0.0002) for base_s in (0.004, 0.012, 0.007))
    links = (StageLink(0.003, 0.0005),) * 2
    profile = PipelineProfile("unlike", "made up", stages, links, blocking)
    engine = PipelinedEngine(profile, lambda key, _: "so " * 99, VirtualClock())
    known, learned = profile.step_time(), profile.step_time()
    before = known.latency_s(1)
    in_flight: list[tuple[float, int]] = []
    ended_s = 0.0
    for number, rows in enumerate(sizes):
        keys = [f"{number}-{row}" for row in range(rows)]
        for key in keys:
            engine.add(key, [1])
        in_flight.append((engine._clock.now(), rows))
        engine.submit(StepPlan(tuple((key, 1) for key in keys)))
        if len(in_flight) == engine.in_flight:
            submitted_s, rows = in_flight.pop(0)
            engine.collect()
            begun_s, ended_s = max(submitted_s, ended_s), engine._clock.now()
            seconds, least_s = ended_s - submitted_s, ended_s - begun_s
            assert least_s - 1e-9 <= known.latency_s(rows) <= seconds + 1e-9
            learned.observe(seconds, rows, 0, 0, least_s)
    assert learned.latency_s(1) == pytest.approx(before)
    learned.observe(3 * before, 1, 0, 0, 2 * before)
    learned.observe(3 * before, 1, 0, 0, 2 * before)
    assert before < learned.latency_s(1) < 2 * before


def test_a_share_of_blocking_transfers_is_learned() -> None:
    time = PipelineTime.unknown(2)
    for number in range(2000):
        blocked_s = 0.01 if number % 4 else 0.0
        times = StageTimes((), (0.01, 0.01), (0.01,), (blocked_s,) * 2, (0.0,) * 2)
        time.observe_stages(times, 4)
    assert time.blocking == pytest.approx([0.75] * 2, abs=0.02)


@pytest.mark.parametrize("odd_s", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("place", ["stage_s", "link_s", "blocked_s", "overhead_s"])
def test_impossible_times_teach_nothing(odd_s: float, place: str) -> None:
    time = PipelineTime.unknown(2)
    before = time.predict_s(8, 40, 900), list(time.blocking)
    times = StageTimes((), (0.01, 0.01), (0.01,), (0.01, 0.01), (0.0, 0.0))
    if place == "overhead_s":
        time.observe_stages(times, 4, overhead_s=odd_s)
    else:
        time.observe_stages(times._replace(**{place: (odd_s,) * len(getattr(times, place))}), 4)
    assert (time.predict_s(8, 40, 900), time.blocking) == before
    assert time.observations == 0


def test_a_step_that_waited_for_others_teaches_no_overhead() -> None:
    stages = (Profile("", "", 0.004, 0.0002, 0.0002),) * 2
    profile = PipelineProfile("two", "made up", stages, (StageLink(0.0, 0.0),), overhead_s=0.006)
    engine = PipelinedEngine(profile, lambda key, _: "so " * 99, VirtualClock(), None, 3)
    for key in "abc":
        engine.add(key, [1])
        engine.submit(StepPlan(((key, 1),)))
    results = [engine.collect() for _ in "abc"]
    assert [result.overhead_s for result in results] == [0.006, 0.0, 0.0]
    time = PipelineTime([StepTime(0.004, 0.0002)] * 2, [StepTime(0.0, 0.0)], overhead_s=0.006)
    for result in results[1:]:
        assert result.stages is not None
        time.observe_stages(result.stages, 1, overhead_s=result.overhead_s)
    assert time.overhead_s == 0.006


def test_more_micro_batches_make_a_longer_cycle_of_shorter_steps() -> None:
    time = PipelineTime([StepTime(0.01, 0.001)] * 2, [StepTime(0.0, 0.0, 0.0)], 2)
    assert time.predict_s(8) == pytest.approx(2 * (0.01 + 4 * 0.001))
    time.micro_batches = 4
    assert time.predict_s(8) == pytest.approx(4 * (0.01 + 2 * 0.001))


def test_links_connect_stages() -> None:
    with pytest.raises(ValueError, match="3 stages have 2 links, not 0"):
        PipelineTime([StepTime()] * 3, [])


@pytest.mark.slow
@steps
def test_predictions_stay_sane(steps: int) -> None:
    """Speeds jump, transfers begin to block and stop, and one in a thousand times is odd."""
    rng, time = random.Random(0), PipelineTime.unknown(3)
    for number in range(steps):
        speed = 1.0 + 4.0 * (number // 5000 % 2)
        rows, prefill, context = rng.randint(0, 64), rng.choice([0, 0, 512]), rng.randint(0, 90_000)
        stage_s = [
            speed * (0.004 * place + 0.0003 * rows + 0.0001 * prefill + 1e-8 * context)
            for place in (1, 2, 3)
        ]
        link_s = [speed * (0.002 + 0.00005 * (rows + prefill))] * 2
        blocked_s = [rng.choice([0.0, 1.0]) * sum(link_s)] * 3
        if rng.random() < 0.001:
            stage_s[rng.randrange(3)] = rng.choice([0.0, 30.0, 1e9, math.nan])
        times = StageTimes((), *map(tuple, (stage_s, link_s, blocked_s, (0.0,) * 3)))
        time.observe_stages(times, rows, prefill, context)
        if number % 1000 == 999:
            time.micro_batches = rng.randint(1, 12)
            assert all(0.0 <= share <= 1.0 for share in time.blocking)
            for content in ((1, 0, 0), (64, 0, 90_000), (8, 512, 1000)):
                latency_s = time.latency_s(*content)
                assert 0.0 < latency_s < 20.0
                assert time.occupancy_s(*content) <= latency_s * (1.0 + 1e-9)
                assert time.predict_s(*content) < 12 * latency_s + 20.0
            assert min(time.coefficients) >= 0.0
