import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.builders import DEAR, ROOMY, generation, running, suspended
from test.published import TRACE, needs_published
from test.serving.scripted import Scene, request
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.experiments.results.metrics import row
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.deadline.plans import Deadline
from timely_llm.policies.lengths import SegmentLengths, mean
from timely_llm.policies.step_time import StepTime
from timely_llm.traces.imported.lrtrace import read_lrtrace

STEP = StepTime(0.0216, 0.00015, 0.00011)
PLANS = ("tc(30);->True;", "mf(50);tc(90);tp();->True;", "4{mf(50);};->True;", "tp();tp();->True;")
utilities = st.sampled_from(
    [NORMAL, URGENT, TimeUtility(beta=1.0, alpha=0.0), TimeUtility(beta=0.0, alpha=0.0)]
)


def test_a_burst_is_admitted_in_one_step() -> None:
    burst = [generation(f"g{i}", arrival_s=i / 1000) for i in range(6)]
    assert Deadline().plan(0.1, burst, STEP, ROOMY).keys == {g.key for g in burst}


def test_urgent_requests_go_first_and_those_who_have_time_wait_for_the_wave_to_pass() -> None:
    normal = [generation(f"n{i}") for i in range(4)]
    urgent = [generation(f"u{i}", utility=URGENT) for i in range(4)]
    plan = Deadline().plan(0.1, normal + urgent, STEP, ROOMY)
    assert plan.keys == {"u0", "u1", "u2", "u3"}


def test_a_plan_that_can_no_longer_be_in_time_gives_way() -> None:
    hopeless = generation("hopeless", arrival_s=0.0, utility=URGENT)
    fresh = [generation(f"f{i}", arrival_s=0.64, utility=URGENT) for i in range(12)]
    crowd = [hopeless, *fresh]
    assert Deadline(batch=False).plan(0.65, crowd, STEP, ROOMY).keys == {"f0"}
    assert "hopeless" not in Deadline().plan(0.65, crowd, STEP, ROOMY).keys
    assert "hopeless" in Deadline().plan(0.65, [hopeless, fresh[0]], STEP, ROOMY).keys


def test_a_plan_that_delays_no_other_does_not_wait() -> None:
    busy = suspended("busy", robot_free_s=100.0)
    late = generation("late", arrival_s=0.0, utility=URGENT)
    assert Deadline().plan(5.0, [busy, late], STEP, ROOMY).keys == {"busy", "late"}


def test_plans_run_ahead_unless_a_lead_lets_them_rest() -> None:
    busy = suspended("busy", robot_free_s=10.0)
    assert Deadline().plan(0.0, [busy], STEP, ROOMY).keys == {"busy"}
    rested = Deadline(lead_s=0.5).plan(0.0, [busy], STEP, ROOMY)
    assert (rested.entries, rested.wake_s) == ((), 9.5)


def test_run_ahead_plans_stand_aside_where_rows_are_expensive() -> None:
    dear = StepTime(0.02, 0.002, 0.0001)
    first = running("first")
    busy = [suspended(f"s{i}", robot_free_s=100.0 + i) for i in range(5)]
    assert Deadline().plan(0.0, [first, *busy], dear, ROOMY).keys == {"first", "s0", "s1"}
    assert len(Deadline().plan(0.0, busy, dear, ROOMY).keys) == 5


def test_an_engine_at_rest_waits_a_moment_for_the_rest_of_a_burst() -> None:
    policy = Deadline(gather_s=0.002)
    one = generation("one", arrival_s=1.0)
    plan = policy.plan(1.0, [one], STEP, ROOMY)
    assert (plan.entries, plan.wake_s) == ((), 1.002)
    assert policy.plan(1.002, [one], STEP, ROOMY).keys == {"one"}
    stream = [generation(f"g{i}", arrival_s=1.0 + i / 1000) for i in range(21)]
    assert policy.plan(1.02, stream, STEP, ROOMY), "not for ever"
    assert policy.plan(1.0, [one, running("two")], STEP, ROOMY).keys == {"one", "two"}


def test_one_at_a_time_and_all_at_once_are_the_ablations() -> None:
    crowd = [generation(f"g{i}", utility=URGENT) for i in range(30)]
    assert len(Deadline(batch=False).plan(0.1, crowd, STEP, ROOMY).keys) == 1
    everyone = Deadline(defer=False).plan(0.1, crowd, STEP, ROOMY)
    assert sum(tokens for _, tokens in everyone.entries) == ROOMY.max_step_tokens


