"""Being fast changed no decision."""

import math

from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import DEAR, ROOMY
from test.policies.reference import PLAIN, PlainFcfs
from timely_llm.conformance.policies.generations import capacities, plan_pools
from timely_llm.core.generation import PlanGeneration
from timely_llm.core.step import Capacity
from timely_llm.policies.fcfs import Stream
from timely_llm.policies.step_time import StepTime

STEP = StepTime(0.0216, 0.00015, 0.00011, 0.000001)
times = st.floats(0, 20)
step_times = st.sampled_from([STEP, DEAR])


@given(
    pool=plan_pools(),
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


@given(plan_pools(), capacities, times)
def test_first_come_first_served_decides_as_the_plain_one(
    pool: list[PlanGeneration], capacity: Capacity, now: float
) -> None:
    plain = PlainFcfs().plan(now, pool, STEP, capacity)
    assert Stream().plan(now, pool, STEP, capacity).entries == plain.entries
