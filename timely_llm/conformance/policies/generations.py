"""Random generations, capacities and moments, for promises that hold whatever they are."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from hypothesis import strategies as st

from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.request import ChatMessage, PlanRequest, StreamRequest
from timely_llm.core.segment import Segment
from timely_llm.core.slo import REAL_TIME, TEXT, VOICE, Slo, SloClass
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.policies.step_time import StepTime

TIMELESS = TimeUtility(beta=1.0, alpha=0.0, ert_s=1.0)
CHEAP_ROWS = StepTime(0.0216, 0.00015, 0.00011, 0.000001)
"""Seconds of a step of Llama 3 8B on an RTX 4090."""
DEAR_ROWS = StepTime(0.0168, 0.0093, 0.00011)
"""Each row takes half as long as an empty step."""
PROMPT_TOKENS = 110

times = st.floats(0, 20)
step_times = st.sampled_from([CHEAP_ROWS, DEAR_ROWS])
capacities = st.builds(
    Capacity,
    free_tokens=st.integers(0, 2000),
    max_rows=st.integers(1, 16),
    max_step_tokens=st.integers(1, 512),
)
_states = st.sampled_from([State.QUEUED, State.RUNNING, State.SUSPENDED])
classes = st.sampled_from([VOICE, TEXT, REAL_TIME]) | st.builds(
    lambda tpot_s, weight: SloClass("own", Slo(tpot_s=tpot_s), weight),
    st.floats(1e-9, 10.0),
    st.floats(0.0, 1e6),
)


@st.composite
def plan_generations(draw: st.DrawFn, key: str) -> PlanGeneration:
    """Return plans in any state, some of which have delivered a segment."""
    request = PlanRequest(
        key, f"agent-{key}", "drone", "fly", draw(st.sampled_from([NORMAL, URGENT, TIMELESS]))
    )
    arrival_s = draw(st.floats(0, 10))
    to_compute, context = draw(st.integers(1, 300)), draw(st.integers(0, 300))
    made = PlanGeneration(
        key, request, arrival_s, PROMPT_TOKENS, to_compute, context, state=draw(_states)
    )
    robot_free_s = draw(st.none() | st.floats(0, 20))
    if robot_free_s is not None:
        made.segments.append(Segment(key, request.agent, 0, "mf(50);", predicted_s=2.0))
        made.robot_free_s = robot_free_s
    made.segment_tokens = draw(st.integers(0, 15))
    made.shared_tokens = draw(st.integers(0, made.context_tokens))
    return made


@st.composite
def stream_generations(draw: st.DrawFn, key: str) -> StreamGeneration:
    """Return streams in any state, some of which have tokens."""
    of_class = draw(classes)
    asked = (ChatMessage("user", "hello"),)
    request = StreamRequest(key, f"agent-{key}", asked, of_class.slo, of_class.weight)
    tokens = draw(st.integers(0, 50))
    arrival_s, state = draw(st.floats(0, 10)), draw(_states)
    to_compute, context = draw(st.integers(1, 300)), draw(st.integers(0, 300))
    made = StreamGeneration(key, request, arrival_s, 40, to_compute, context, state=state)
    made.token_ids = [0] * tokens
    made.first_s = draw(st.floats(0, 20)) if tokens else math.nan
    return made


@st.composite
def plan_pools(draw: st.DrawFn) -> list[PlanGeneration]:
    """Return up to 20 plans."""
    return [draw(plan_generations(f"g{i}")) for i in range(draw(st.integers(0, 20)))]


@st.composite
def mixed_pools(draw: st.DrawFn) -> list[Generation]:
    """Return up to 16 plans and streams."""
    streams = draw(st.lists(st.booleans(), max_size=16))
    return [
        draw(stream_generations(f"s{place}") if stream else plan_generations(f"g{place}"))
        for place, stream in enumerate(streams)
    ]


pools = plan_pools() | mixed_pools()


def described(case: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the lines of a case: one for each generation, and one for each other value."""
    lines: list[str] = []
    for name, value in case.items():
        if name == "pool":
            lines += _generations(value)
        elif isinstance(value, Capacity):
            lines.append(
                f"capacity: free_tokens {value.free_tokens}, max_rows {value.max_rows},"
                f" max_step_tokens {value.max_step_tokens}"
            )
        elif isinstance(value, StepTime):
            one_s, eight_s = value.predict_s(1), value.predict_s(8)
            lines.append(f"step time: {one_s:.3g} s for one row, {eight_s:.3g} s for 8")
        else:
            lines.append(f"{name} = {value!r}")
    return tuple(lines)


def _generations(pool: Collection[Generation]) -> list[str]:
    if not pool:
        return ["no generations"]
    return [
        f"{g.key}: a {'plan' if isinstance(g, PlanGeneration) else 'stream'}, {g.state.value},"
        f" arrived at {g.arrival_s:g}, due at {g.due_s:g}, to_compute {g.to_compute},"
        f" context_tokens {g.context_tokens}, kv_tokens {g.kv_tokens}"
        for g in pool
    ]