def test_an_infeasible_plan_queues_again_if_no_plan_gives_way() -> None:
    hopeless = generation("hopeless", arrival_s=0.0, utility=URGENT)
    fresh = generation("fresh", arrival_s=0.64, utility=URGENT)
    normal = generation("normal", arrival_s=0.1)
    crowd = [fresh, normal, hopeless]
    for policy, first in (
        (Deadline(batch=False), "fresh"),
        (Deadline(batch=False, feasible=False), "hopeless"),
        (Deadline(batch=False, urgent_first=False), "hopeless"),
    ):
        assert policy.plan(0.65, crowd, STEP, ROOMY).keys == {first}
    by_arrival = Deadline(batch=False, urgent_first=False)
    assert by_arrival.plan(0.65, crowd[:2], STEP, ROOMY).keys == {"normal"}


def test_lengths_are_learned_from_what_was_generated() -> None:
    lengths = SegmentLengths(prior=8)
    one = generation("one")
    assert lengths.to_go(one) == ((8, 1.0),)
    for tokens in (4, 4, 4, 4, 4, 4, 8, 8, 8):
        lengths.observe(("drone", 1.0, True), tokens)
    assert [tokens for tokens, _ in lengths.to_go(one)] == [4, 8]
    assert mean(lengths.to_go(one)) == pytest.approx(16 / 3)
    one.segment_tokens = 4
    assert [tokens for tokens, _ in lengths.to_go(one)] == [4], "only the longer ones are left"


@given(
    wanted=st.lists(st.tuples(st.sampled_from(PLANS), utilities), min_size=1, max_size=8),
    kv_tokens=st.integers(1400, 4000),
    max_rows=st.integers(1, 8),
    max_step_tokens=st.integers(8, 512),
    lead_s=st.sampled_from([0.0, math.inf]),
    dear=st.booleans(),
)
@examples(80)
def test_all_are_served_in_the_end(
    wanted: list[tuple[str, TimeUtility]],
    kv_tokens: int,
    max_rows: int,
    max_step_tokens: int,
    lead_s: float,
    dear: bool,
) -> None:
    plans = {f"r{i}": plan for i, (plan, _) in enumerate(wanted)}
    scene = Scene(
        plans,
        Deadline(lead_s=lead_s),
        max_model_len=4096,
        kv_tokens=kv_tokens,
        max_rows=max_rows,
        max_step_tokens=max_step_tokens,
    )
    if dear:
        scene.loop.step_time = DEAR
    for key, (_, utility) in zip(plans, wanted, strict=True):
        scene.loop.admit(request(key, utility))
    scene.run()
    assert {key: result.plan for key, result in scene.sink.results.items()} == plans
    assert scene.loop.free_kv_tokens == scene.free_at_start


@pytest.mark.parametrize("step_time", [STEP, DEAR], ids=["cheap", "dear"])
def test_no_plan_starves_while_urgent_requests_never_end(step_time: StepTime) -> None:
    policy, now = Deadline(), 100.0
    patient = generation("patient", arrival_s=0.0)
    for _ in range(400):
        crowd = [generation(f"u{i}", arrival_s=now - 0.01, utility=URGENT) for i in range(12)]
        half = [running(f"r{i}", arrival_s=now - 0.15, utility=URGENT) for i in range(12)]
        if "patient" in policy.plan(now, [patient, *crowd, *half], step_time, ROOMY).keys:
            return
        now += 0.15
    raise AssertionError("one request was passed over 400 times")


def test_a_large_pool_fits_a_small_engine() -> None:
    small = Capacity(free_tokens=300, max_rows=4, max_step_tokens=64)
    crowd = [generation(f"g{i}", utility=URGENT) for i in range(50)]
    plan = Deadline().plan(0.1, [*crowd, *(running(f"r{i}") for i in range(3))], STEP, small)
    assert len(plan.entries) <= 4
    assert sum(tokens for _, tokens in plan.entries) <= 64


@needs_published
@pytest.mark.parametrize(
    ("load", "utility", "waiting_s", "urgent"),
    [(1, 1.311, 0.386, 1.83), (2, 1.191, 0.544, 1.51), (4, 0.814, 0.868, 0.79)],
)
def test_the_published_trace_is_served_as_well_as_was_promised(
    load: int, utility: float, waiting_s: float, urgent: float
) -> None:
    run = simulate(read_lrtrace(TRACE), Deadline(), SimulationSettings(load=load))
    got = row(run)
    assert got["share_served"] == 1.0
    # The floors have three digits.
    assert got["utility"] > utility - 0.002
    assert got["waiting_s"] < waiting_s + 0.002
    assert got["urgent_utility"] > urgent - 0.005
