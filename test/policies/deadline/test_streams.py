import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.builders import DEAR, ROOMY, generation, running, stream, suspended, talking
from timely_llm.conformance.policies.generations import capacities, plan_generations
from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.slo import REAL_TIME, TEXT, VOICE, Slo, SloClass
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.core.time_utility import URGENT, TimeUtility
from timely_llm.policies.deadline.policy import Deadline
from timely_llm.policies.deadline.stream_state import BEARABLE_S, PRESSING_S
from timely_llm.policies.step_time import StepTime

FAST = StepTime(0.0216, 0.00015, 0.00011)
TABLE_S = (0.026, 0.035, 0.044, 0.054, 0.063, 0.072, 0.081, 0.095, 0.1286)
SLOW = StepTime(0.0168, 0.0093, 0.0, table_s=TABLE_S, beyond_s=0.0004)
LONG = StepTime(0.0787, 0.0009, 0.000465)
"""Of a Jetson AGX Orin: a step takes most of the time of a token."""
CLASSES = (VOICE, TEXT, REAL_TIME, SloClass("impossible", Slo(tpot_s=0.001)))


def serve(
    wanted: Sequence[tuple[float, SloClass, int]],
    step_time: StepTime,
    policy: Deadline | None = None,
    plans: Sequence[Generation] = (),
    until_s: float = math.inf,
    capacity: Capacity = ROOMY,
) -> tuple[list[StreamGeneration], float]:
    """Serve streams to the end, beside plans that never end.

    Args:
        wanted: (arrival, class, tokens) of each; its prompt is computed like one more token.
        step_time: of the engine.
        policy: None: with its defaults.
        plans: others, which decode as well.
        until_s: no step begins later.
        capacity: of the engine.

    Returns:
        The streams in the order of their ends, and the longest step in seconds.
    """
    policy, now, longest_s = policy or Deadline(), 0.0, 0.0
    done: list[StreamGeneration] = []
    coming = [
        (stream(f"s{i}", arrival_s, of_class=of_class, to_compute=1, context=20), tokens)
        for i, (arrival_s, of_class, tokens) in enumerate(sorted(wanted, key=lambda w: w[0]))
    ]
    tokens_of = {made.key: tokens for made, tokens in coming}
    for made, tokens in coming:
        made.max_tokens = max(tokens, 25)
    for _ in range(20_000):
        if now > until_s:
            return [made for made, _ in coming if made.token_ids], longest_s
        live = [made for made, _ in coming if made.arrival_s <= now and made.state != State.ENDED]
        if not live:
            later_s = [made.arrival_s for made, _ in coming if made.arrival_s > now]
            if not later_s:
                return done, longest_s
            now = min(later_s)
            continue
        plan = policy.plan(now, [*plans, *live], step_time, capacity)
        assert plan, "the engine rests though a stream waits"
        step_s = step_time.predict_s(len(plan.entries))
        longest_s = max(longest_s, step_s)
        now += step_s
        for made in live:
            if made.key in plan.keys:
                made.token_ids.append(0)
                made.token_arrived(now)
                if len(made.token_ids) == tokens_of[made.key]:
                    made.state = State.ENDED
                    done.append(made)
    raise AssertionError("a stream is never served")


def met(made: StreamGeneration) -> bool:
    slo = made.request.slo
    return slo.met(made.first_s - made.arrival_s, made.tpot_s - 1e-9, made.last_s - made.arrival_s)


def check(plan: StepPlan, crowd: Sequence[Generation], capacity: Capacity) -> None:
    by_key = {one.key: one for one in crowd}
    assert len(plan.entries) == len(plan.keys) <= capacity.max_rows
    assert sum(tokens for _, tokens in plan.entries) <= capacity.max_step_tokens
    assert all(1 <= tokens <= by_key[key].to_compute for key, tokens in plan.entries)
    freed = sum(by_key[key].kv_tokens for key in plan.evictable)
    assert sum(tokens for _, tokens in plan.entries) <= capacity.free_tokens + freed
    assert not plan.keys & set(plan.evictable)


mixes = st.lists(
    st.tuples(st.floats(0, 3), st.sampled_from(CLASSES), st.integers(1, 30)),
    min_size=1,
    max_size=12,
)


