"""A step plan fits the engine, whatever the generations are."""

from hypothesis import given

from test.policies.builders import generation
from test.policies.reference import plain_pack
from timely_llm.conformance.policies.generations import capacities, plan_pools
from timely_llm.core.generation import PlanGeneration
from timely_llm.core.step import Capacity
from timely_llm.policies.packing import pack


@given(plan_pools(), capacities)
def test_a_plan_never_exceeds_rows_tokens_or_memory(
    pool: list[PlanGeneration], capacity: Capacity
) -> None:
    plan = pack(pool, pool, capacity)
    by_key = {g.key: g for g in pool}
    assert len(plan.entries) == len(plan.keys) <= capacity.max_rows
    assert sum(tokens for _, tokens in plan.entries) <= capacity.max_step_tokens
    for key, tokens in plan.entries:
        assert 1 <= tokens <= by_key[key].to_compute
    freed = sum(by_key[key].kv_tokens for key in plan.evictable)
    assert sum(tokens for _, tokens in plan.entries) <= capacity.free_tokens + freed
    assert plan.keys.isdisjoint(plan.evictable)


@given(plan_pools(), capacities)
def test_victims_are_named_where_memory_lacks_and_decisions_are_the_plain_ones(
    pool: list[PlanGeneration], capacity: Capacity
) -> None:
    plan, plain = pack(pool, pool, capacity), plain_pack(pool, pool, capacity)
    assert plan.entries == plain.entries
    lacking = sum(tokens for _, tokens in plan.entries) > capacity.free_tokens
    assert plan.evictable == (plain.evictable if lacking else ())


def test_victims_are_the_plans_with_the_latest_due_time() -> None:
    early, late = (
        generation("e", 0.0, context=50, robot_free_s=1.0),
        generation("l", 0.0, context=50, robot_free_s=9.0),
    )
    newcomer = generation("n")
    everyone = [early, late, newcomer]
    assert pack([newcomer], everyone, Capacity(100, 8, 512)).evictable == ("l", "e")
    assert pack([newcomer], everyone, Capacity(110, 8, 512)).evictable == ()
