import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.builders import DEAR, ROOMY, generation, running, stream, suspended, talking
from test.published import TRACE, needs_published
from test.serving.scripted import Scene, request
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.reason import Reason
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.results.metrics import row
from timely_llm.experiments.sources import composed
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.deadline.policy import GATHER_S, MOST_URGENT, Deadline
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.registry import make_policy
from timely_llm.policies.step_time import StepTime
from timely_llm.traces.imported.lrtrace import read_lrtrace

STEP = StepTime(0.0216, 0.00015, 0.00011)
SLOW = PROFILES["rtx4060ti-chatglm2-6b"]
PLANS = ("tc(30);->True;", "mf(50);tc(90);tp();->True;", "4{mf(50);};->True;", "tp();tp();->True;")
utilities = st.sampled_from(
    [NORMAL, URGENT, TimeUtility(beta=1.0, alpha=0.0), TimeUtility(beta=0.0, alpha=0.0)]
)


@pytest.mark.parametrize(
    ("option", "allowed", "wrong"),
    [
        ("kappa", "finite and from 0 on", (-0.1, math.inf, math.nan)),
        ("lead_s", "from 0 on", (-0.1, -math.inf, math.nan)),
        ("people", "finite and from 0 on", (-0.1, math.inf, math.nan)),
        ("urgent", f"from 0 to {MOST_URGENT:g}", (-0.1, 10.1, math.nan)),
    ],
)
def test_an_option_out_of_its_range_is_refused_in_one_sentence(
    option: str, allowed: str, wrong: tuple[float, ...]
) -> None:
    for value in wrong:
        sentence = f"^deadline: {option} must be {allowed}, not {value:g}$"
        with pytest.raises(ConfigurationError, match=sentence):
            make_policy("deadline", **{option: value})


def test_options_may_be_at_the_ends_of_their_ranges() -> None:
    make_policy("deadline", kappa=0.0, lead_s=0.0, people=0.0, urgent=0.0)
    make_policy("deadline", lead_s=math.inf, urgent=MOST_URGENT)


def test_a_burst_is_admitted_in_one_step() -> None:
    burst = [generation(f"g{i}", arrival_s=i / 1000) for i in range(6)]
    assert Deadline().plan(0.1, burst, STEP, ROOMY).keys == {g.key for g in burst}


def test_urgent_requests_go_first_and_those_who_have_time_wait_for_the_wave_to_pass() -> None:
    normal = [generation(f"n{i}") for i in range(4)]
    urgent = [generation(f"u{i}", utility=URGENT) for i in range(4)]
    plan = Deadline().plan(0.1, normal + urgent, STEP, ROOMY)
    assert plan.keys == {"u0", "u1", "u2", "u3"}


def test_decoding_plans_make_room_for_an_urgent_request_where_rows_are_expensive() -> None:
    decoding = [running(f"r{i}", segment_tokens=4) for i in range(8)]
    urgent = generation("urgent", arrival_s=0.1, utility=URGENT)
    crowd = [*decoding, urgent]
    assert Deadline().plan(0.1, crowd, DEAR, ROOMY).keys == {"urgent"}
    assert Deadline().plan(0.1, crowd, STEP, ROOMY).keys == {g.key for g in crowd}


def test_a_plan_that_can_no_longer_be_in_time_gives_way() -> None:
    hopeless = generation("hopeless", arrival_s=0.0, utility=URGENT)
    fresh = [generation(f"f{i}", arrival_s=0.64, utility=URGENT) for i in range(12)]
    assert "hopeless" not in Deadline().plan(0.65, [hopeless, *fresh], STEP, ROOMY).keys
    patient = generation("patient", arrival_s=0.64)
    assert "hopeless" in Deadline().plan(0.65, [hopeless, patient], STEP, ROOMY).keys


def test_in_a_pipeline_plans_are_worth_what_they_are_when_the_first_token_is_through_it() -> None:
    part, link = StepTime(0.005, 0.0005, 0.0001), StepTime(0.002, 0.0, 0.0002)
    pipeline = PipelineTime([part] * 4, [link] * 3)
    one_box = StepTime(*pipeline.coefficients)
    delay_s = pipeline.delay_s
    crowd = [generation(f"g{i}", arrival_s=i / 100, utility=URGENT) for i in range(6)]

    def reasons(now: float, step_time: StepTime) -> dict[str, Reason]:
        policy = Deadline()
        policy.explain = True
        return dict(policy.plan(now, crowd, step_time, ROOMY).reasons)

    assert delay_s > 0.01
    assert reasons(0.3, pipeline) == reasons(0.3 + delay_s, one_box) != reasons(0.3, one_box)


