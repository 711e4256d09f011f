"""What all policies keep to, and that being fast changed no decision."""

import math

from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import DEAR, ROOMY
from test.policies.pools import capacities, pools
from test.policies.reference import PLAIN, PlainFcfs
from timely_llm.core.generation import PlanGeneration
from timely_llm.policies.contract import Capacity
from timely_llm.policies.fcfs import Stream
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.policies.step_time import StepTime

STEP = StepTime(0.0216, 0.00015, 0.00011, 0.000001)
times = st.floats(0, 20)
step_times = st.sampled_from([STEP, DEAR])


@given(pool=pools(), capacity=capacities, now=times, step_time=step_times)
def test_a_plan_fits_the_engine_and_changes_nothing(
    pool: list[PlanGeneration], capacity: Capacity, now: float, step_time: StepTime
) -> None:
    before = [repr(g) for g in pool]
    by_key = {g.key: g for g in pool}
    for name in POLICIES:
        plan = make_policy(name).plan(now, pool, step_time, capacity)
        assert len(plan.entries) == len(plan.keys) <= capacity.max_rows
        assert all(1 <= tokens <= by_key[key].to_compute for key, tokens in plan.entries)
        planned = sum(tokens for _, tokens in plan.entries)
        assert planned <= capacity.max_step_tokens
        freed = sum(by_key[key].kv_tokens for key in plan.evictable)
        assert planned <= capacity.free_tokens + freed
        assert plan.keys.isdisjoint(plan.evictable)
        assert plan.wake_s > now
    assert [repr(g) for g in pool] == before


@given(pool=pools(), capacity=capacities, now=times, step_time=step_times)
def test_someone_goes_on_or_the_policy_says_when_to_ask_again(
    pool: list[PlanGeneration], capacity: Capacity, now: float, step_time: StepTime
) -> None:
    room = capacity.free_tokens + sum(g.kv_tokens for g in pool)
    if pool and all(g.to_compute + g.kv_tokens <= room for g in pool):
        for name in POLICIES:
            plan = make_policy(name).plan(now, pool, step_time, capacity)
            assert plan or plan.wake_s < math.inf


@given(
    pool=pools(),
    now=times,
    rows=st.integers(1, 12),
    admissions=st.integers(1, 3),
    lead_s=st.sampled_from([0.0, 0.5, math.inf]),
)
def test_with_enough_memory_decisions_are_those_of_the_plain_policies(
    pool: list[PlanGeneration], now: float, rows: int, admissions: int, lead_s: float
) -> None:
    for policy, plain in PLAIN.items():
        decided = policy(rows=rows, admissions=admissions, lead_s=lead_s)
        expected = plain(rows=rows, admissions=admissions, lead_s=lead_s)
        plan = decided.plan(now, pool, STEP, ROOMY)
        plain_plan = expected.plan(now, pool, STEP, ROOMY)
        assert (plan.entries, plan.wake_s) == (plain_plan.entries, plain_plan.wake_s)


@given(pools(), capacities, times)
def test_first_come_first_served_decides_as_the_plain_one(
    pool: list[PlanGeneration], capacity: Capacity, now: float
) -> None:
    plain = PlainFcfs().plan(now, pool, STEP, capacity)
    assert Stream().plan(now, pool, STEP, capacity).entries == plain.entries
