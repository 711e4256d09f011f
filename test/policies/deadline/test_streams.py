import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.builders import ROOMY, generation, running, stream, talking
from timely_llm.conformance.policies.generations import capacities, plan_generations
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation, State, StreamGeneration
from timely_llm.core.slo import REAL_TIME, TEXT, VOICE, Slo, SloClass
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.contract import Policy
from timely_llm.policies.deadline.plans import Deadline
from timely_llm.policies.deadline.streams import PlanLoad, Streams
from timely_llm.policies.registry import make_policy
from timely_llm.policies.step_time import StepTime

FAST = StepTime(0.0216, 0.00015, 0.00011)
TABLE_S = (0.026, 0.035, 0.044, 0.054, 0.063, 0.072, 0.081, 0.095, 0.1286)
SLOW = StepTime(0.0168, 0.0093, 0.0, table_s=TABLE_S, beyond_s=0.0004)
CLASSES = (VOICE, TEXT, REAL_TIME, SloClass("impossible", Slo(tpot_s=0.001)))


def serve(
    wanted: Sequence[tuple[float, SloClass, int]], step_time: StepTime, capacity: Capacity = ROOMY
) -> list[StreamGeneration]:
    """Serve (arrival, class, tokens) to the end; prompts are computed like one more token."""
    policy, now = Deadline(), 0.0
    done: list[StreamGeneration] = []
    coming = [
        (stream(f"s{i}", arrival_s, of_class=of_class, to_compute=1, context=20), tokens)
        for i, (arrival_s, of_class, tokens) in enumerate(sorted(wanted, key=lambda w: w[0]))
    ]
    tokens_of = {made.key: tokens for made, tokens in coming}
    for made, tokens in coming:
        made.max_tokens = max(tokens, 25)
    for _ in range(20_000):
        live = [made for made, _ in coming if made.arrival_s <= now and made.state != State.ENDED]
        if not live:
            later_s = [made.arrival_s for made, _ in coming if made.arrival_s > now]
            if not later_s:
                return done
            now = min(later_s)
            continue
        plan = policy.plan(now, live, step_time, capacity)
        assert plan, "the engine rests though a stream waits"
        now += step_time.predict_s(len(plan.entries))
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


@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.sampled_from(CLASSES), st.integers(1, 30)),
        min_size=1,
        max_size=12,
    )
)
@examples(30)
def test_all_are_served_in_the_end(wanted: list[tuple[float, SloClass, int]]) -> None:
    assert len(serve(wanted, SLOW)) == len(wanted)


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


def test_the_nine_tasks_of_table_ii_all_get_their_rates() -> None:
    speeds = (0.1,) * 3 + (0.12,) * 4 + (0.25,) * 2
    nine = [(0.0, SloClass("x", Slo(tpot_s=tpot_s)), 150) for tpot_s in speeds]
    done = serve(nine, SLOW)
    assert all(map(met, done))
    assert max(made.largest_gap_s for made in done) < 0.23


def test_too_many_streams_are_not_all_promised_a_share_and_those_who_are_keep_it() -> None:
    done = serve([(0.0, TEXT, 100)] * 30, SLOW)
    assert 6 <= sum(map(met, done)) < 30


def test_a_real_time_answer_goes_before_streams_that_can_wait() -> None:
    talkers = [talking(f"t{i}", tokens=20, first_s=8.0) for i in range(8)]
    machine = talking("m", arrival_s=9.5, tokens=5, first_s=9.6, of_class=REAL_TIME)
    for made in (*talkers, machine):
        made.max_tokens = 25
    plan = Deadline().plan(10.0, [*talkers, machine], SLOW, ROOMY)
    assert plan.entries[0][0] == "m"
    assert len(plan.entries) < 9


def test_a_stream_without_a_share_is_not_left_for_ever() -> None:
    policy, now = Deadline(), 100.0
    late = talking("late", arrival_s=0.0, tokens=30, first_s=1.0)
    late.last_s = 60.0
    late.max_tokens = 60
    for turn in range(300):
        crowd = [
            talking(f"t{i}", tokens=100 + turn, first_s=now - 10 - 0.1 * turn) for i in range(7)
        ]
        for made in crowd:
            made.max_tokens = 2000
        if "late" in policy.plan(now, [late, *crowd], SLOW, ROOMY).keys:
            return
        now += 0.1
    raise AssertionError("one stream was passed over for 30 s")


