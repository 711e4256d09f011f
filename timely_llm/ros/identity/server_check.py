"""A client's check that what comes in the name of its server is of this server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from timely_llm import srv
from timely_llm.core.text import quoted
from timely_llm.identity.signature import Signer
from timely_llm.ros.identity.messages import FIELD, SO_FAR, fields_of

log = logging.getLogger(__name__)


class ServerCheck:
    """Drops messages that the server did not sign; of one thread.

    Args:
        signer: has the key of the client's agent; None: nothing is dropped.
        challenge: returns the challenge of the server; empty: it checks no keys.
        accept_unsigned: drop nothing of a server that checks no keys.

    Attributes:
        dropped: messages that were dropped, count.
    """

    def __init__(
        self, signer: Signer | None, challenge: Callable[[], str], accept_unsigned: bool = False
    ) -> None:
        self._signer = signer
        self._challenge = challenge
        self._accept_unsigned = accept_unsigned
        self.dropped = 0

    @property
    def needs_challenge(self) -> bool:
        """Whether a server that checks no keys cannot be used."""
        return self._signer is not None and not self._accept_unsigned

    def takes(self, message: Any, kind: str = "") -> bool:
        """Return whether a message counts; one that does not is dropped.

        Args:
            message: with a field `signature` of bytes.
            kind: what the message is; empty: what its type says.
        """
        if self._signer is None:
            return True
        challenge = self._challenge()
        if not challenge and self._accept_unsigned:
            return True
        kind, code = kind or type(message).__name__, bytes(getattr(message, FIELD))
        if self._signer.verifies(challenge, kind, fields_of(message), code):
            return True
        if not self.dropped:
            log.warning(
                "a %s for %s was dropped: its server did not sign it with the agent's key; another"
                " node forges such messages, or the server has another key of this agent",
                kind, quoted(self._signer.agent),
            )  # fmt: skip
        self.dropped += 1
        return False

    def result(self, response: srv.GetResult.Response) -> srv.GetResult.Response:
        """Return an answer with a result, or as if there was none yet if it does not count."""
        carried = {response.PLAN: response.plan, response.ANSWER: response.answer}
        forged = response.state in carried and not self.takes(carried[response.state])
        so_far = response.state == response.SERVED and response.answer.text
        if forged or (so_far and not self.takes(response.answer, SO_FAR)):
            return srv.GetResult.Response(state=srv.GetResult.Response.SERVED)
        return response

    def segments(self, response: srv.GetSegments.Response) -> srv.GetSegments.Response:
        """Return an answer with only the segments that count."""
        response.segments = [one for one in response.segments if self.takes(one)]
        return response


def unchecked() -> ServerCheck:
    """Return the check of a client without a key: it drops nothing."""
    return ServerCheck(None, lambda: "")
