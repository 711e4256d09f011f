"""Signatures of messages, and the signer of one client."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.text import quoted
from timely_llm.identity.canonical import SignedValue, canonical
from timely_llm.identity.keys import AgentKey, read_key

PURPOSE = "timely_llm signature 1"
"""First part of what is signed: a key signs nothing else by accident."""
ANSWER_PURPOSE = "timely_llm answer 1"
"""The same for what a server signs with the key of an agent: neither passes for the other."""
RANDOM_BITS = 10
MOST = 2**64 - 1
"""Largest session and counter."""


@dataclass(frozen=True)
class Signature:
    """A message's proof that its agent's key signed it.

    Attributes:
        session: start of the client, nanoseconds since 1970 with random last bits; later clients of
            an agent have larger ones if its clock is not set back.
        counter: 1 for the first message of the session, then counting up.
        code: HMAC-SHA256; empty: the message is not signed.
    """

    session: int = 0
    counter: int = 0
    code: bytes = b""


def code_of(
    key: bytes,
    challenge: str,
    kind: str,
    fields: Mapping[str, SignedValue],
    session: int,
    counter: int,
) -> bytes:
    """Return the code of a message.

    Args:
        key: the agent's.
        challenge: drawn by the server at its start.
        kind: name of the message's type.
        fields: all fields of the message but its signature.
        session: the signature's.
        counter: the signature's.
    """
    signed = canonical([PURPOSE, challenge, kind, session, counter, fields])
    return hmac.new(key, signed, hashlib.sha256).digest()


def answer_code_of(
    key: bytes, challenge: str, kind: str, fields: Mapping[str, SignedValue]
) -> bytes:
    """Return the code of a message of a server to an agent.

    Args:
        key: the agent's.
        challenge: drawn by the server at its start.
        kind: name of the message's type.
        fields: all fields of the message but its signature.
    """
    signed = canonical([ANSWER_PURPOSE, challenge, kind, fields])
    return hmac.new(key, signed, hashlib.sha256).digest()


def new_session() -> int:
    """Return the session of a client that starts now."""
    start_ns = max(time.time_ns(), 0) >> RANDOM_BITS << RANDOM_BITS
    return min(start_ns | secrets.randbits(RANDOM_BITS), MOST)


class Signer:
    """Signs the messages of a client by its agent's key, and checks its server's; of any thread.

    Args:
        key: the agent's.
        session: makes the session; replaced in tests.

    Attributes:
        agent: for which it signs.
    """

    def __init__(self, key: AgentKey, session: Callable[[], int] = new_session) -> None:
        self.agent = key.agent
        self._key = key.secret
        self._session = session()
        self._counter = 0
        self._lock = threading.Lock()

    def sign(self, challenge: str, kind: str, fields: Mapping[str, SignedValue]) -> Signature:
        """Return the signature of a message; arguments as in `code_of`."""
        with self._lock:
            self._counter += 1
            counter = self._counter
        code = code_of(self._key, challenge, kind, fields, self._session, counter)
        return Signature(self._session, counter, code)

    def verifies(
        self, challenge: str, kind: str, fields: Mapping[str, SignedValue], code: bytes
    ) -> bool:
        """Return whether a server that has this key signed a message to this agent.

        Args:
            challenge: the server's.
            kind: name of the message's type.
            fields: all fields of the message but its signature.
            code: the signature.
        """
        return hmac.compare_digest(answer_code_of(self._key, challenge, kind, fields), code)


def signer_of(agent: str, key_file: Path) -> Signer:
    """Return the signer of an agent's client.

    Args:
        agent: name of the robot or person.
        key_file: file with its key.

    Raises:
        ConfigurationError: the key cannot be read, or is another agent's.
    """
    key = read_key(key_file)
    if key.agent != agent:
        raise ConfigurationError(
            f"the key {key_file} is of the agent {quoted(key.agent)}, not of {quoted(agent)}"
        )
    return Signer(key)