def test_plans_that_can_earn_nothing_go_last_where_rows_are_expensive() -> None:
    late = [running(f"late{i}", arrival_s=-1.0, utility=URGENT) for i in range(4)]
    fresh = [running(f"fresh{i}", arrival_s=0.1, utility=URGENT) for i in range(2)]
    assert Deadline().plan(0.1, [*late, *fresh], DEAR, ROOMY).keys == {"fresh0", "fresh1"}
    assert Deadline().plan(0.1, late, DEAR, ROOMY).keys


def test_a_plan_that_delays_no_other_does_not_wait() -> None:
    busy = suspended("busy", robot_free_s=100.0)
    late = generation("late", arrival_s=0.0, utility=URGENT)
    assert Deadline().plan(5.0, [busy, late], STEP, ROOMY).keys == {"busy", "late"}


def test_no_exponent_makes_an_urgent_request_wait_for_a_normal_one() -> None:
    crowd = [generation("normal"), generation("urgent", utility=URGENT)]
    for urgent in (1.0, 2.0, MOST_URGENT):
        entries = Deadline(urgent=urgent).plan(0.1, crowd, DEAR, ROOMY).entries
        assert entries[0][0] == "urgent"


def test_plans_run_ahead_unless_a_lead_lets_them_rest() -> None:
    busy = suspended("busy", robot_free_s=10.0)
    assert Deadline().plan(0.0, [busy], STEP, ROOMY).keys == {"busy"}
    rested = Deadline(lead_s=0.5).plan(0.0, [busy], STEP, ROOMY)
    assert (rested.entries, rested.wake_s) == ((), 9.5)


def test_run_ahead_plans_stand_aside_where_rows_are_expensive() -> None:
    dear = StepTime(0.02, 0.002, 0.0001)
    busy = [suspended(f"s{i}", robot_free_s=100.0 + i) for i in range(5)]
    assert Deadline().plan(0.0, [running("first"), *busy], dear, ROOMY).keys == {
        "first",
        "s0",
        "s1",
    }
    assert len(Deadline().plan(0.0, busy, dear, ROOMY).keys) == 5


def test_no_plan_runs_ahead_beside_a_full_step_of_plans_that_are_needed() -> None:
    needed = [running(f"r{i}") for i in range(4)]
    busy = suspended("busy", robot_free_s=100.0)
    assert "busy" not in Deadline().plan(0.1, [*needed, busy], DEAR, ROOMY).keys
    assert "busy" in Deadline().plan(0.1, [busy], DEAR, ROOMY).keys


def test_a_plan_of_a_robot_that_is_idle_soon_is_needed_as_much_as_a_first_segment() -> None:
    soon = suspended("soon", robot_free_s=0.2)
    others = [suspended(f"s{i}", robot_free_s=100.0 + i) for i in range(5)]
    entries = Deadline().plan(0.1, [*others, soon], STEP, ROOMY).entries
    assert entries[0][0] == "soon"


def test_an_engine_at_rest_waits_a_moment_for_the_rest_of_a_burst() -> None:
    policy = Deadline()
    one = generation("one", arrival_s=1.0)
    plan = policy.plan(1.0, [one], STEP, ROOMY)
    assert (plan.entries, plan.wake_s) == ((), 1.0 + GATHER_S)
    assert policy.plan(1.0 + GATHER_S, [one], STEP, ROOMY).keys == {"one"}
    burst = [generation(f"g{i}", arrival_s=1.0 + i / 1000) for i in range(21)]
    assert policy.plan(1.02, burst, STEP, ROOMY), "not for ever"
    assert policy.plan(1.0, [one, running("two", arrival_s=0.9)], STEP, ROOMY).keys == {
        "one",
        "two",
    }


