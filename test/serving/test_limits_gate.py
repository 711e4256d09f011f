"""Requests that the gate lets in, and the reasons of those it refuses."""

from dataclasses import replace
from typing import Any

import pytest

from test.serving.scripted import request
from timely_llm.core.request import ErrorCode, Rejected
from timely_llm.serving.limits import RequestGate, RequestLimits


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
