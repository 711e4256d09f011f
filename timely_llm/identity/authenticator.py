"""A server's check of signatures: the key that made each, and each counter accepted once."""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import ErrorCode, Rejected
from timely_llm.core.text import quoted
from timely_llm.identity.canonical import SignedValue
from timely_llm.identity.keys import AgentKey, read_keys
from timely_llm.identity.signature import Signature, answer_code_of, code_of

CHALLENGE_BYTES = 16
WIDTH = 1024
"""Newest counters of a session of which each is known to be new or seen."""
MOST_SESSIONS = 1024
"""Sessions of an agent that are remembered."""


class CounterWindow:
    """The counters seen in one session, as the anti-replay window of IPsec (RFC 4303).

    Args:
        width: a counter that is this much below the largest one is refused.
    """

    def __init__(self, width: int = WIDTH) -> None:
        self._width = width
        self._largest = 0
        self._seen = 0  # bit n: the counter `_largest - n`

    def take(self, counter: int) -> str:
        """Take a counter; return why it is refused, or an empty text."""
        if counter < 1:
            return "its counter is below 1"
        ahead = counter - self._largest
        if ahead > 0:
            kept = self._seen << ahead if ahead < self._width else 0
            self._seen = (kept | 1) & ((1 << self._width) - 1)
            self._largest = counter
            return ""
        if -ahead >= self._width:
            return "its counter is too old"
        bit = 1 << -ahead
        if self._seen & bit:
            return "it came before"
        self._seen |= bit
        return ""


class SessionWindows:
    """The sessions of one agent: its clients that run, and those that have ended.

    The session that was silent for longest is forgotten when there are too many. No session up to
    the largest forgotten one is then taken as new, so that nothing can be replayed.

    Args:
        most: sessions to remember.
        width: of each session's window.
    """

    def __init__(self, most: int = MOST_SESSIONS, width: int = WIDTH) -> None:
        self._most = most
        self._width = width
        self._windows: OrderedDict[int, CounterWindow] = OrderedDict()
        self._forgotten = 0

    def take(self, session: int, counter: int) -> str:
        """Take a session's counter; return why it is refused, or an empty text."""
        window = self._windows.get(session)
        if window is None:
            if session <= self._forgotten:
                return "its session is too old: the client's clock may be behind"
            window = self._windows[session] = CounterWindow(self._width)
        self._windows.move_to_end(session)
        problem = window.take(counter)
        if len(self._windows) > self._most:
            oldest, _ = self._windows.popitem(last=False)
            self._forgotten = max(self._forgotten, oldest)
        return problem


class Authenticator:
    """Checks the signatures of agents, and signs what the server sends them; of any thread.

    Args:
        keys: by agent.
        required: refuse agents without a key.
        challenge: empty: one is drawn.

    Attributes:
        challenge: part of each signature; signatures for an earlier start of the server are void.
    """

    def __init__(
        self, keys: Mapping[str, AgentKey], required: bool = False, challenge: str = ""
    ) -> None:
        self._keys = dict(keys)
        self._required = required
        self.challenge = challenge or secrets.token_hex(CHALLENGE_BYTES)
        self._sessions = {agent: SessionWindows() for agent in keys}
        self._lock = threading.Lock()

    def must_sign(self, agent: str) -> bool:
        """Return whether messages that speak for an agent must be signed."""
        return self._required or agent in self._keys

    def sign(self, agent: str, kind: str, fields: Mapping[str, SignedValue]) -> bytes:
        """Return the signature of a message to an agent; empty: the agent has no key.

        Args:
            agent: of the request that the message is about.
            kind: name of the message's type.
            fields: all fields of the message but its signature.
        """
        key = self._keys.get(agent)
        if key is None:
            return b""
        return answer_code_of(key.secret, self.challenge, kind, fields)

    def check(
        self, agent: str, kind: str, fields: Mapping[str, SignedValue], signature: Signature
    ) -> None:
        """Check that a message is its agent's, and did not come before.

        Args:
            agent: for which the message speaks.
            kind: name of the message's type.
            fields: all fields of the message but its signature.
            signature: the message's.

        Raises:
            Rejected: with NOT_AUTHENTICATED.
        """
        if not self.must_sign(agent):
            return
        key = self._keys.get(agent)
        if key is None:
            raise _refused(f"the server has no key of the agent {quoted(agent)}, and requires keys")
        if not signature.code:
            raise _refused(f"a message of {quoted(agent)} must be signed with the agent's key")
        session, counter = signature.session, signature.counter
        code = code_of(key.secret, self.challenge, kind, fields, session, counter)
        if not hmac.compare_digest(code, signature.code):
            raise _refused(
                f"the signature of a message of {quoted(agent)} is wrong: another key signed it, or"
                " it was changed, or it was made for an earlier start of the server"
            )
        with self._lock:
            problem = self._sessions[agent].take(session, counter)
        if problem:
            raise _refused(f"a signed message of {quoted(agent)} is not accepted: {problem}")


def _refused(reason: str) -> Rejected:
    return Rejected(ErrorCode.NOT_AUTHENTICATED, reason)


def authenticator_of(agent_keys: str, required: bool) -> Authenticator | None:
    """Return the check of a server; None: it checks no keys.

    Args:
        agent_keys: a key file, or a folder of them; empty: none.
        required: refuse agents without a key.

    Raises:
        ConfigurationError: a key cannot be read, or keys are required and there are none.
    """
    if agent_keys:
        return Authenticator(read_keys(Path(agent_keys)), required)
    if required:
        raise ConfigurationError(
            "require_auth needs the keys of agents: set agent_keys to their folder"
        )
    return None
