"""Strict class priority: the highest classes take the rows, whatever ran before."""

from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import ROOMY, generation, running, stream, talking
from test.policies.lanes import WORDS, Lanes, asked
from timely_llm.conformance.policies.generations import mixed_pools
from timely_llm.core.generation import Generation
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.slo import REAL_TIME, TEXT
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.contract import Policy, ask_for_reasons
from timely_llm.policies.fcfs import Orca, StrictPriority, class_weight
from timely_llm.policies.step_time import StepTime

STEP = StepTime(0.01, 0.0, 0.001)


def test_a_class_goes_before_an_earlier_arrival_of_a_lower_one() -> None:
    pool = [
        talking("person", arrival_s=0.0),
        generation("normal", 1.0),
        stream("machine", 2.0, of_class=REAL_TIME),
        generation("urgent", 3.0, utility=URGENT),
        generation("later", 4.0),
    ]
    assert [class_weight(g) for g in pool] == [1.0, 100.0, 100.0, 200.0, 100.0]
    served = []
    while pool:
        (key,) = StrictPriority(rows=1).plan(5.0, pool, STEP, ROOMY).keys
        served.append(key)
        pool = [g for g in pool if g.key != key]
    assert served == ["urgent", "normal", "machine", "later", "person"]


def test_a_full_batch_is_preempted_at_the_next_step() -> None:
    policy = StrictPriority(rows=2)
    people = [talking("a"), talking("b", arrival_s=0.1)]
    assert policy.plan(1.0, people, STEP, ROOMY).keys == {"a", "b"}
    machine = stream("m", 1.0, of_class=REAL_TIME)
    assert policy.plan(1.0, [*people, machine], STEP, ROOMY).keys == {"m", "a"}


def test_the_cap_bounds_the_batch() -> None:
    pool = [talking(f"s{n}") for n in range(20)]
    assert len(StrictPriority().plan(0.0, pool, STEP, ROOMY).keys) == 8
    assert len(StrictPriority(rows=32).plan(0.0, pool, STEP, ROOMY).keys) == 20


def test_memory_is_taken_from_the_lowest_class_and_its_latest_arrival_first() -> None:
    pool = [
        talking("early", arrival_s=0.0),
        talking("late", arrival_s=1.0),
        running("plan", arrival_s=2.0),
        generation("urgent", 3.0, utility=URGENT),
    ]
    full = Capacity(free_tokens=0, max_rows=256, max_step_tokens=2048)
    plan = StrictPriority(rows=1).plan(3.0, pool, STEP, full)
    assert plan.keys == {"urgent"}
    assert plan.evictable == ("late", "early", "plan")


def test_a_reason_is_the_weight_of_the_class() -> None:
    policy = StrictPriority(rows=1)
    assert ask_for_reasons(policy)
    plan = policy.plan(1.0, [talking("a"), generation("p")], STEP, ROOMY)
    assert dict(plan.reasons) == {"p": Reason(Cause.PRIORITY, 100.0), "a": Reason(Cause.ROWS, 1)}


@given(mixed_pools(), st.integers(1, 12))
def test_no_request_left_out_is_of_a_higher_class_than_one_in_the_batch(
    pool: list[Generation], rows: int
) -> None:
    roomy = Capacity(free_tokens=10**6, max_rows=256, max_step_tokens=10**6)
    plan = StrictPriority(rows=rows).plan(10.0, pool, STEP, roomy)
    assert len(plan.keys) == min(rows, len(pool))
    inside = [(class_weight(g), -g.arrival_s) for g in pool if g.key in plan.keys]
    outside = [(class_weight(g), -g.arrival_s) for g in pool if g.key not in plan.keys]
    assert not (inside and outside) or min(inside) >= max(outside)


def test_a_machine_among_people_is_served_sooner_than_by_arrival() -> None:
    answers = {f"s{n}": WORDS * 4 for n in range(6)} | {"m": WORDS}
    policies: list[Policy] = [StrictPriority(rows=4), Orca(rows=4)]
    ends_s = []
    for policy in policies:
        lanes = Lanes(answers, policy)
        people = [(0.0, asked(f"s{n}", TEXT)) for n in range(6)]
        lanes.serve([*people, (0.05, asked("m", REAL_TIME))])
        assert {key: answer.text for key, answer in lanes.sink.answers.items()} == answers
        ends_s.append(lanes.token_times_s["m"][-1])
    assert ends_s[0] < ends_s[1] / 2
