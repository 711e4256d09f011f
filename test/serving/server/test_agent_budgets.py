"""Budgets of agents: how often each may ask, and how much worth it may claim."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.serving.scripted import DRONE, PROFILE, Recorder, request
from timely_llm.core.clock import VirtualClock
from timely_llm.core.request import ChatMessage, ErrorCode, Rejected, Request, StreamRequest
from timely_llm.core.slo import LONGEST_S, REAL_TIME, TEXT, VOICE, Slo
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.histories.turned_server import TurnedServer
from timely_llm.policies.registry import make_policy
from timely_llm.serving.limits import RequestGate, RequestLimits
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.agent_budgets import (
    MOST_BUCKETS,
    AgentRates,
    TokenBuckets,
    claim_of,
    with_default_worth,
)

moments = st.lists(st.floats(0.0, 3.0), max_size=60)


def gate(clock: VirtualClock, **rates: Any) -> RequestGate:
    limits = RequestLimits(100_000, 100_000, rates=AgentRates(**rates))
    made = RequestGate(limits, clock)
    made.know("drone")
    return made


def befriend(made: RequestGate, agent: str) -> None:
    """End a request of an agent without an error."""
    made.enter(request(f"first-{agent}", agent=agent), must=True)
    made.leave(f"first-{agent}", well=True)


def answer(slo: Slo = TEXT.slo, weight: float = 1.0) -> StreamRequest:
    return StreamRequest("s", "ann", (ChatMessage("user", "Hello."),), slo=slo, weight=weight)


@examples(200)
@given(rate=st.floats(0.05, 50.0), burst=st.integers(1, 12), pauses=moments)
def test_no_window_has_more_than_the_burst_and_the_rate(
    rate: float, burst: int, pauses: list[float]
) -> None:
    buckets, now, taken = TokenBuckets(rate, burst), 0.0, list[float]()
    for pause_s in pauses:
        now += pause_s
        if buckets.wait_s("a", now) == 0.0:
            buckets.take("a", now)
            taken.append(now)
    for first, begin_s in enumerate(taken):
        for last, end_s in enumerate(taken[first:], start=first):
            assert last - first + 1 <= burst + rate * (end_s - begin_s) + 1e-6


@examples(200)
@given(rate=st.floats(0.05, 50.0), burst=st.integers(1, 12), pauses=moments)
def test_after_the_time_of_a_refusal_a_request_is_let_in(
    rate: float, burst: int, pauses: list[float]
) -> None:
    clock = VirtualClock(1e6)
    made = gate(clock, agent_requests_per_s=rate, agent_burst=burst, new_agents_requests_per_s=0.0)
    for number, pause_s in enumerate(pauses):
        clock.advance(pause_s)
        one = request(f"r{number}", agent="a")
        try:
            made.enter(one)
        except Rejected as error:
            assert error.code is ErrorCode.AGENT_LIMIT
            assert f"ask again in {error.retry_after_s:g} s" in str(error)
            clock.advance(error.retry_after_s)
            made.enter(one)


def test_a_full_bucket_needs_no_memory_and_the_number_is_bounded() -> None:
    buckets = TokenBuckets(1.0, 1, most=3)
    for number in range(10):
        buckets.take(f"n{number}", 0.0)
    assert len(buckets) == 3
    buckets.take("late", 100.0)
    assert len(buckets) == 1
    assert buckets.wait_s("late", 100.25) == pytest.approx(0.75)
    assert buckets.wait_s("late", 100.25, 2.0) == math.inf


def test_a_refused_request_takes_nothing() -> None:
    clock = VirtualClock()
    made = gate(clock, agent_requests_per_s=1.0, agent_burst=2)
    for name in ("a", "b"):
        made.enter(request(name, agent="robot"))
    for _ in range(50):
        with pytest.raises(Rejected, match=r"of 'robot' come faster than 1 a second.* in 1 s"):
            made.enter(request("c", agent="robot"))
    made.enter(request("c", agent="other"))
    clock.advance(1.0)
    made.enter(request("d", agent="robot"))


def test_what_must_be_let_in_passes_any_rate() -> None:
    made = gate(VirtualClock(), agent_requests_per_s=0.01, agent_burst=1)
    for number in range(5):
        made.enter(request(f"r{number}", agent="robot"), must=True)
    made.enter(request("own", agent="robot"))


def test_without_the_parameter_there_is_no_limit() -> None:
    made = gate(VirtualClock())
    for number in range(500):
        made.enter(request(f"r{number}", URGENT, agent="robot"))
        assert made.as_let_in(request(f"r{number}")).agent == "robot"
    assert made._budgets.buckets == 0


def test_invented_names_share_one_bucket_and_bounded_memory() -> None:
    clock = VirtualClock()
    made = gate(
        clock, agent_requests_per_s=0.001, agent_burst=5, new_agents_requests_per_s=100.0,
        new_agents_burst=10, agent_worth_per_min=10.0,
    )  # fmt: skip
    befriend(made, "robot")
    let_in = 0
    for number in range(20_000):
        clock.advance(0.005)
        try:
            made.enter(request(f"r{number}", URGENT, agent=f"invented-{number}"))
        except Rejected as error:
            assert error.code is ErrorCode.AGENT_LIMIT
            assert "agents of which none has ended well come faster than 100" in str(error)
        else:
            let_in += 1
            made.leave(f"r{number}")
    assert let_in <= 10 + 100 * clock.now()
    assert let_in > MOST_BUCKETS
    assert made._budgets.buckets <= 3 * MOST_BUCKETS
    made.enter(request("known", agent="robot"))


@pytest.mark.parametrize(
    ("asked", "claim"),
    [
        (request("a", NORMAL), 0.0),
        (request("a", TimeUtility(1.0, -0.01, 30.0)), 0.0),
        (request("a", URGENT), 5.0),
        (request("a", TimeUtility(1e300, 0.0, 0.0)), 1e300),
        (request("a", TimeUtility(1.0, -1e9, 0.0)), 5.0),
        (answer(), 0.0),
        (answer(VOICE.slo), 0.0),
        (answer(REAL_TIME.slo, REAL_TIME.weight), 100.0),
        (answer(Slo(deadline_s=LONGEST_S)), 1.0),
        (answer(Slo(tpot_s=0.01)), 10.0),
        (answer(weight=7.0), 7.0),
    ],
)
def test_what_a_request_claims(asked: Request, claim: float) -> None:
    assert claim_of(asked) == pytest.approx(claim)


@given(
    beta=st.floats(0.0, 1e12), alpha=st.floats(-1e12, 0.0), ert_s=st.floats(0.0, 1e6),
    ttft_s=st.floats(1e-6, LONGEST_S), tpot_s=st.floats(1e-6, LONGEST_S),
    deadline_s=st.floats(1e-6, LONGEST_S) | st.just(math.inf), weight=st.floats(0.0, 1e6),
)  # fmt: skip
def test_with_the_default_worth_a_request_claims_nothing_and_gains_nothing(
    beta: float, alpha: float, ert_s: float,
    ttft_s: float, tpot_s: float, deadline_s: float, weight: float,
) -> None:  # fmt: skip
    plan = request("a", TimeUtility(beta, alpha, ert_s))
    bounded: Any = with_default_worth(plan)
    assert claim_of(bounded) == 0.0
    assert bounded.time_utility.beta <= beta
    assert bounded.time_utility.ert_s >= ert_s
    stream = answer(Slo(ttft_s, tpot_s, deadline_s), weight)
    bounded = with_default_worth(stream)
    assert claim_of(bounded) == 0.0
    assert bounded.weight <= weight
    assert bounded.slo.ttft_s >= ttft_s


def test_claims_beyond_the_budget_count_with_the_default_worth(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    made = gate(clock, agent_worth_per_min=10.0)
    befriend(made, "robot")
    befriend(made, "other")

    def counted(name: str, agent: str, utility: TimeUtility = URGENT) -> Any:
        one = request(name, utility, agent=agent)
        made.enter(one)
        counts: Any = made.as_let_in(one)
        assert replace(counts, time_utility=utility) == one
        return counts.time_utility

    assert [counted(name, "robot") for name in "abc"] == [URGENT, URGENT, NORMAL]
    assert "request 'c' of 'robot' counts with the default worth: it claims 5" in caplog.text
    assert counted("d", "robot", TimeUtility(1.0, -1.0, 5.0)) == TimeUtility(1.0, -1.0, 5.0)
    assert counted("e", "other") == URGENT
    assert counted("f", "other", TimeUtility(1e6, -2e6, 60.0)) == TimeUtility(1.0, -2.0, 60.0)
    clock.advance(30.0)
    assert [counted(name, "robot") for name in "gh"] == [URGENT, NORMAL]
    assert [counted(f"i{n}", f"invented-{n}") for n in range(4)] == [URGENT] * 2 + [NORMAL] * 2


@examples(100)
@given(
    budget=st.floats(1.0, 100.0),
    does=st.lists(st.tuples(st.floats(0.0, 40.0), st.floats(0.0, 60.0)), max_size=40),
)
def test_the_worth_claimed_in_any_window_is_bounded(
    budget: float, does: list[tuple[float, float]]
) -> None:
    clock = VirtualClock()
    made, claims = gate(clock, agent_worth_per_min=budget), list[tuple[float, float]]()
    for number, (pause_s, beta) in enumerate(does):
        clock.advance(pause_s)
        one = request(f"r{number}", TimeUtility(beta, -1.0, 2.0), agent="robot")
        made.enter(one)
        claims.append((clock.now(), claim_of(made.as_let_in(one))))
    for first, (begin_s, _) in enumerate(claims):
        for last, (end_s, _) in enumerate(claims[first:], start=first):
            total = sum(claim for _, claim in claims[first : last + 1])
            assert total <= budget * (1.0 + (end_s - begin_s) / 60.0) + 1e-6


class Sink(Recorder):
    def accepted(self, request: Request) -> None:
        pass


def flood(**rates: Any) -> tuple[float, int]:
    """Let one robot flood a server for 20 s, and another one ask once a second.

    Returns:
        Mean utility of the other one's requests, and the plans of the first that were let in.
    """
    clock, sink = VirtualClock(), Sink()
    engine = SimulatedEngine(PROFILE, lambda key, prompt: "mf(100);tc(90);" * 12 + "->True;", clock)
    loop = Loop(engine, make_policy("deadline"), clock)
    limits = RequestLimits(1000, 1000, rates=AgentRates(**rates))
    server = TurnedServer(lambda: loop, sink, clock, limits, DRONE, "")
    befriend(server._gate, "honest")
    befriend(server._gate, "flood")
    asked = honest = let_in = 0
    while clock.now() < 20.0:
        while asked < 100 * clock.now():
            asked += 1
            try:
                server.submit(request(f"f{asked}", URGENT, agent="flood"))
                let_in += 1
            except Rejected as error:
                assert error.code in (ErrorCode.AGENT_LIMIT, ErrorCode.QUEUE_FULL)
        if honest < clock.now() < 18.0:
            honest += 1
            with contextlib.suppress(Rejected):
                server.submit(request(f"h{honest}", agent="honest"))
        before_s = clock.now()
        pause_s = server.turn()
        if clock.now() == before_s:
            clock.advance(max(min(pause_s, 0.02), 0.001))
    ended = [one for key, one in sink.results.items() if key.startswith("h")]
    return sum(max(one.utility, 0.0) for one in ended) / honest, let_in


def test_an_honest_robot_is_served_beside_a_flooding_one() -> None:
    free, _ = flood()
    bound, let_in = flood(agent_requests_per_s=2.0, agent_burst=4, agent_worth_per_min=20.0)
    assert let_in <= 4 + 2 * 20 + 1
    assert bound == 1.0
    assert free < 0.5
