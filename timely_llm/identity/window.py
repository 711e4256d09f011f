"""Replayed messages are refused: each counter of each session is accepted once."""

from __future__ import annotations

from collections import OrderedDict

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
