"""A client's check that what comes in the name of its server is of this server."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from timely_llm import srv
from timely_llm.core.text import quoted
from timely_llm.identity.canonical import SignedValue
from timely_llm.identity.signature import Signer
from timely_llm.ros.identity.messages import FIELD, exchange, fields_of

log = logging.getLogger(__name__)
NONCE_BITS = 64


class ServerCheck:
    """Drops messages that the server did not sign; of one thread.

    Args:
        signer: has the key of the client's agent; None: nothing is dropped.
        challenge: returns the challenge of the server; empty: it checks no keys.
        accept_unsigned: drop nothing of a server that checks no keys.

    Attributes:
        agent: the client's; empty: it has no key.
        dropped: messages that were dropped, count.
    """

    def __init__(
        self, signer: Signer | None, challenge: Callable[[], str], accept_unsigned: bool = False
    ) -> None:
        self.agent = "" if signer is None else signer.agent
        self._signer = signer
        self._challenge = challenge
        self._accept_unsigned = accept_unsigned
        self.dropped = 0

    @property
    def active(self) -> bool:
        """Whether messages are checked: what is not signed says nothing about the server."""
        return self._counts_only_signed(self._challenge())

    def takes(self, message: Any) -> bool:
        """Return whether a message counts; one that does not is dropped.

        Args:
            message: with a field `signature` of bytes.
        """
        return self._takes(message, lambda: fields_of(message), self._challenge())

    def ask(
        self, client: Any, request: Any, on_dropped: Callable[[Any], None] = lambda _: None
    ) -> Any:
        """Call a service of the server; return a future of its response.

        A response that does not count is dropped, and the future waits for the next one: another
        node that answers first hides nothing.

        Args:
            client: of the service.
            request: with the fields `agent` and `nonce`, which are filled in.
            on_dropped: takes each response that does not count.
        """
        if self._signer is None:
            return client.call_async(request)
        request.agent, request.nonce = self._signer.agent, secrets.randbits(NONCE_BITS)
        future = client.call_async(request)
        finish = future.set_result

        def set_result(response: Any) -> None:
            if self.answers(request, response):
                finish(response)
            else:
                on_dropped(response)

        # rclpy passes each response to the future until one has ended it.
        future.set_result = set_result
        return future

    def answers(self, request: Any, response: Any) -> bool:
        """Return whether the response of a service counts; one that does not is dropped.

        The response with the challenge is proof of it: the question is new.

        Args:
            request: with the fields `agent` and `nonce`, as it was sent.
            response: with a field `signature` of bytes.
        """
        proof = isinstance(response, srv.GetIdentity.Response)
        challenge = response.challenge if proof else self._challenge()
        return self._takes(response, lambda: exchange(request, response), challenge)

    def _counts_only_signed(self, challenge: str) -> bool:
        return self._signer is not None and not (self._accept_unsigned and not challenge)

    def _takes(
        self, message: Any, fields: Callable[[], Mapping[str, SignedValue]], challenge: str
    ) -> bool:
        if self._signer is None or not self._counts_only_signed(challenge):
            return True
        kind, code = type(message).__name__, bytes(getattr(message, FIELD))
        if self._signer.verifies(challenge, kind, fields(), code):
            return True
        if not self.dropped:
            log.warning(
                "a %s for %s was dropped: its server did not sign it with the agent's key; another"
                " node forges such messages, or the server has another key of this agent",
                kind, quoted(self._signer.agent),
            )  # fmt: skip
        self.dropped += 1
        return False


def unchecked() -> ServerCheck:
    """Return the check of a client without a key: it drops nothing."""
    return ServerCheck(None, lambda: "")
