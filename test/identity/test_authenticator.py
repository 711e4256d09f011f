from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import ErrorCode, Rejected
from timely_llm.identity.authenticator import Authenticator, authenticator_of
from timely_llm.identity.keys import AgentKey, new_key, read_key
from timely_llm.identity.signature import Signature, Signer, new_session, signer_of

ROVER, ANN = AgentKey("rover", b"r" * 32), AgentKey("ann", b"a" * 32)
FIELDS: dict[str, Any] = {
    "request_id": "one", "agent": "rover", "task": "Look.", "max_tokens": 8, "temperature": 0.0,
    "closed_loop": True, "messages": [{"role": "user", "content": "Hi."}],
    "time_utility": {"beta": 1.0, "alpha": -2.0, "ert": 1.0},
}  # fmt: skip


def made(required: bool = False) -> Authenticator:
    return Authenticator({"rover": ROVER, "ann": ANN}, required, "challenge")


def refusal(
    authenticator: Authenticator, fields: dict[str, Any], signature: Signature,
    kind: str = "PlanRequest",
) -> str:  # fmt: skip
    """Return why a message is refused; empty: it is not."""
    try:
        authenticator.check(fields["agent"], kind, fields, signature)
    except Rejected as error:
        assert error.code is ErrorCode.NOT_AUTHENTICATED
        return str(error)
    return ""


def test_a_signed_message_is_taken_once() -> None:
    server, signature = made(), Signer(ROVER).sign("challenge", "PlanRequest", FIELDS)
    assert refusal(server, FIELDS, signature) == ""
    assert "it came before" in refusal(server, FIELDS, signature)


CHANGED = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.integers() | st.text() | st.floats(allow_nan=False) | st.booleans(),
    )
)


@given(CHANGED)
def test_any_changed_field_breaks_the_signature(change: tuple[str, Any]) -> None:
    name, value = change
    signature = Signer(ROVER).sign("challenge", "PlanRequest", FIELDS)
    fields = FIELDS | {name: value}
    same = type(value) is type(FIELDS[name]) and repr(value) == repr(FIELDS[name])
    if name == "agent":
        fields["agent"] = "ann"
    assert (refusal(made(), fields, signature) == "") == same


@pytest.mark.parametrize("change", [
    {"session": 7}, {"counter": 2}, {"code": b""}, {"code": bytes(32)}, {"code": b"short"},
])  # fmt: skip
def test_any_changed_part_of_a_signature_is_refused(change: dict[str, Any]) -> None:
    signature = Signer(ROVER).sign("challenge", "PlanRequest", FIELDS)
    server = made()
    assert refusal(server, FIELDS, replace(signature, **change))
    assert refusal(server, FIELDS, signature) == "", "what was refused must not count as seen"


def test_a_signature_for_another_start_type_or_agent_is_refused() -> None:
    assert "earlier start" in refusal(
        made(), FIELDS, Signer(ROVER).sign("other", "PlanRequest", FIELDS)
    )
    assert refusal(made(), FIELDS, Signer(ROVER).sign("challenge", "StreamRequest", FIELDS))
    assert refusal(made(), FIELDS, Signer(ANN).sign("challenge", "PlanRequest", FIELDS))
    less = {name: field for name, field in FIELDS.items() if name != "task"}
    assert refusal(made(), less, Signer(ROVER).sign("challenge", "PlanRequest", FIELDS))


def test_agents_without_a_key_need_no_signature_unless_keys_are_required() -> None:
    fields = FIELDS | {"agent": "guest"}
    assert refusal(made(), fields, Signature()) == ""
    words = refusal(made(required=True), fields, Signature())
    assert words == "the server has no key of the agent 'guest', and requires keys"
    assert refusal(made(), FIELDS, Signature()) == (
        "a message of 'rover' must be signed with the agent's key"
    )


def test_clients_of_one_agent_speak_side_by_side_and_after_a_restart() -> None:
    server = made()
    signers = [Signer(ROVER) for _ in range(3)]
    for _ in range(3):
        for signer in signers:
            signature = signer.sign("challenge", "PlanRequest", FIELDS)
            assert refusal(server, FIELDS, signature) == ""
    assert new_session() < 2**64


def test_two_servers_draw_two_challenges() -> None:
    first, second = Authenticator({}), Authenticator({})
    assert first.challenge != second.challenge and len(first.challenge) == 32


def test_a_server_checks_keys_only_if_it_has_some(tmp_path: Path) -> None:
    assert authenticator_of("", False) is None
    with pytest.raises(ConfigurationError, match="require_auth needs the keys of agents"):
        authenticator_of("", True)
    new_key("rover", tmp_path / "keys")
    server = authenticator_of(str(tmp_path / "keys"), False)
    assert server is not None and server.must_sign("rover") and not server.must_sign("ann")


def test_a_client_signs_with_the_key_of_its_own_agent_only(tmp_path: Path) -> None:
    file = new_key("rover", tmp_path / "keys")
    signer = signer_of("rover", file)
    server = Authenticator({"rover": read_key(file)}, challenge="c")
    assert refusal(server, FIELDS, signer.sign("c", "PlanRequest", FIELDS)) == ""
    with pytest.raises(ConfigurationError, match="is of the agent 'rover', not of 'ann'"):
        signer_of("ann", file)


def test_a_server_signs_what_it_sends_to_an_agent_with_a_key() -> None:
    server, rover = made(), Signer(ROVER)
    code = server.sign("rover", "Segment", FIELDS)
    assert rover.verifies("challenge", "Segment", FIELDS, code)
    assert not rover.verifies("an earlier start", "Segment", FIELDS, code)
    assert not rover.verifies("challenge", "PlanResult", FIELDS, code)
    assert not Signer(ANN).verifies("challenge", "Segment", FIELDS, code)
    assert server.sign("guest", "Segment", FIELDS) == b""
    assert not rover.verifies("challenge", "Segment", FIELDS, b"")


def test_a_message_of_an_agent_is_none_of_its_server() -> None:
    rover = Signer(ROVER)
    own = rover.sign("challenge", "Segment", FIELDS)
    assert not rover.verifies("challenge", "Segment", FIELDS, own.code)
    forged = replace(own, code=made().sign("rover", "PlanRequest", FIELDS))
    assert "is wrong" in refusal(made(), FIELDS, forged)