@given(mixes, st.sampled_from([0.0, 1.0, 100.0]))
@examples(30)
def test_all_are_served_in_the_end(
    wanted: list[tuple[float, SloClass, int]], people: float
) -> None:
    assert len(serve(wanted, SLOW, Deadline(people=people))[0]) == len(wanted)


@given(st.data(), capacities)
@examples(60)
def test_a_step_never_takes_more_than_the_engine_has(
    data: st.DataObject, capacity: Capacity
) -> None:
    crowd: list[Generation] = [
        data.draw(plan_generations(f"g{i}")) for i in range(data.draw(st.integers(0, 5)))
    ]
    for place in range(data.draw(st.integers(1, 12))):
        tokens = data.draw(st.integers(0, 30))
        made = stream(
            f"s{place}",
            data.draw(st.floats(0, 10)),
            of_class=data.draw(st.sampled_from(CLASSES)),
            to_compute=data.draw(st.integers(1, 300)),
            context=data.draw(st.integers(0, 300)),
            tokens=tokens,
            first_s=data.draw(st.floats(10, 12)) if tokens else math.nan,
        )
        made.max_tokens = 64
        crowd.append(made)
    check(Deadline().plan(12.0, crowd, SLOW, capacity), crowd, capacity)


def crowds(classes: Sequence[SloClass]) -> st.SearchStrategy[list[tuple[float, SloClass, int]]]:
    """Return many streams of some classes: (arrival, class, tokens)."""
    one = st.tuples(st.floats(0, 6), st.sampled_from(classes), st.integers(2, 60))
    return st.lists(one, min_size=20, max_size=60)


