"""How long a message to a server and back takes."""

from __future__ import annotations

PERIOD_S = 1.0
"""Seconds between two measurements."""

PATIENCE_S = 10.0
"""Seconds after which a measurement without an answer is given up."""

NEWEST = 0.2
"""Weight of the newest measurement."""


class RoundTrip:
    """Measures, one message at a time.

    Args:
        first_s: seconds, until one was measured.

    Attributes:
        seconds: of a message there and back.
    """

    def __init__(self, first_s: float) -> None:
        self.seconds = first_s
        self._asked_s = 0.0
        self._open = False

    def begins(self, now: float) -> bool:
        """Return whether it is time to send a message; it is sent at `now` then."""
        if now < self._asked_s + (PATIENCE_S if self._open else PERIOD_S):
            return False
        self._asked_s, self._open = now, True
        return True

    def answered(self, now: float) -> None:
        """Take the answer to the newest message."""
        if self._open:
            self._open = False
            self.seconds += NEWEST * (now - self._asked_s - self.seconds)
