"""Signatures cover each field of each ROS message that speaks for an agent."""

from __future__ import annotations

import array
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from rclpy.serialization import deserialize_message, serialize_message
from rclpy.task import Future

from timely_llm import msg, srv
from timely_llm.action import Converse, Plan
from timely_llm.core.request import ErrorCode, Rejected
from timely_llm.identity.authenticator import Authenticator
from timely_llm.identity.keys import AgentKey
from timely_llm.identity.signature import Signer
from timely_llm.ros.identity.messages import check, fields_of, sign, sign_for, sign_response
from timely_llm.ros.identity.server_check import ServerCheck, unchecked

KEY = AgentKey("rover", b"k" * 32)
KINDS = (
    Plan.Goal, Converse.Goal, msg.PlanRequest, msg.StreamRequest, msg.ExecutionReport,
    srv.CancelRequest.Request,
)  # fmt: skip


ANSWERS = (
    msg.Segment, msg.StreamChunk, msg.PlanResult, msg.StreamResult, Plan.Result, Converse.Result,
)  # fmt: skip
SERVICES = (
    srv.GetIdentity, srv.GetResult, srv.GetSegments, srv.GetSkillSet, srv.ListRequests,
)  # fmt: skip


def filled(kind: Any) -> Any:
    made = kind(**({"agent": "rover"} if hasattr(kind, "agent") else {}))
    if hasattr(made, "calls"):
        made.calls = [msg.SkillCall(name="mf", arguments=[msg.SkillArgument(value="50")])]
    if hasattr(made, "messages"):
        made.messages = [msg.ChatMessage(role="user", content="Hi.")]
    if hasattr(made, "segments") and isinstance(made.segments, list):
        made.segments = [msg.Segment()]
    if hasattr(made, "requests"):
        made.requests = [msg.RequestStatus()]
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


def changed_copies(message: Any, least: int = 5) -> list[tuple[Any, str]]:
    """Return copies of a message, each with one changed field, and the name of the field."""
    count = sum(1 for _ in changes(message))
    copies = []
    for number in range(count):
        changed = deepcopy(message)
        inner, name, value = list(changes(changed))[number]
        setattr(inner, name, value)
        if changed != message:  # an empty signature within has no last byte
            copies.append((changed, name))
    assert len(copies) >= least
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


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.__name__)
def test_a_response_counts_only_for_the_question_that_it_answers(service: Any) -> None:
    server, client = Authenticator({"rover": KEY}, challenge="c"), checking()
    request, response = service.Request(agent="rover", nonce=7), filled(service.Response)
    if hasattr(response, "challenge"):
        response.challenge = "c"  # it is this message's own
    sign_response(server, request, response)
    read = deserialize_message(serialize_message(response), service.Response)
    assert client.answers(request, read)
    for changed, name in changed_copies(response, 1):
        assert not client.answers(request, changed), name
    for changed, name in changed_copies(request, 2):
        assert not client.answers(changed, response), name
    assert not client.answers(request, service.Response())
    other = sign_response(server, service.Request(agent="ann", nonce=7), deepcopy(response))
    assert not client.answers(request, other) and not other.signature, "the server has no such key"


def test_a_server_signs_for_the_agent_that_asks_whatever_the_answer_is_about() -> None:
    keys = {"rover": KEY, "ann": AgentKey("ann", b"a" * 32)}
    request = srv.GetResult.Request(request_id="ann's", agent="rover", nonce=1)
    about_ann = srv.GetResult.Response(state=srv.GetResult.Response.ANSWER)
    about_ann.answer.agent = "ann"
    sign_response(Authenticator(keys, challenge="c"), request, about_ann)
    assert checking().answers(request, about_ann)


class Answering:
    """A client of a service, with rclpy's future of each question."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.futures: list[Future[Any]] = []

    def call_async(self, request: Any) -> Future[Any]:
        self.asked.append(request)
        self.futures.append(Future())
        return self.futures[-1]


def test_an_answer_that_comes_first_hides_not_that_of_the_server() -> None:
    server, client, service = Authenticator({"rover": KEY}, challenge="c"), checking(), Answering()
    heard: list[Any] = []
    future = client.ask(service, srv.GetResult.Request(request_id="r"), heard.append)
    forged = srv.GetResult.Response()
    service.futures[0].set_result(forged)
    assert heard == [forged] and not future.done() and client.dropped == 1
    own = sign_response(server, service.asked[0], srv.GetResult.Response(state=1))
    service.futures[0].set_result(own)
    assert future.result() is own
    client.ask(service, srv.GetResult.Request(request_id="r"))
    service.futures[1].set_result(own)
    assert not service.futures[1].done(), "each question has a nonce of its own"


def test_a_client_without_a_key_takes_the_first_answer_and_names_no_agent() -> None:
    service = Answering()
    future = unchecked().ask(service, srv.GetResult.Request(request_id="r"))
    assert service.asked == [srv.GetResult.Request(request_id="r")]
    service.futures[0].set_result(srv.GetResult.Response())
    assert future.done()


def test_the_challenge_of_a_server_is_proven_by_its_signature() -> None:
    request = srv.GetIdentity.Request(agent="rover", nonce=7)
    client = checking("", accept_unsigned=False)
    known = sign_response(
        Authenticator({"rover": KEY}, challenge="now"), request,
        srv.GetIdentity.Response(challenge="now"),
    )  # fmt: skip
    assert client.answers(request, known)
    known.challenge = "of an earlier start"
    assert not client.answers(request, known)
    none = srv.GetIdentity.Response()
    assert not client.answers(request, none)
    assert checking("", accept_unsigned=True).answers(request, none)
