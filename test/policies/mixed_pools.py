"""Random plans and streams together, for properties that hold whatever they are."""

from __future__ import annotations

from hypothesis import strategies as st

from test.policies.builders import stream
from test.policies.pools import generations
from timely_llm.core.generation import Generation, State, StreamGeneration
from timely_llm.core.slo import REAL_TIME, TEXT, VOICE, Slo, SloClass

classes = st.sampled_from([VOICE, TEXT, REAL_TIME]) | st.builds(
    lambda tpot_s, weight: SloClass("own", Slo(tpot_s=tpot_s), weight),
    st.floats(1e-9, 10.0),
    st.floats(0.0, 1e6),
)


@st.composite
def streams(draw: st.DrawFn, key: str) -> StreamGeneration:
    tokens = draw(st.integers(0, 50))
    return stream(
        key,
        draw(st.floats(0, 10)),
        of_class=draw(classes),
        state=draw(st.sampled_from([State.QUEUED, State.RUNNING, State.SUSPENDED])),
        to_compute=draw(st.integers(1, 300)),
        context=draw(st.integers(0, 300)),
        tokens=tokens,
        first_s=draw(st.floats(0, 20)) if tokens else float("nan"),
    )


@st.composite
def mixed_pools(draw: st.DrawFn) -> list[Generation]:
    number = draw(st.integers(0, 16))
    return [
        draw(streams(f"s{place}") if draw(st.booleans()) else generations(f"g{place}"))
        for place in range(number)
    ]
