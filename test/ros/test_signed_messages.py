"""Signatures cover each field of each ROS message that speaks for an agent."""

from __future__ import annotations

import array
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from rclpy.serialization import deserialize_message, serialize_message

from timely_llm import msg, srv
from timely_llm.action import Converse, Plan
from timely_llm.core.request import ErrorCode, Rejected
from timely_llm.identity.authenticator import Authenticator
from timely_llm.identity.keys import AgentKey
from timely_llm.identity.signature import Signer
from timely_llm.ros.identity.messages import SO_FAR, check, fields_of, sign, sign_for
from timely_llm.ros.identity.server_check import ServerCheck

KEY = AgentKey("rover", b"k" * 32)
KINDS = (
    Plan.Goal, Converse.Goal, msg.PlanRequest, msg.StreamRequest, msg.ExecutionReport,
    srv.CancelRequest.Request,
)  # fmt: skip


ANSWERS = (
    msg.Segment, msg.StreamChunk, msg.PlanResult, msg.StreamResult, Plan.Result, Converse.Result,
)  # fmt: skip


def filled(kind: Any) -> Any:
    made = kind(**({"agent": "rover"} if hasattr(kind, "agent") else {}))
    if hasattr(made, "calls"):
        made.calls = [msg.SkillCall(name="mf", arguments=[msg.SkillArgument(value="50")])]
    if hasattr(made, "messages"):
        made.messages = [msg.ChatMessage(role="user", content="Hi.")]
    return made


def changes(message: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield each message in a message, the name of each field, and another value for it."""
    for name in message.get_fields_and_field_types():
        value = getattr(message, name)
        if hasattr(value, "get_fields_and_field_types"):
            yield from changes(value)
        elif isinstance(value, list):
            yield message, name, [*value, *value]
            for one in value:
                yield from changes(one)
        elif isinstance(value, array.array):
            yield message, name, bytes(value)[:-1]
        elif isinstance(value, bool):
            yield message, name, not value
        else:
            yield message, name, value + ("x" if isinstance(value, str) else 1)


def changed_copies(message: Any) -> list[tuple[Any, str]]:
    """Return copies of a message, each with one changed field, and the name of the field."""
    count = sum(1 for _ in changes(message))
    assert count >= 5
    copies = []
    for number in range(count):
        changed = deepcopy(message)
        inner, name, value = list(changes(changed))[number]
        setattr(inner, name, value)
        copies.append((changed, name))
    return copies


def code(message: Any) -> ErrorCode:
    try:
        check(Authenticator({"rover": KEY}, True, "c"), message)
    except Rejected as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_any_changed_field_of_any_message_breaks_its_signature(kind: Any) -> None:
    message = sign(filled(kind), Signer(KEY), "c")
    assert code(message) is ErrorCode.NONE
    for changed, name in changed_copies(message):
        assert code(changed) is ErrorCode.NOT_AUTHENTICATED, name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_signature_holds_after_the_message_was_on_the_wire(kind: Any) -> None:
    message = sign(filled(kind), Signer(KEY), "c")
    received = deserialize_message(serialize_message(message), kind)
    assert fields_of(received) == fields_of(message)
    assert code(received) is ErrorCode.NONE


def test_without_keys_nothing_is_checked() -> None:
    check(None, msg.PlanRequest(agent="rover"))


def test_another_agent_cannot_sign_for_the_owner_of_a_request() -> None:
    server = Authenticator({"rover": KEY, "ann": AgentKey("ann", b"a" * 32)}, challenge="c")
    own = sign(filled(srv.CancelRequest.Request), Signer(KEY), "c")
    check(server, own, "rover")
    with pytest.raises(Rejected, match="only 'ann' may end its request"):
        check(server, own, "ann")


def checking(challenge: str = "c", accept_unsigned: bool = False) -> ServerCheck:
    return ServerCheck(Signer(KEY), lambda: challenge, accept_unsigned)


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
def test_a_client_drops_what_its_server_did_not_sign(kind: Any) -> None:
    server, client = Authenticator({"rover": KEY}, challenge="c"), checking()
    message = sign_for(server, "rover", filled(kind))
    assert client.takes(deserialize_message(serialize_message(message), kind))
    copies = changed_copies(message)
    for changed, name in copies:
        assert not client.takes(changed), name
    assert not client.takes(filled(kind))
    assert client.dropped == len(copies) + 1
    assert not checking("another start").takes(message)


def test_a_client_without_a_key_and_one_that_accepts_unsigned_messages_drop_nothing() -> None:
    segment = filled(msg.Segment)
    assert ServerCheck(None, lambda: "").takes(segment)
    assert checking("", accept_unsigned=True).takes(segment)
    assert not checking("c", accept_unsigned=True).takes(segment), "this server can sign"
    assert not checking("").takes(segment)


def test_forged_answers_of_services_count_as_none() -> None:
    server, client = Authenticator({"rover": KEY}, challenge="c"), checking()
    response = srv.GetResult.Response
    own = sign_for(server, "rover", filled(msg.PlanResult))
    assert client.result(response(state=response.PLAN, plan=own)).state == response.PLAN
    forged = response(state=response.PLAN, plan=filled(msg.PlanResult))
    assert client.result(forged).state == response.SERVED
    assert client.result(response(state=response.UNKNOWN)).state == response.UNKNOWN
    segments = [sign_for(server, "rover", filled(msg.Segment)), filled(msg.Segment)]
    answer = client.segments(srv.GetSegments.Response(segments=segments))
    assert answer.segments == segments[:1]


def test_a_text_so_far_counts_as_such_only_and_forged_ones_do_not() -> None:
    server, client = Authenticator({"rover": KEY}, challenge="c"), checking()
    response = srv.GetResult.Response
    text = msg.StreamResult(agent="rover", text="Hello, ")
    own = sign_for(server, "rover", deepcopy(text), SO_FAR)
    assert client.result(response(state=response.SERVED, answer=own)).answer == own
    forged = client.result(response(state=response.SERVED, answer=text))
    assert (forged.state, forged.answer.text) == (response.SERVED, "")
    as_result = client.result(response(state=response.ANSWER, answer=own))
    assert (as_result.state, as_result.answer.text) == (response.SERVED, ""), "it is no result"