@given(crowds(CLASSES), st.sampled_from([FAST, SLOW, DEAR, LONG]), st.integers(0, 6))
@examples(15, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_an_answer_that_has_begun_never_waits_longer_than_is_bearable(
    wanted: list[tuple[float, SloClass, int]], step_time: StepTime, busy: int
) -> None:
    assert_bearable(wanted, step_time, busy, ROOMY)


def assert_bearable(
    wanted: list[tuple[float, SloClass, int]], step_time: StepTime, busy: int, capacity: Capacity
) -> None:
    """Serve streams beside plans for 20 s: no answer that has begun waits for long."""
    plans = [running(f"p{i}", utility=URGENT) for i in range(busy)]
    begun, longest_s = serve(wanted, step_time, Deadline(), plans, 20.0, capacity)
    for made in begun:
        waits_s = 0.0 if made.state is State.ENDED else 20.0 - made.last_s
        assert max(made.largest_gap_s, waits_s) <= BEARABLE_S + longest_s


PEOPLE = tuple(one for one in CLASSES if not one.slo.real_time)


@given(
    crowds(PEOPLE),
    st.sampled_from([FAST, SLOW, DEAR, LONG]),
    st.integers(0, 6),
    st.sampled_from([1, 2, 4, 8]),
)
@examples(15, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_where_rows_lack_no_person_waits_longer_than_is_bearable_for_the_next_word(
    wanted: list[tuple[float, SloClass, int]], step_time: StepTime, busy: int, rows: int
) -> None:
    assert_bearable(wanted, step_time, busy, replace(ROOMY, max_rows=rows))


def test_the_nine_tasks_of_table_ii_all_get_their_rates() -> None:
    speeds = (0.1,) * 3 + (0.12,) * 4 + (0.25,) * 2
    nine = [(0.0, SloClass("x", Slo(tpot_s=tpot_s)), 150) for tpot_s in speeds]
    done, _ = serve(nine, SLOW)
    assert all(map(met, done))
    assert max(made.largest_gap_s for made in done) < 0.26


def test_too_many_streams_are_not_all_promised_a_share_and_those_who_are_keep_it() -> None:
    done, _ = serve([(0.0, TEXT, 100)] * 30, SLOW)
    assert 6 <= sum(map(met, done)) < 30


def test_an_answer_without_a_promise_keeps_a_quarter_of_its_rate() -> None:
    late = talking("late", arrival_s=85.0, tokens=30, first_s=85.5)
    late.last_s = 99.9
    served = overloaded(Deadline(), [late], 40.0, others=12)
    assert len(served) >= 10.0 * 0.25 * 40.0


def test_where_steps_are_long_an_answer_behind_its_rate_goes_on_beside_all_others() -> None:
    # Half of the engine would be slower than its rate: it is not late for that.
    policy, late = Deadline(), talking("behind", arrival_s=90.0, tokens=60, first_s=91.0)
    others = [talking(f"t{i}", tokens=20, first_s=98.0) for i in range(10)]
    late.last_s, late.max_tokens = 99.9, 200
    assert "behind" in policy.plan(100.0, [late, *others], LONG, ROOMY).keys
    assert not policy.streams.states["behind"].late


def test_a_real_time_answer_that_needs_all_of_the_engine_is_promised_that() -> None:
    # Its rate is bounded by the engine's; that bound is no less than the share of such a rate.
    for one_s in (0.0796, 0.07960889262655141, 0.07959764677211625, 0.0333, 0.021):
        policy, step_time = Deadline(), StepTime(one_s, 0.0, 0.0)
        machine = talking("m", arrival_s=99.0, tokens=1, first_s=99.5, of_class=REAL_TIME)
        machine.max_tokens = 60
        policy.plan(100.0, [machine], step_time, ROOMY)
        state = policy.streams.states["m"]
        assert not state.late and state.rate == state.need > 10.0


VERY_SLOW = StepTime(0.0978, 0.0012, 0.000256)
"""Of a Jetson AGX Thor: one step takes all of the time of a token."""


def test_real_time_answers_that_need_every_step_share_it_where_rows_are_cheap() -> None:
    # Each needs more than the engine can do, so one alone would take all of it.
    machines = [
        talking(f"m{i}", arrival_s=99.0, tokens=2, first_s=99.2, of_class=REAL_TIME)
        for i in range(4)
    ]
    for machine in machines:
        machine.max_tokens = 40
    policy = Deadline()
    policy.plan(100.0, machines, VERY_SLOW, ROOMY)
    rates = [policy.streams.states[machine.key].rate for machine in machines]
    assert min(rates) == max(rates) == pytest.approx(0.95 / VERY_SLOW.predict_s(4), rel=0.01)
    policy = Deadline()
    policy.plan(100.0, machines, StepTime(0.0978, 0.04, 0.0), ROOMY)
    rates = [policy.streams.states[machine.key].rate for machine in machines]
    assert min(rates) < 0.5 * max(rates)  # a row is expensive: one is in time


def test_an_answer_with_a_rate_beyond_the_engine_gets_what_others_leave() -> None:
    fast, reader = (SloClass("x", Slo(ttft_s=1.0, tpot_s=tpot_s)) for tpot_s in (0.05, 0.125))
    hopeless = [stream(f"h{i}", 99.9, of_class=fast, to_compute=1) for i in range(3)]
    policy = Deadline()
    policy.plan(100.0, hopeless, VERY_SLOW, ROOMY)
    states = [policy.streams.states[one.key] for one in hopeless]
    assert all(state.hopeless and not state.density and state.rate > 7.0 for state in states)
    others = [
        talking(f"t{i}", arrival_s=90.0, tokens=60, first_s=91.0, of_class=reader)
        for i in range(18)
    ]
    policy = Deadline()
    policy.plan(100.0, [*others, *hopeless], VERY_SLOW, ROOMY)
    states = [policy.streams.states[one.key] for one in others]
    assert all(state.rate == state.need for state in states)
    assert not any(policy.streams.states[one.key].rate for one in hopeless)


def test_a_late_real_time_answer_goes_on_at_a_bearable_rate() -> None:
    late = talking("late", arrival_s=90.0, tokens=5, first_s=90.2, of_class=REAL_TIME)
    late.last_s = 99.9
    served = overloaded(Deadline(), [late], 30.0, others=12)
    assert len(served) >= 30.0 / BEARABLE_S


def test_a_real_time_answer_goes_before_streams_that_can_wait() -> None:
    talkers = [talking(f"t{i}", tokens=20, first_s=8.0) for i in range(8)]
    machine = talking("m", arrival_s=9.5, tokens=5, first_s=9.6, of_class=REAL_TIME)
    for made in (*talkers, machine):
        made.max_tokens = 25
    plan = Deadline().plan(10.0, [*talkers, machine], SLOW, ROOMY)
    assert plan.entries[0][0] == "m"
    assert len(plan.entries) < 9


def overloaded(
    policy: Deadline, late: Sequence[StreamGeneration], seconds: float, others: int = 7
) -> list[str]:
    """Serve others that never end, seven fill the engine; return the keys of `late` served."""
    now, served = 100.0, []
    crowd = [talking(f"t{i}", tokens=20, first_s=now - 2.0) for i in range(others)]
    for made in (*late, *crowd):
        made.max_tokens = 200 if made in late else 4000
    while now < 100.0 + seconds:
        plan = policy.plan(now, [*late, *crowd], SLOW, ROOMY)
        now += SLOW.predict_s(len(plan.entries))
        for made in (*late, *crowd):
            if made.key in plan.keys:
                made.token_ids.append(0)
                made.token_arrived(now)
                served += [made.key] if made in late else []
    return served


def test_those_that_wait_begin_in_order_of_arrival() -> None:
    asked = [stream(f"w{i}", 10.0 + i, to_compute=1, context=20) for i in range(5)]
    served = overloaded(Deadline(), asked, 30.0)
    assert list(dict.fromkeys(served)) == [made.key for made in asked][: len(set(served))]
    assert served[0] == "w0"


def test_a_waiting_stream_begins_only_where_begun_ones_are_in_time() -> None:
    begun = talking("begun", arrival_s=50.0, tokens=30, first_s=51.0)
    begun.last_s = 99.9
    asked = [stream(f"w{i}", 10.0 + i, to_compute=1, context=20) for i in range(5)]
    assert set(overloaded(Deadline(), [*asked, begun], 10.0)) == {"begun"}


def test_they_all_go_on_where_no_stream_is_promised_anything() -> None:
    late = [stream(f"w{i}", 0.0, to_compute=1, context=20) for i in range(20)]
    for made in late:
        made.max_tokens = 100
    assert 1 <= len(Deadline().plan(50.0, late, SLOW, ROOMY).keys) <= 20


def test_after_overload_several_begin_at_the_bearable_rate() -> None:
    policy = Deadline()
    begun = talking("begun", arrival_s=50.0, tokens=30, first_s=51.0)
    begun.last_s = 99.9
    asked = [stream(f"w{i}", 10.0 + i, to_compute=1, context=20) for i in range(12)]
    in_time = talking("in time", tokens=20, first_s=98.0)
    for made in (begun, in_time, *asked):
        made.max_tokens = 60
    assert (
        not {made.key for made in asked}
        & policy.plan(100.0, [begun, in_time, *asked], SLOW, ROOMY).keys
    )
    in_time.state = State.ENDED
    begun.last_s = 118.9
    assert policy.plan(119.0, [begun, *asked], SLOW, ROOMY).keys == {"begun"}
    begun.last_s = 120.9
    plan = policy.plan(121.0, [begun, *asked], SLOW, ROOMY)
    assert plan.keys == {"begun", "w0", "w1", "w2", "w3", "w4"}  # a fifth of the engine


def test_where_rows_lack_as_many_late_answers_begin_as_keep_their_rates() -> None:
    done, _ = serve([(0.0, TEXT, 60)] * 100, FAST, capacity=replace(ROOMY, max_rows=4))
    late = [one for one in done if one.first_s > TEXT.slo.ttft_s]
    assert len(late) > 50
    assert all(one.tpot_s <= TEXT.slo.tpot_s for one in late), "no listener waits"
    ends_s = sorted(one.last_s for one in done)
    assert ends_s[-1] < 100 * 60 / 4 * FAST.predict_s(4) * 1.1, "no row is empty"


def test_where_rows_cost_nothing_late_streams_go_on_at_once() -> None:
    late = [stream(f"w{i}", 0.0, to_compute=1, context=20) for i in range(3)]
    crowd = [talking(f"t{i}", tokens=20, first_s=8.0) for i in range(20)]
    for made in (*late, *crowd):
        made.max_tokens = 100
    assert Deadline().plan(10.0, [*late, *crowd], FAST, ROOMY).keys >= {"w0", "w1", "w2"}


def promised(
    people: float, busy: int, plans: int, asked: int, step_time: StepTime
) -> tuple[set[str], set[str]]:
    """Return the new answers with a promise, beside plans and without any, after a busy time.

    Args:
        people: the option.
        busy: urgent plans in each of a hundred steps of ten seconds before.
        plans: those that are there when the answers are asked for.
        asked: number of the new answers.
        step_time: of the engine.
    """
    policy = Deadline(people=people)
    talker = talking("t", tokens=20, first_s=-1.9)
    talker.max_tokens = 100
    for tenth in range(100):
        before = [
            running(f"b{i}", arrival_s=0.1 * tenth - 0.4, utility=URGENT) for i in range(busy)
        ]
        policy.plan(0.1 * tenth, [talker, *before], step_time, ROOMY)
    urgent = [running(f"u{i}", arrival_s=9.9, utility=URGENT) for i in range(plans)]
    new = [stream(f"s{i}", 10.0) for i in range(asked)]
    for made in new:
        made.max_tokens = 100
    found = []
    for beside in (urgent, []):
        policy.plan(10.0, [talker, *beside, *new], step_time, ROOMY)
        states = policy.streams.states
        found.append({made.key for made in new if states[made.key].rate})
    return found[0], found[1]


few = st.integers(0, 4)


@given(st.integers(0, 12), few, st.integers(1, 4), st.sampled_from([FAST, SLOW, DEAR]))
@examples(20)
def test_the_more_people_are_worth_the_more_answers_are_promised_their_rate(
    busy: int, plans: int, asked: int, step_time: StepTime
) -> None:
    of_price = [promised(p, busy, plans, asked, step_time) for p in (0.5, 1.0, 2.0, 1e6)]
    counts = [len(beside) for beside, _ in of_price]
    assert counts == sorted(counts)
    beside, alone = of_price[-1]
    assert beside == alone, "people who are worth more than any plan do not notice the plans"
    assert len(alone) == asked, "plans that came before keep no answer waiting"


def test_a_bound_says_nothing_of_how_short_an_answer_is() -> None:
    machine = stream("m", 0.0, of_class=REAL_TIME, to_compute=1, context=20)
    machine.max_tokens = 1000
    talkers = [talking(f"t{i}", tokens=20, first_s=-1.9) for i in range(8)]
    for made in talkers:
        made.max_tokens = 100
    plan = Deadline().plan(0.01, [*talkers, machine], SLOW, ROOMY)
    assert plan.entries[0][0] == "m"


def machines(now: float, count: int = 4) -> list[StreamGeneration]:
    """Return real-time answers that fill the engine, and are worth more than a plan."""
    made = [
        talking(f"m{i}", arrival_s=now - 0.2, tokens=1, first_s=now, of_class=REAL_TIME)
        for i in range(count)
    ]
    for one in made:
        one.max_tokens = 18
    return made


@pytest.mark.parametrize(("step_time", "begins"), [(SLOW, False), (FAST, True)])
def test_a_new_answer_leaves_free_what_answers_with_deadlines_usually_take(
    step_time: StepTime, begins: bool
) -> None:
    policy = Deadline()
    for tenth in range(100):
        policy.plan(0.1 * tenth, machines(0.1 * tenth), step_time, ROOMY)
    asks = stream("s", 10.0)
    asks.max_tokens = 100
    policy.plan(10.0, [asks], step_time, ROOMY)
    assert bool(policy.streams.states["s"].rate) is begins, "rows that cost nothing are shared"


def test_where_steps_are_long_usual_work_with_deadlines_keeps_no_rows_empty() -> None:
    policy = Deadline()
    for tenth in range(100):
        policy.plan(0.1 * tenth, machines(0.1 * tenth, 2), LONG, ROOMY)
    others = [talking(f"t{i}", arrival_s=9.0, tokens=10, first_s=9.0) for i in range(6)]
    late = stream("late", 1.0, to_compute=1)
    plan = policy.plan(10.0, [*others, late], LONG, ROOMY)
    assert policy.streams.states["late"].late and "late" in plan.keys


def test_a_plan_that_is_worth_less_than_promised_streams_waits_for_them() -> None:
    plan = running("p", arrival_s=9.0)
    assert "p" not in Deadline().plan(10.0, [plan, *machines(10.0)], SLOW, ROOMY).keys
    assert "p" in Deadline().plan(10.0, [plan], SLOW, ROOMY).keys
    worth_more = running("p", arrival_s=9.0, utility=TimeUtility(beta=1000.0, alpha=-2000.0))
    assert "p" in Deadline().plan(10.0, [worth_more, *machines(10.0)], SLOW, ROOMY).keys


def talkers(now: float, count: int = 12) -> list[StreamGeneration]:
    """Return answers that need more than the engine has."""
    made = [talking(f"t{i}", tokens=20, first_s=now - 2.0) for i in range(count)]
    for one in made:
        one.max_tokens = 60
    return made


def idle_until_served(policy: Deadline, plan: PlanGeneration) -> float:
    """Return after how long an idle robot's plan takes part beside answers that never end."""
    for tenth in range(3000):
        now = plan.due_s + 0.1 * tenth
        if plan.key in policy.plan(now, [plan, *talkers(now)], SLOW, ROOMY).keys:
            return 0.1 * tenth
    raise AssertionError("a robot was idle for 300 s")


def test_a_plan_that_waits_for_streams_is_served_in_the_end() -> None:
    assert idle_until_served(Deadline(), suspended("s", robot_free_s=10.0)) < 200.0


def test_the_dearer_people_are_the_longer_a_plan_waits_for_them() -> None:
    waits_s = [
        idle_until_served(Deadline(people=people), suspended("s", robot_free_s=10.0))
        for people in (0.0, 0.25, 0.5, 1.0)
    ]
    assert waits_s[0] == 0.0
    assert waits_s == sorted(waits_s)
    assert waits_s[-1] > waits_s[0]


def test_plans_go_first_and_streams_take_what_they_leave() -> None:
    urgent = [running(f"u{i}", arrival_s=9.9, utility=URGENT) for i in range(3)]
    crowd = [talking(f"t{i}", tokens=20, first_s=8.0) for i in range(20)]
    for made in crowd:
        made.max_tokens = 100
    slow = Deadline().plan(10.0, [*crowd, *urgent], SLOW, ROOMY)
    assert [key for key, _ in slow.entries[:3]] == ["u0", "u1", "u2"]
    fast = Deadline().plan(10.0, [*crowd, *urgent], FAST, ROOMY)
    assert len(fast.entries) == 23, "where rows cost nothing, no stream waits"
    assert len(slow.entries) < 23


def test_a_long_prompt_is_computed_in_chunks_beside_an_urgent_plan() -> None:
    urgent = running("u", arrival_s=9.9, utility=URGENT)
    asker = stream("s", 10.0, to_compute=2000)
    asker.max_tokens = 100
    dear_prompts = StepTime(0.0216, 0.00015, 0.001)
    beside = dict(Deadline().plan(10.0, [asker, urgent], dear_prompts, ROOMY).entries)
    assert 0 < beside["s"] < 2000
    assert beside["u"] == 1


def test_a_stream_that_waits_for_a_step_in_flight_is_in_no_step() -> None:
    policy = Deadline()
    pair = [talking("a"), talking("b")]
    assert policy.plan(0.05, pair, FAST, ROOMY).keys == {"a", "b"}
    assert policy.plan(0.06, pair[:1], FAST, ROOMY).keys == {"a"}
    assert policy.plan(0.08, pair, FAST, ROOMY).keys == {"a", "b"}


TASK = SloClass("task", Slo(10.0, 0.05, 30.0))
CHAT = SloClass("chat", Slo(10.0, 0.05))
HURRIED = SloClass("hurried", Slo(1.0, 0.05))
TWO_ROWS = Capacity(free_tokens=100_000, max_rows=2, max_step_tokens=2048)


def _with_two_tasks(chat: StreamGeneration) -> list[StreamGeneration]:
    """Return an answer and two others with deadlines that are far off."""
    tasks = [talking(f"task{i}", of_class=TASK) for i in range(2)]
    for one in (chat, *tasks):
        one.max_tokens = 200
    return [chat, *tasks]


def test_where_rows_lack_an_answer_begins_before_it_would_be_late() -> None:
    pool = _with_two_tasks(stream("chat", 5.0, of_class=HURRIED))
    assert Deadline().plan(5.01, pool, FAST, TWO_ROWS).keys == {"task0", "task1"}
    assert "chat" in Deadline().plan(5.8, pool, FAST, TWO_ROWS).keys
    assert len(Deadline().plan(5.01, pool, FAST, ROOMY).keys) == 3


def test_where_rows_lack_an_answer_goes_on_before_its_next_token_is_late() -> None:
    pool = _with_two_tasks(talking("chat", of_class=HURRIED, first_s=5.0))
    assert "chat" not in Deadline().plan(5.01, pool, FAST, TWO_ROWS).keys
    assert "chat" in Deadline().plan(5.04, pool, FAST, TWO_ROWS).keys


def test_where_rows_lack_a_late_listener_comes_before_plans_and_after_a_hurried_task() -> None:
    now = 5.0
    late = talking("late", of_class=HURRIED, first_s=now - PRESSING_S - 0.1)
    late.arrival_s = 0.0
    plans = [running(f"p{i}", arrival_s=now, utility=URGENT) for i in range(3)]
    one_row = replace(TWO_ROWS, max_rows=1)
    policy = Deadline()
    assert policy.plan(now - 1.0, [late, *plans], FAST, one_row).keys < {"p0", "p1", "p2"}
    assert policy.plan(now, [late, *plans], FAST, one_row).keys == {"late"}
    assert "late" in policy.plan(now, [late, *plans], FAST, TWO_ROWS).keys
    task = stream("task", now - 0.1, of_class=REAL_TIME, to_compute=1, context=20)
    task.max_tokens = 15
    assert policy.plan(now, [late, task], LONG, one_row).keys == {"task"}
    assert policy.plan(now, [late, task], FAST, one_row).keys == {"late"}


def test_where_rows_lack_a_late_listener_has_its_rate_before_new_answers_have_theirs() -> None:
    now, policy, one_row = 5.0, Deadline(), replace(TWO_ROWS, max_rows=1)
    late = talking("late", arrival_s=0.0, tokens=20, of_class=HURRIED, first_s=1.0)
    late.last_s = now - 0.1
    new = [stream(f"new{i}", now, of_class=HURRIED) for i in range(4)]
    for one in (late, *new):
        one.max_tokens = 200
    while now < 9.0:
        (key,) = policy.plan(now, [late, *new], FAST, one_row).keys
        now += FAST.predict_s(1)
        for one in (late, *new):
            if one.key == key:
                one.token_ids.append(0)
                one.token_arrived(now)
    heard = len(late.token_ids) - 20
    assert heard > 0.9 * 4.0 / HURRIED.slo.tpot_s
    assert sum(bool(one.token_ids) for one in new) < 4


def test_where_rows_lack_an_answer_that_may_wait_has_its_row_until_it_ends() -> None:
    chats = [stream(f"chat{i}", of_class=CHAT, to_compute=1, context=20) for i in range(5)]
    for one in chats:
        one.max_tokens = 100
    policy, now, ended = Deadline(), 0.0, 0
    seen: list[str] = []
    while pool := [one for one in chats if one.state != State.ENDED]:
        plan = policy.plan(now, pool, FAST, TWO_ROWS)
        assert len(plan.keys) == min(len(pool), 2), "no row is empty"
        seen += [key for key in sorted(plan.keys) if key not in seen]
        assert plan.keys <= set(seen[: ended + 2]), "no third answer begins"
        now += FAST.predict_s(len(plan.keys))
        for one in pool:
            if one.key in plan.keys:
                one.token_ids.append(0)
                one.token_arrived(now)
                if len(one.token_ids) == 100:
                    one.state = State.ENDED
                    ended += 1
    assert all(one.first_s <= 10.0 for one in chats)


def test_streams_without_a_promise_are_evicted_first() -> None:
    late = [stream(f"w{i}", 0.0, context=50, to_compute=1) for i in range(3)]
    crowd = [talking(f"t{i}", tokens=20, first_s=48.0, context=50) for i in range(7)]
    for made in (*late, *crowd):
        made.max_tokens = 100
    urgent = generation("u", arrival_s=49.9, utility=URGENT, to_compute=150)
    full = Capacity(free_tokens=20, max_rows=64, max_step_tokens=512)
    plan = Deadline().plan(50.0, [*late, *crowd, urgent], SLOW, full)
    check(plan, [*late, *crowd, urgent], full)
    assert "u" in plan.keys
    assert set(plan.evictable[:2]) < {"w0", "w1", "w2"}, "one of them is the next that begins"