@given(
    wanted=st.lists(st.tuples(st.sampled_from(PLANS), utilities), min_size=1, max_size=8),
    kv_tokens=st.integers(1400, 4000),
    max_rows=st.integers(1, 8),
    max_step_tokens=st.integers(8, 512),
    kappa=st.sampled_from([0.0, 0.1, 10.0]),
    lead_s=st.sampled_from([0.0, math.inf]),
    urgent=st.sampled_from([0.0, 1.0, MOST_URGENT]),
    dear=st.booleans(),
)
@examples(80)
def test_all_are_served_in_the_end(
    wanted: list[tuple[str, TimeUtility]],
    kv_tokens: int,
    max_rows: int,
    max_step_tokens: int,
    kappa: float,
    lead_s: float,
    urgent: float,
    dear: bool,
) -> None:
    plans = {f"r{i}": plan for i, (plan, _) in enumerate(wanted)}
    scene = Scene(
        plans,
        Deadline(kappa=kappa, lead_s=lead_s, urgent=urgent),
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
    for _ in range(200):
        crowd = [generation(f"u{i}", arrival_s=now - 0.01, utility=URGENT) for i in range(12)]
        half = [running(f"r{i}", arrival_s=now - 0.15, utility=URGENT) for i in range(12)]
        if "patient" in policy.plan(now, [patient, *crowd, *half], step_time, ROOMY).keys:
            return
        now += 1.0
    raise AssertionError("one request was passed over for 200 s")


def test_a_plan_that_is_set_aside_is_evicted_after_plans_with_busy_robots() -> None:
    decoding = [running(f"r{i}", segment_tokens=4) for i in range(8)]
    busy = suspended("busy", robot_free_s=0.9, context=200)
    urgent = generation("urgent", arrival_s=0.1, utility=URGENT, to_compute=150)
    small = Capacity(free_tokens=120, max_rows=16, max_step_tokens=256)
    plan = Deadline().plan(0.1, [*decoding, busy, urgent], DEAR, small)
    assert plan.keys == {"urgent"}
    assert plan.evictable[0] == "busy"
    assert set(plan.evictable) == {"busy", *(g.key for g in decoding)}


@pytest.mark.slow
def test_a_slow_device_under_overload_serves_better_than_baselines() -> None:
    trace, settings = composed("wid1", 3), SimulationSettings(load=2, profile=SLOW)
    got = {
        name: row(simulate(trace, make_policy(name), settings))
        for name in ("deadline", "timely", "slice")
    }
    ours = got.pop("deadline")
    assert ours["share_finished"] == 1.0
    for measure in ("utility", "urgent_utility"):
        assert ours[measure] > max(other[measure] for other in got.values())
    assert ours["waiting_s"] < min(other["waiting_s"] for other in got.values())


@pytest.mark.slow
def test_requests_that_say_they_are_urgent_get_more_the_higher_the_exponent() -> None:
    trace, settings = composed("wid1", 3), SimulationSettings(load=2, profile=SLOW)
    got = [row(simulate(trace, Deadline(urgent=urgent), settings)) for urgent in (0.0, 1.0, 3.0)]
    urgent = [one["urgent_response_s"] for one in got]
    normal = [one["normal_response_s"] for one in got]
    assert urgent == sorted(urgent, reverse=True)
    assert normal == sorted(normal)


@needs_published
@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "utility", "waiting_s", "urgent"),
    [(1, 1.32, 0.42, 1.87), (2, 1.2, 0.56, 1.56), (4, 0.93, 0.875, 0.97)],
)
def test_the_published_trace_is_served_as_well_as_was_promised(
    load: int, utility: float, waiting_s: float, urgent: float
) -> None:
    run = simulate(read_lrtrace(TRACE), Deadline(), SimulationSettings(load=load))
    got = row(run)
    assert got["share_served"] == 1.0
    assert got["utility"] > utility
    assert got["waiting_s"] < waiting_s
    assert got["urgent_utility"] > urgent


def test_plans_alone_are_planned_as_if_there_had_been_no_streams() -> None:
    crowd = [generation(f"n{i}") for i in range(4)]
    policy = Deadline()
    before = policy.plan(0.1, crowd, STEP, ROOMY)
    policy.plan(0.1, [*crowd, talking("t"), stream("s")], STEP, ROOMY)
    assert policy.plan(0.1, crowd, STEP, ROOMY) == before
