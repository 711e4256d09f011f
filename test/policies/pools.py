"""Random generations, for properties that hold whatever they are."""

from __future__ import annotations

from hypothesis import strategies as st

from test.policies.builders import generation
from timely_llm.core.generation import PlanGeneration, State
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.policies.contract import Capacity

TIMELESS = TimeUtility(beta=1.0, alpha=0.0, ert_s=1.0)

capacities = st.builds(
    Capacity,
    free_tokens=st.integers(0, 2000),
    max_rows=st.integers(1, 16),
    max_step_tokens=st.integers(1, 512),
)


@st.composite
def generations(draw: st.DrawFn, key: str) -> PlanGeneration:
    state = draw(st.sampled_from([State.QUEUED, State.RUNNING, State.SUSPENDED]))
    made = generation(
        key,
        draw(st.floats(0, 10)),
        utility=draw(st.sampled_from([NORMAL, URGENT, TIMELESS])),
        to_compute=draw(st.integers(1, 300)),
        context=draw(st.integers(0, 300)),
        state=state,
        robot_free_s=draw(st.none() | st.floats(0, 20)),
        segment_tokens=draw(st.integers(0, 15)),
    )
    made.shared_tokens = draw(st.integers(0, made.context_tokens))
    return made


@st.composite
def pools(draw: st.DrawFn) -> list[PlanGeneration]:
    return [draw(generations(f"g{i}")) for i in range(draw(st.integers(0, 20)))]
