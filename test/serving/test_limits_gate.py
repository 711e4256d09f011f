"""Requests that the gate lets in, and the reasons of those it refuses."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.serving.scripted import request
from timely_llm.core.request import ChatMessage, ErrorCode, Rejected, Request, StreamRequest
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.serving.limits import RESERVED, RequestGate, RequestLimits


def gate(**limits: Any) -> RequestGate:
    made = RequestGate(RequestLimits(**limits))
    made.know("drone")
    return made


def code_of(made: RequestGate, name: str, agent: str = "", skill_set: str = "drone") -> ErrorCode:
    with pytest.raises(Rejected) as refused:
        made.enter(replace(request(name, agent=agent), skill_set=skill_set))
    assert "\n" not in str(refused.value)
    return refused.value.code


def test_requests_are_counted_from_entering_to_leaving() -> None:
    made = gate(max_requests=2)
    made.enter(request("a"))
    made.enter(request("b"))
    assert len(made) == 2
    assert code_of(made, "c") is ErrorCode.QUEUE_FULL
    made.leave("a")
    made.leave("a")
    made.enter(request("c"))
    assert len(made) == 2


def test_plans_written_by_hand_are_refused_unless_they_are_accepted() -> None:
    made, by_hand = gate(), request("a", given_plan="tp();", task="")
    with pytest.raises(Rejected, match=r"takes no plans written by hand.*accept_plans") as refused:
        made.enter(by_hand)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(made) == 0
    made = gate(accept_plans=True)
    made.enter(by_hand)
    assert len(made) == 1


def test_one_agent_cannot_take_all_places() -> None:
    made = gate(max_requests_per_agent=2)
    made.enter(request("a", agent="greedy"))
    made.enter(request("b", agent="greedy"))
    assert code_of(made, "c", agent="greedy") is ErrorCode.AGENT_LIMIT
    made.enter(request("c", agent="modest"))


def test_what_else_is_refused() -> None:
    made = gate()
    made.enter(request("a"))
    assert code_of(made, "a") is ErrorCode.DUPLICATE_REQUEST
    assert code_of(made, "b", skill_set="boat") is ErrorCode.UNKNOWN_SKILL_SET
    made.open(False)
    assert code_of(made, "b") is ErrorCode.INACTIVE
    made.open(True)
    made.enter(request("b"))
    made.close()
    assert code_of(made, "c") is ErrorCode.SHUTTING_DOWN


def answer(name: str, agent: str = "") -> StreamRequest:
    return StreamRequest(name, agent or f"agent-{name}", (ChatMessage("user", "Hello."),))


def let_in(made: RequestGate, *requests: Request) -> None:
    """Admit requests that wait for their first step."""
    for one in requests:
        assert made.enter(one) is None
        made.waits(one.request_id)


def befriend(made: RequestGate, *agents: str) -> None:
    """End a request of each agent without an error."""
    for agent in agents:
        made.enter(request(f"first-{agent}", agent=agent))
        made.leave(f"first-{agent}", well=True)


def test_an_urgent_plan_takes_the_place_of_the_newest_that_has_not_begun() -> None:
    made = gate(max_requests=3)
    let_in(made, answer("a"), answer("b"), answer("begun"))
    made.begun(["begun"])
    assert made.enter(request("urgent", URGENT)) == "b"
    assert len(made.requests) == 4, "the displaced one stays until it has ended"
    assert made.enter(request("urgent too", URGENT)) == "a"
    assert code_of(made, "normal") is ErrorCode.QUEUE_FULL
    with pytest.raises(Rejected, match="3 requests are being served, the most allowed"):
        made.enter(request("third", URGENT))
    assert made.leave("a")
    assert made.leave("b")
    assert len(made) == 3


def test_a_request_that_was_not_admitted_yet_is_not_displaced() -> None:
    made = gate(max_requests=1)
    made.enter(request("a"))
    with pytest.raises(Rejected):
        made.enter(request("urgent", URGENT))


def test_a_full_server_takes_a_place_from_the_agent_with_most_requests() -> None:
    made = gate(max_requests=4)
    let_in(made, *(request(f"g{i}", agent="greedy") for i in range(3)), request("m"))
    assert made.enter(request("n")) == "g2"
    made.leave("g2")
    assert made.enter(request("o")) == "g1"
    made.leave("g1")
    assert code_of(made, "p") is ErrorCode.QUEUE_FULL, "all have one"
    assert code_of(made, "g3", agent="greedy") is ErrorCode.QUEUE_FULL


def test_talkers_refuse_no_robot_and_robots_no_person() -> None:
    made = gate(max_requests=16)
    for i in range(14):
        made.enter(answer(f"s{i}"))
    with pytest.raises(Rejected, match=r"14 requests .* the places left are kept for others"):
        made.enter(answer("one more"))
    made.enter(request("p0"))
    made.enter(request("p1"))
    made = gate(max_requests=16)
    for i in range(14):
        made.enter(request(f"p{i}"))
    assert code_of(made, "one more") is ErrorCode.QUEUE_FULL
    made.enter(answer("s0"))


def test_new_names_do_not_evade_the_limit_of_an_agent() -> None:
    made = gate(max_requests=16, max_requests_per_agent=2)
    befriend(made, "robot", "person")
    names = [f"invented-{i}" for i in range(14)]
    for name in names[:7]:
        let_in(made, request(name, URGENT))
    for name in names[7:]:
        let_in(made, answer(name))
    made.begun(names)
    assert code_of(made, "invented again") is ErrorCode.QUEUE_FULL, "two places are for known ones"
    let_in(made, request("known", agent="robot"), answer("known too", "person"))
    assert code_of(made, "full", agent="robot") is ErrorCode.QUEUE_FULL, "nothing waits of unknown"


def test_unknown_agents_yield_to_known_ones_even_if_they_call_it_urgent() -> None:
    made = gate(max_requests=2)
    befriend(made, "robot")
    let_in(made, request("x", URGENT), request("y", URGENT))
    assert made.enter(request("known", agent="robot")) == "y"
    made.leave("y")
    made.waits("known")
    with pytest.raises(Rejected):
        made.enter(request("z", URGENT))


@examples(60)
@given(
    most=st.integers(1, 20),
    does=st.lists(
        st.tuples(st.sampled_from("papusbel"), st.integers(0, 4), st.integers(0, 30)), max_size=80
    ),
)
def test_places_are_bounded_and_nothing_that_began_is_displaced(
    most: int, does: list[tuple[str, int, int]]
) -> None:
    made, begun, displaced = gate(max_requests=most), set[str](), set[str]()
    for number, (what, agent, other) in enumerate(does):
        name, there = f"r{number}", [one.request_id for one in made.requests]
        if what in "be" and there:
            chosen = there[other % len(there)]
            if what == "b" and chosen not in displaced:
                made.begun([chosen])
                begun.add(chosen)
            elif what == "e":
                assert made.leave(chosen, well=bool(agent % 2))
        elif what in "pasu":
            who, utility = f"agent-{agent}", URGENT if what == "u" else NORMAL
            one = answer(name, who) if what in "as" else request(name, utility, agent=who)
            try:
                gone = made.enter(one)
            except Rejected as error:
                assert error.code in (ErrorCode.QUEUE_FULL, ErrorCode.AGENT_LIMIT)
                continue
            made.waits(name)
            if gone is not None:
                assert gone not in begun | displaced
                displaced.add(gone)
        counted = [one for one in made.requests if one.request_id not in displaced]
        plans = sum(not isinstance(one, StreamRequest) for one in counted)
        assert len(counted) <= most
        assert max(plans, len(counted) - plans) <= most - most // RESERVED
