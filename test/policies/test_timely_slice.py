"""Robots first, then streams at their rate (Ling et al. 2024 and Zhou et al. 2025 together)."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import DEAR, ROOMY, running, stream, suspended, talking
from test.policies.lanes import WORDS, Lanes, asked
from test.serving.scripted import request
from timely_llm.conformance.policies.generations import capacities, mixed_pools, plan_pools
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation, PlanGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.request import ErrorCode, Request
from timely_llm.core.slo import REAL_TIME, TEXT, VOICE, Slo, SloClass
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.registry import make_policy
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import Timely
from timely_llm.policies.timely_slice import TimelySlice

STEP = StepTime(0.0216, 0.00015, 0.00011)
PLAN = "mf(50);tc(90);mf(20);->True;"


def served(
    answers: dict[str, str], requests: Sequence[tuple[float, Request]], kv_tokens: int = 65_536
) -> Lanes:
    lanes = Lanes(answers, TimelySlice(credit_tokens=1.0), kv_tokens)
    lanes.serve(requests)
    return lanes


def test_a_voice_alone_has_its_eight_tokens_a_second_and_no_more() -> None:
    lanes = served({"v": WORDS * 12}, [(0.0, asked("v", VOICE))])
    assert lanes.rate("v") == pytest.approx(8.0, rel=0.05)
    assert max(lanes.gaps_s("v")) < 0.14
    assert lanes.sink.answers["v"].slo_met
    busy_s = sum(step.duration_s for step in lanes.sink.steps)
    assert busy_s < 0.3 * lanes.clock.now(), "the engine rests in between"


def test_by_default_a_lightly_loaded_engine_works_ahead() -> None:
    lanes = Lanes({"v": WORDS * 12}, TimelySlice())
    lanes.serve([(0.0, asked("v", VOICE))])
    assert lanes.rate("v") > 40.0


def test_voices_and_readers_together_have_theirs() -> None:
    classes = {"v1": VOICE, "v2": VOICE, "t1": TEXT, "t2": TEXT}
    answers = dict.fromkeys(classes, WORDS * 8)
    lanes = served(answers, [(0.3 * n, asked(k, c)) for n, (k, c) in enumerate(classes.items())])
    for key, of_class in classes.items():
        assert lanes.rate(key) == pytest.approx(of_class.slo.rate, rel=0.05)
        assert lanes.sink.answers[key].slo_met


def test_a_plan_that_arrives_in_between_is_served_as_if_there_were_no_streams() -> None:
    answers = {"v": WORDS * 5, "p": PLAN}
    both = served(answers, [(0.0, asked("v", VOICE)), (1.08, request("p"))])
    alone = served(answers, [(1.08, request("p"))])
    [first_s, *_] = both.segment_times_s["p"]
    [alone_s, *_] = alone.segment_times_s["p"]
    # At most the step that was on its way, and a row in each of the plan's own.
    assert first_s - alone_s < 0.025
    assert both.rate("v") == pytest.approx(8.0, rel=0.05)


def test_an_answer_with_a_deadline_is_not_held_back() -> None:
    lanes = served(
        {"r": WORDS, "v": WORDS}, [(0.0, asked("r", REAL_TIME)), (0.0, asked("v", VOICE))]
    )
    assert lanes.rate("r") > 40.0
    assert lanes.rate("v") < 9.0
    assert lanes.sink.answers["r"].slo_met


def test_many_arrivals_restart_the_cycle_but_give_no_stream_more() -> None:
    answers = {"v": WORDS * 8} | {f"s{n}": "yes." for n in range(60)}
    arrivals = [(0.07 * n, asked(f"s{n}", TEXT)) for n in range(60)]
    lanes = served(answers, [(0.0, asked("v", VOICE)), *arrivals])
    assert lanes.rate("v") == pytest.approx(8.0, rel=0.05)


def test_the_engine_rests_until_the_next_column() -> None:
    policy = TimelySlice(credit_tokens=1.0)
    voice = talking("v", of_class=VOICE)
    assert policy.plan(0.0, [voice], STEP, ROOMY).keys == {"v"}
    voice.token_ids.append(0)
    plan = policy.plan(0.02, [voice], STEP, ROOMY)
    assert not plan
    assert plan.wake_s == pytest.approx(0.125)
    assert policy.plan(plan.wake_s, [voice], STEP, ROOMY).keys == {"v"}


def test_a_stream_ahead_waits_while_the_most_urgent_plan_cannot_afford_it() -> None:
    # Nine tokens to go, 0.2 s: at 0.31 s another row breaks the zero point at 0.5 s.
    urgent, ahead = running("u", utility=URGENT, segment_tokens=1), talking("a", tokens=9)
    assert TimelySlice().plan(0.1, [urgent, ahead], STEP, ROOMY).keys == {"u", "a"}
    assert TimelySlice().plan(0.31, [urgent, ahead], STEP, ROOMY).keys == {"u"}


def test_a_late_stream_and_one_that_has_not_begun_wait_for_no_plan() -> None:
    urgent = running("u", utility=URGENT, segment_tokens=1)
    late, newcomer = talking("t", first_s=-0.5), stream("s", to_compute=2000)
    plan = TimelySlice().plan(0.31, [urgent, late, newcomer], STEP, ROOMY)
    assert plan.keys == {"u", "t", "s"}


def test_a_stream_that_is_a_whole_cycle_late_waits_for_an_urgent_plan() -> None:
    urgent = running("u", utility=URGENT, segment_tokens=1)
    lost = talking("t", first_s=-9.0)
    assert TimelySlice().plan(0.31, [urgent, lost], STEP, ROOMY).keys == {"u"}
    assert TimelySlice(cycle_s=10.0).plan(0.31, [urgent, lost], STEP, ROOMY).keys == {"u", "t"}
    assert TimelySlice().plan(0.31, [lost], STEP, ROOMY).keys == {"t"}


def test_the_least_urgent_plans_make_way_where_late_streams_would_lose_their_rate() -> None:
    readers = [talking(f"t{n}", first_s=-0.9) for n in range(4)]
    worthless = running("w", arrival_s=-99.0)
    robots = [running(f"r{n}", arrival_s=-0.1 * n) for n in range(6)]
    pool = [worthless, *robots, running("u", utility=URGENT), *readers]
    policy = TimelySlice()
    policy.explain = True
    plan = policy.plan(0.0, pool, DEAR, ROOMY)
    # Eight rows take 91 ms and nine 100.5 ms; a reader needs a token each 100 ms.
    assert plan.keys == {"u", "r5", "r4", "r3"} | {t.key for t in readers}
    assert dict(plan.reasons)["w"] == Reason(Cause.STEP_TIME, 0.1)


def test_one_plan_stays_beside_any_number_of_late_streams() -> None:
    readers = [talking(f"t{n}", first_s=-0.9) for n in range(20)]
    robots = [running("p"), running("q")]
    plan = TimelySlice(beside=1.0).plan(0.0, [*robots, *readers], DEAR, ROOMY)
    assert len(plan.keys & {"p", "q"}) == 1


def test_streams_that_are_a_whole_cycle_late_keep_no_plan_out() -> None:
    readers = [talking(f"t{n}", first_s=-9.0) for n in range(20)]
    robots = [running("p"), running("q")]
    plan = TimelySlice(beside=1.0).plan(0.0, [*robots, *readers], DEAR, ROOMY)
    assert plan.keys >= {"p", "q"}


def test_beside_plans_streams_are_selected_for_a_share_of_the_time() -> None:
    readers = [talking(f"t{n}", first_s=-0.9) for n in range(20)]
    selected = []
    for beside in (0.3, 0.6, 1.0):
        plan = TimelySlice(beside=beside).plan(0.0, [running("p"), *readers], DEAR, ROOMY)
        selected.append(len(plan.keys - {"p"}))
    alone = TimelySlice(beside=0.3).plan(0.0, readers, DEAR, ROOMY)
    assert 1 <= selected[0] < selected[1] < selected[2] == len(alone.keys)


def test_of_few_rows_plans_keep_half_and_none_while_there_are_no_plans() -> None:
    four_rows = Capacity(free_tokens=100_000, max_rows=4, max_step_tokens=2048)
    crowd: list[Generation] = [talking(f"t{n}", tokens=2) for n in range(8)]
    assert len(TimelySlice().plan(0.2, crowd, STEP, four_rows).keys) == 4
    plans = [suspended(f"p{n}", robot_free_s=99.0) for n in range(3)]
    assert len(TimelySlice().plan(0.2, [*crowd, *plans], STEP, four_rows).keys - {"p0"}) == 2


def test_one_stream_goes_on_beside_plans_that_leave_no_time_for_its_rate() -> None:
    fast = talking("f", of_class=SloClass("fast", Slo(tpot_s=0.05), 1.0), first_s=-0.1)
    plan = TimelySlice(beside=0.1).plan(0.0, [running("p"), fast], DEAR, ROOMY)
    assert plan.keys == {"p", "f"}


def test_streams_ahead_of_their_rate_push_no_plan_out() -> None:
    robots = [running(f"r{n}") for n in range(8)]
    readers = [talking(f"t{n}", tokens=99) for n in range(4)]
    plan = TimelySlice().plan(0.1, [*robots, *readers], DEAR, ROOMY)
    assert plan.keys >= {r.key for r in robots}


def test_what_robots_needed_in_the_last_second_is_there_for_streams() -> None:
    policy = TimelySlice(beside=1.0)
    robots = [running(f"r{n}") for n in range(8)]
    for step in range(44):  # 44 steps of 23 ms: all the time there is
        policy.plan(0.0215 * step, robots, STEP, ROOMY)
    readers = [talking(f"t{n}", first_s=0.5) for n in range(30)]
    plan = policy.plan(0.95, [*robots, *readers], STEP, ROOMY)
    assert plan.keys == {g.key for g in [*robots, *readers]}


def test_one_that_asks_for_little_does_not_keep_others_out() -> None:
    policy = TimelySlice(credit_tokens=1.0)
    slow = talking("s", of_class=SloClass("slow", Slo(tpot_s=3600.0), 100.0), tokens=2)
    plan = policy.plan(0.95, [slow], STEP, ROOMY)
    assert not plan
    assert plan.wake_s == pytest.approx(1.95)
    reader = talking("t", first_s=-9.0)
    assert policy.plan(1.5, [slow, reader], STEP, ROOMY).keys == {"t"}


def test_one_that_asks_for_too_much_does_not_keep_others_out() -> None:
    greedy = talking("g", of_class=SloClass("own", Slo(tpot_s=0.001), 1e6), first_s=-9.0)
    reader = talking("t", first_s=-9.0)
    assert TimelySlice().plan(0.0, [greedy, reader], STEP, ROOMY).keys == {"t"}
    assert TimelySlice().plan(0.0, [greedy], STEP, ROOMY).keys == {"g"}


def test_a_deadline_that_asks_for_more_than_the_engine_has_is_selected_for_what_it_has() -> None:
    long = StepTime(0.0787, 0.0009, 0.000465)  # 20 tokens a second would take 1.6 s of one
    machine = talking("m", of_class=REAL_TIME, first_s=-0.1)
    readers = [talking(f"t{n}", first_s=-9.0) for n in range(20)]
    policy = TimelySlice()
    policy.explain = True
    plan = policy.plan(0.0, [machine, *readers], long, ROOMY)
    assert "m" in plan.keys
    assert dict(plan.reasons)["m"].cause is not Cause.NOT_SELECTED


@pytest.mark.parametrize(("tpot_s", "selected"), [(0.5, False), (1.0, False), (2.0, True)])
def test_only_streams_below_a_token_a_cycle_are_selected_after_slice(
    tpot_s: float, selected: bool
) -> None:
    fast = [talking(f"f{n}", of_class=SloClass("f", Slo(tpot_s=0.05), 100.0)) for n in range(3)]
    slower = talking("s", of_class=SloClass("s", Slo(tpot_s=tpot_s)))
    policy = TimelySlice()
    policy.explain = True
    rows = StepTime(0.004, 0.02, 0.00005)
    why = dict(policy.plan(0.0, [*fast, slower], rows, ROOMY).reasons)
    assert why["f2"].cause is Cause.NOT_SELECTED, "Algorithm 2 ends at the third"
    assert (why["s"].cause is not Cause.NOT_SELECTED) == selected


def test_streams_that_wait_give_up_their_memory_before_robots_do() -> None:
    full = Capacity(free_tokens=0, max_rows=8, max_step_tokens=512)
    greedy = talking("g", of_class=SloClass("own", Slo(tpot_s=0.001)))
    robot, reader = suspended("p", robot_free_s=500.0), talking("t", first_s=-9.0)
    plan = TimelySlice(lead_s=0.5).plan(0.0, [robot, greedy, reader], STEP, full)
    assert plan.keys == {"t"}
    assert plan.evictable[0] == "g"


def test_the_rule_of_the_bound_holds_for_streams_too() -> None:
    # Nine tokens to go, 0.2 s, of which the due time leaves 0.15 s and the zero point 0.45 s.
    urgent, reader = running("u", utility=URGENT, segment_tokens=1), talking("t", tokens=9)
    zero, ert = (make_policy("timely+slice", budget=budget) for budget in ("zero", "ert"))
    assert zero.plan(0.05, [urgent, reader], STEP, ROOMY).keys == {"u", "t"}
    assert ert.plan(0.05, [urgent, reader], STEP, ROOMY).keys == {"u"}


def test_streams_have_no_sentences() -> None:
    with pytest.raises(
        ConfigurationError, match=r"timely\+slice: streams must be tokens, not sentences"
    ):
        make_policy("timely+slice", streams="sentences")


def test_a_cycle_takes_time() -> None:
    for cycle_s in (0.0, math.inf):
        with pytest.raises(ConfigurationError, match="cycle_s must be above 0 and finite, not"):
            TimelySlice(cycle_s=cycle_s)


def test_under_pressure_all_end_and_all_that_was_asked_is_there() -> None:
    answers = {f"p{n}": PLAN * 2 for n in range(6)} | {f"s{n}": WORDS for n in range(12)}
    requests: list[tuple[float, Request]] = [
        (0.05 * n, asked(key, VOICE if n % 2 else TEXT) if key[0] == "s" else request(key))
        for n, key in enumerate(answers)
    ]
    kept = Lanes({}, TimelySlice()).prefix_tokens
    lanes = served(answers, requests, kv_tokens=kept + 200)
    ended = lanes.sink.results | lanes.sink.answers
    assert {result.error_code for result in ended.values()} == {ErrorCode.NONE}
    assert {key: answer.text for key, answer in lanes.sink.answers.items()} == {
        key: WORDS for key in answers if key[0] == "s"
    }


@given(plan_pools(), capacities, st.floats(0, 20))
def test_without_streams_it_is_timely(
    pool: list[PlanGeneration], capacity: Capacity, now: float
) -> None:
    both, plain = TimelySlice(), Timely()
    for later_s in (0.0, 0.5):
        assert both.plan(now + later_s, pool, STEP, capacity) == plain.plan(
            now + later_s, pool, STEP, capacity
        )


@given(mixed_pools(), st.floats(0, 20))
def test_with_streams_it_takes_the_plans_that_timely_takes(
    pool: list[Generation], now: float
) -> None:
    plans = [g for g in pool if isinstance(g, PlanGeneration)]
    mixed = TimelySlice().plan(now, pool, STEP, ROOMY)
    alone = Timely().plan(now, plans, STEP, ROOMY)
    assert mixed.entries[: len(alone.entries)] == alone.entries
    assert mixed.wake_s <= alone.wake_s
