"""Signatures in ROS messages: all fields of a message are signed, whatever its type."""

from __future__ import annotations

from typing import Any, TypeVar

from rcl_interfaces.msg import ParameterDescriptor
from rclpy.node import Node

from timely_llm import msg
from timely_llm.core.request import ErrorCode, Rejected
from timely_llm.core.text import quoted
from timely_llm.identity.authenticator import Authenticator
from timely_llm.identity.canonical import SignedValue
from timely_llm.identity.signature import Signature, Signer

CHALLENGE = "challenge"
"""The server's parameter with its challenge."""
FIELD = "signature"
AnyMessage = TypeVar("AnyMessage")


def declare_challenge(node: Node, authenticator: Authenticator | None) -> None:
    """Declare the challenge as a parameter that clients read; empty: the server checks no keys."""
    what = "drawn at each start, part of each signature; empty: the server checks no keys"
    value = "" if authenticator is None else authenticator.challenge
    descriptor = ParameterDescriptor(description=what, read_only=True)
    node.declare_parameter(CHALLENGE, value, descriptor, ignore_override=True)


def sign(message: AnyMessage, signer: Signer, challenge: str) -> AnyMessage:
    """Sign a message with all its fields as they are now; return it.

    Args:
        message: with a field `signature`.
        signer: of the client.
        challenge: the server's.
    """
    made = signer.sign(challenge, type(message).__name__, fields_of(message))
    signature = msg.Signature(session=made.session, counter=made.counter, code=made.code)
    setattr(message, FIELD, signature)
    return message


def sign_for(authenticator: Authenticator | None, agent: str, message: AnyMessage) -> AnyMessage:
    """Sign a message of a server with all its fields as they are now; return it.

    Args:
        authenticator: None, or without a key of the agent: it is not signed.
        agent: of the request that the message is about.
        message: with a field `signature` of bytes.
    """
    if authenticator is not None:
        kind = type(message).__name__
        setattr(message, FIELD, authenticator.sign(agent, kind, fields_of(message)))
    return message


def sign_response(
    authenticator: Authenticator | None, request: Any, response: AnyMessage
) -> AnyMessage:
    """Sign the response of a service for the agent that asked; return it.

    Args:
        authenticator: None, or without a key of the agent: it is not signed.
        request: with the fields `agent` and `nonce`.
        response: with a field `signature` of bytes.
    """
    if authenticator is not None and request.agent:
        fields = exchange(request, response)
        made = authenticator.sign(request.agent, type(response).__name__, fields)
        setattr(response, FIELD, made)
    return response


def exchange(request: Any, response: Any) -> dict[str, SignedValue]:
    """Return what the signature of a response covers: no response passes for another request's."""
    return {"request": fields_of(request), "response": fields_of(response)}


def check(authenticator: Authenticator | None, message: Any, owner: str | None = None) -> None:
    """Check that a message comes from the agent that it names.

    Args:
        authenticator: None: keys are not checked.
        message: with the fields `agent` and `signature`.
        owner: the agent of the request that the message is about; None: the message's own.

    Raises:
        Rejected: it does not, with NOT_AUTHENTICATED.
    """
    if authenticator is None:
        return
    agent = message.agent if owner is None else owner
    if not authenticator.must_sign(agent):
        return
    if message.agent != agent:
        words = f"only {quoted(agent)} may end its request, with a call that its key signs"
        raise Rejected(ErrorCode.NOT_AUTHENTICATED, words)
    carried = message.signature
    signature = Signature(carried.session, carried.counter, bytes(carried.code))
    authenticator.check(agent, type(message).__name__, fields_of(message), signature)


def fields_of(message: Any) -> dict[str, SignedValue]:
    """Return all fields of a message but its signature, by name."""
    kinds = message.get_fields_and_field_types()
    return {
        name: _value(getattr(message, name), kind) for name, kind in kinds.items() if name != FIELD
    }


def _value(field: Any, kind: str) -> SignedValue:
    if hasattr(field, "get_fields_and_field_types"):
        return fields_of(field)
    if isinstance(field, (bool, str, bytes)):
        return field
    if kind in ("double", "float"):
        return float(field)
    if isinstance(field, int):
        return field
    return [_value(one, "") for one in field]
