"""What holds for every policy, whatever robots and people ask for: nobody starves or is garbled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.serving.scripted import Scene, request
from timely_llm.core.request import ErrorCode, Request
from timely_llm.core.slo import SLO_CLASSES, Slo
from timely_llm.core.stream import ChatMessage, StreamRequest
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.registry import POLICIES, make_policy

SLOS = [slo_class.slo for slo_class in SLO_CLASSES] + [Slo(ttft_s=0.01, tpot_s=0.02)]
PLANS = ["mf(50);->True;", "tc(90);mu(100);mf(50);->True;", "?s('cat'){g('cat');->True;};->False;"]
FLIGHTS = [(1, False), (2, False), (2, True), (4, True)]
"""Steps in flight, and whether sequences go ahead in them."""


@dataclass(frozen=True)
class Asked:
    """A request, when it comes, and what the model says to it."""

    at_s: float
    request: Request
    answer: str


def plan_request(name: str, urgent: bool) -> Request:
    return request(name, URGENT if urgent else NORMAL)


def stream_request(name: str, slo: Slo, weight: float) -> Request:
    said = (ChatMessage("user", "Tell me more."),)
    return StreamRequest(name, f"agent-{name}", messages=said, slo=slo, weight=weight)


@st.composite
def demands(draw: st.DrawFn) -> list[Asked]:
    """One to nine requests of robots and people within a short time."""
    times = sorted(draw(st.lists(st.floats(0.0, 0.6), min_size=1, max_size=9)))
    asked = []
    for number, at_s in enumerate(times):
        name = f"r{number}"
        if draw(st.booleans()):
            asked.append(
                Asked(at_s, plan_request(name, draw(st.booleans())), draw(st.sampled_from(PLANS)))
            )
        else:
            slo, weight = draw(st.sampled_from(SLOS)), draw(st.sampled_from([1.0, 100.0]))
            words = " ".join(f"word{i}" for i in range(draw(st.integers(1, 12))))
            asked.append(Asked(at_s, stream_request(name, slo, weight), words))
    return asked


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=100)
@given(
    asked=demands(),
    spare_tokens=st.sampled_from([60, 150, 1 << 20]),
    rows=st.integers(2, 9),
    flights=st.sampled_from(FLIGHTS),
)
def test_everybody_is_served_as_if_alone(
    policy: str, asked: list[Asked], spare_tokens: int, rows: int, flights: tuple[int, bool]
) -> None:
    in_flight, ahead = flights
    prefix_tokens = Scene({}).prefix_tokens
    scene = Scene(
        {one.request.request_id: one.answer for one in asked},
        make_policy(policy),
        engine=partial(SimulatedEngine, in_flight=in_flight, ahead=ahead),
        kv_tokens=prefix_tokens + spare_tokens,
        max_rows=rows,
    )
    coming = list(asked)
    for _ in range(4000):
        while coming and coming[0].at_s <= scene.clock.now():
            scene.loop.admit(coming.pop(0).request)
        turn = scene.loop.turn()
        if not turn.stepped:
            if not coming and not scene.loop.generations:
                break
            wake_s = min(turn.wake_s, coming[0].at_s if coming else turn.wake_s)
            scene.clock.advance(max(wake_s - scene.clock.now(), 0.0))
    assert not coming
    assert not scene.loop.generations, "somebody starves"
    results = scene.sink.results | scene.sink.answers
    for one in asked:
        result = results[one.request.request_id]
        assert (result.error_code, result.error_msg) == (ErrorCode.NONE, "")
        said = getattr(result, "plan", None) or getattr(result, "text", None)
        assert said == one.answer, "what was suspended or evicted goes on with the same words"
    assert scene.loop.free_kv_tokens == scene.free_at_start
