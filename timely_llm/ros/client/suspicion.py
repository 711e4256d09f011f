"""What unsigned answers say of a server, to a client with a key."""

from __future__ import annotations

import math

PROOF_S = 3.0
"""Time in which a server can refute by a signed answer what another node says of it, seconds."""


class Suspicion:
    """Unsigned answers that say that a client with a key cannot use its server. Pure logic.

    Any node can send one. It counts only if the server's own answer does not come in time.
    """

    def __init__(self) -> None:
        self._problem = ""
        self._since_s = self._looked_s = -math.inf

    def rises(self, problem: str, now: float) -> None:
        """Record the problem of an unsigned answer: the first one's time, and the last's words."""
        if not self._problem:
            self._since_s = now
        self._problem = problem

    def clear(self) -> None:
        """Record that the server has proven itself."""
        self._problem = ""

    def confirmed(self, now: float) -> str:
        """Return the problem if no proof came in time; else empty. Call it often in a search."""
        if now > self._looked_s + PROOF_S:
            self._problem = ""  # the search begins
        self._looked_s = now
        return self._problem if now >= self._since_s + PROOF_S else ""