def overloaded(
    policy: Policy, late: Sequence[StreamGeneration], seconds: float, others: int = 7
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


def test_an_answer_that_has_begun_goes_on_before_another_begins() -> None:
    begun = talking("begun", arrival_s=50.0, tokens=30, first_s=51.0)
    begun.last_s = 90.0
    asked = [stream(f"w{i}", 10.0 + i, to_compute=1, context=20) for i in range(5)]
    assert set(overloaded(Deadline(), [*asked, begun], 30.0)) == {"begun"}
    assert overloaded(Deadline(), asked, 30.0)[0] == "w0", "the one that asked first"


def test_no_stream_takes_part_twice() -> None:
    late = [stream(f"w{i}", 0.0, to_compute=1, context=20) for i in range(5)]
    for made in late:
        made.max_tokens = 100
    streams = Streams()
    chosen = streams.choose(50.0, late, PlanLoad(), SLOW)
    assert (len(chosen.streams), chosen.tokens) == (5, 5)
    talker = talking("t", tokens=20, first_s=58.1)
    talker.max_tokens = 100
    chosen = streams.choose(60.0, [*late, talker], PlanLoad(), SLOW)
    assert len(chosen.streams) == len({made.key for made in chosen.streams}) == chosen.tokens > 1


def test_they_wait_in_line_only_while_others_are_promised_something() -> None:
    late = [stream(f"w{i}", 0.0, to_compute=1, context=20) for i in range(20)]
    for made in late:
        made.max_tokens = 100
    policy = Deadline()
    assert len(policy.plan(50.0, late, SLOW, ROOMY).keys) == 20, "long since no stream"
    asks = stream("new", 60.0, to_compute=1, context=20)
    asks.max_tokens = 100
    policy.plan(60.0, [asks], SLOW, ROOMY)
    assert 2 <= len(policy.plan(61.0, late, SLOW, ROOMY).keys) < 12, "soon a request may come"
    assert len(policy.plan(70.0, late, SLOW, ROOMY).keys) == 20


def test_where_rows_cost_nothing_late_streams_go_on_at_once() -> None:
    late = [stream(f"w{i}", 0.0, to_compute=1, context=20) for i in range(3)]
    crowd = [talking(f"t{i}", tokens=20, first_s=8.0) for i in range(20)]
    for made in (*late, *crowd):
        made.max_tokens = 100
    assert Deadline().plan(10.0, [*late, *crowd], FAST, ROOMY).keys >= {"w0", "w1", "w2"}


def test_the_room_that_urgent_plans_need_is_no_obstacle_where_rows_cost_nothing() -> None:
    policy = Deadline()
    talker = talking("t", tokens=20, first_s=-1.9)
    talker.max_tokens = 100
    for turn in range(100):
        urgent = [running(f"u{i}", arrival_s=0.1 * turn - 0.4, utility=URGENT) for i in range(25)]
        policy.plan(0.1 * turn, [talker, *urgent], FAST, ROOMY)
    asks = stream("s", 10.0)
    asks.max_tokens = 100
    assert "s" in policy.plan(10.0, [talker, asks], FAST, ROOMY).keys


def test_an_answer_that_is_late_is_finished_if_that_is_wanted() -> None:
    def lag() -> StreamGeneration:
        late = talking("late", arrival_s=85.0, tokens=30, first_s=85.5)
        late.last_s = 99.0
        return late

    assert len(overloaded(make_policy("deadline", finish=True), [lag()], 20.0, others=6)) > 100
    assert 2 <= len(overloaded(Deadline(), [lag()], 20.0, others=6)) < 20


def test_a_bound_says_nothing_of_how_short_an_answer_is() -> None:
    machine = stream("m", 0.0, of_class=REAL_TIME, to_compute=1, context=20)
    machine.max_tokens = 1000
    talkers = [talking(f"t{i}", tokens=20, first_s=-1.9) for i in range(8)]
    for made in talkers:
        made.max_tokens = 100
    plan = Deadline().plan(0.01, [*talkers, machine], SLOW, ROOMY)
    assert plan.entries[0][0] == "m"


def test_plans_go_first_and_streams_take_what_they_leave() -> None:
    urgent = [running(f"u{i}", arrival_s=9.9, utility=URGENT) for i in range(3)]
    talkers = [talking(f"t{i}", tokens=20, first_s=8.0) for i in range(20)]
    for made in talkers:
        made.max_tokens = 100
    slow = Deadline().plan(10.0, [*talkers, *urgent], SLOW, ROOMY)
    assert [key for key, _ in slow.entries[:3]] == ["u0", "u1", "u2"]
    fast = Deadline().plan(10.0, [*talkers, *urgent], FAST, ROOMY)
    assert len(fast.entries) == 23, "where rows cost nothing, no stream waits"
    assert len(slow.entries) < 23


def test_a_long_prompt_is_computed_in_chunks_beside_an_urgent_plan() -> None:
    urgent = running("u", arrival_s=9.9, utility=URGENT)
    asker = stream("s", 10.0, to_compute=2000)
    asker.max_tokens = 100
    alone = dict(Deadline().plan(10.0, [asker], FAST, ROOMY).entries)["s"]
    beside = dict(Deadline().plan(10.0, [asker, urgent], FAST, ROOMY).entries)
    assert 0 < beside["s"] < alone < 2000
    assert beside["u"] == 1


def test_plans_alone_are_planned_as_if_there_were_no_streams() -> None:
    crowd = [generation(f"n{i}") for i in range(4)]
    policy = Deadline()
    before = policy.plan(0.1, crowd, FAST, ROOMY)
    policy.plan(0.1, [*crowd, talking("t")], FAST, ROOMY)
    assert policy.plan(0.1, crowd, FAST, ROOMY) == before


def test_a_quantile_is_below_one() -> None:
    with pytest.raises(ConfigurationError, match="quantile must be from 0 on and below 1, not 1"):
        make_policy("deadline", quantile=1.0)
