"""A step plan fits the engine, whatever the generations are."""

from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import generation
from timely_llm.core.generation import Generation, State
from timely_llm.policies.contract import Capacity
from timely_llm.policies.packing import pack

capacities = st.builds(
    Capacity,
    free_tokens=st.integers(0, 2000),
    max_rows=st.integers(1, 16),
    max_step_tokens=st.integers(1, 512),
)


@st.composite
def pools(draw: st.DrawFn) -> list[Generation]:
    return [
        generation(
            f"g{i}",
            draw(st.floats(0, 10)),
            to_compute=draw(st.integers(1, 300)),
            context=draw(st.integers(0, 300)),
            state=draw(st.sampled_from([State.QUEUED, State.RUNNING, State.SUSPENDED])),
        )
        for i in range(draw(st.integers(0, 20)))
    ]


@given(pools(), capacities)
def test_a_plan_never_exceeds_rows_tokens_or_memory(
    pool: list[Generation], capacity: Capacity
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


def test_victims_are_those_whose_next_segment_is_due_last() -> None:
    early, late = (
        generation("e", 0.0, context=50, robot_free_s=1.0),
        generation("l", 0.0, context=50, robot_free_s=9.0),
    )
    plan = pack([generation("n")], [early, late], Capacity(1000, 8, 512))
    assert plan.evictable == ("l", "e")
