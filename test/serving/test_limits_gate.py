"""Requests that the gate lets in, and the reasons of those it refuses."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.serving.scripted import request
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    PlanRequest,
    Rejected,
    Request,
    StreamRequest,
)
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
    assert made.enter(request("known and urgent", URGENT, agent="robot")) == "known"
    made.leave("known")
    made.waits("known and urgent")
    assert made.enter(request("urgent too", URGENT, agent="robot")) == "x", "newcomers yield last"


def full_of_known(places: int) -> RequestGate:
    """Return a gate full of normal plans of known agents, and all but one wait."""
    made = gate(max_requests=places)
    fleet = [f"fleet-{n}" for n in range(places)]
    befriend(made, "robot", *fleet)
    answers = places // RESERVED
    let_in(made, *(answer(f"s{n}", agent=agent) for n, agent in enumerate(fleet[:answers])))
    let_in(made, *(request(f"n{n}", agent=agent) for n, agent in enumerate(fleet[answers:])))
    made.begun(["n0"])
    return made


def test_urgent_plans_of_new_robots_displace_normal_ones_up_to_an_eighth_of_the_places() -> None:
    made = full_of_known(16)
    for name, displaced in ("new-1", "n13"), ("new-2", "n12"):
        assert made.enter(request(name, URGENT)) == displaced
        made.leave(displaced)
        made.waits(name)
    assert code_of(made, "normal") is ErrorCode.QUEUE_FULL, "not urgent"
    with pytest.raises(Rejected, match="16 requests are being served, the most allowed"):
        made.enter(request("new-3", URGENT))
    assert made.enter(request("old", URGENT, agent="robot")) == "n11", "the known ones still can"
    made.leave("n11")
    made.leave("new-1", well=True)
    made.enter(request("as before", agent="fleet-0"))
    made.waits("as before")
    assert made.enter(request("new-3", URGENT)) == "as before", "a place for newcomers is free"


def test_a_new_robot_has_one_place_of_newcomers() -> None:
    made = full_of_known(16)
    assert made.enter(request("first", URGENT, agent="new")) == "n13"
    made.leave("n13")
    made.waits("first")
    with pytest.raises(Rejected):
        made.enter(request("second", URGENT, agent="new"))
    assert made.enter(request("other", URGENT)) == "n12"


def test_a_flood_of_urgent_plans_under_new_names_takes_no_urgent_plan_of_a_known_agent() -> None:
    made = gate(max_requests=16)
    befriend(made, *(f"robot-{n}" for n in range(14)))
    let_in(made, *(request(f"k{n}", URGENT, agent=f"robot-{n}") for n in range(14)))
    for number in range(50):
        with pytest.raises(Rejected):
            made.enter(request(f"new-{number}", URGENT))
    made = gate(max_requests=16)
    befriend(made, *(f"robot-{n}" for n in range(14)))
    for number in range(50):
        with suppress(Rejected):
            made.enter(request(f"new-{number}", URGENT))
            made.waits(f"new-{number}")
    for number in range(14):
        displaced = made.enter(request(f"k{number}", URGENT, agent=f"robot-{number}"))
        made.waits(f"k{number}")
        if displaced is not None:
            made.leave(displaced)
    served = {one.request_id for one in made.requests}
    assert served == {f"k{number}" for number in range(14)}


def urgent(one: Request) -> bool:
    return isinstance(one, PlanRequest) and one.time_utility.zero_s <= URGENT.zero_s


@examples(60)
@given(
    most=st.integers(1, 20),
    does=st.lists(
        st.tuples(st.sampled_from("papuusbel"), st.integers(0, 9), st.integers(0, 30)), max_size=80
    ),
)
def test_places_are_bounded_and_nothing_is_displaced_that_began_or_yields_less(
    most: int, does: list[tuple[str, int, int]]
) -> None:
    made, begun, displaced = gate(max_requests=most), set[str](), set[str]()
    known, newcomers = set[str](), max(most // RESERVED, 1)
    for number, (what, agent, other) in enumerate(does):
        name, there = f"r{number}", [one.request_id for one in made.requests]
        if what in "be" and there:
            chosen = there[other % len(there)]
            if what == "b" and chosen not in displaced:
                made.begun([chosen])
                begun.add(chosen)
            elif what == "e":
                (ended,) = (x.agent for x in made.requests if x.request_id == chosen)
                assert made.leave(chosen, well=bool(agent % 2))
                known |= {ended} if agent % 2 else set()
        elif what in "pasu":
            who, utility = f"agent-{agent}", URGENT if what == "u" else NORMAL
            one = answer(name, who) if what in "as" else request(name, utility, agent=who)
            before = [other for other in made.requests if other.request_id not in displaced]
            try:
                gone = made.enter(one)
            except Rejected as error:
                assert error.code in (ErrorCode.QUEUE_FULL, ErrorCode.AGENT_LIMIT)
                continue
            made.waits(name)
            if gone is not None:
                assert gone not in begun | displaced
                displaced.add(gone)
                (yielded,) = (other for other in before if other.request_id == gone)
                if yielded.agent in known and who not in known:
                    assert urgent(one) and not urgent(yielded)
                    new = {other.agent for other in before if urgent(other)} - known
                    assert who not in new and len(new) < newcomers, "a newcomer's place is free"
                if urgent(yielded):
                    assert urgent(one) or (who in known and yielded.agent not in known)
        counted = [one for one in made.requests if one.request_id not in displaced]
        plans = sum(not isinstance(one, StreamRequest) for one in counted)
        assert len(counted) <= most
        assert max(plans, len(counted) - plans) <= most - most // RESERVED
