"""Requests that a server should not have."""

from __future__ import annotations

import math
from collections.abc import Callable

from timely_llm.dispatch.contract import ServerView
from timely_llm.dispatch.front.ledger import MISSING_S

RESULT_S = 5.0
"""Seconds in which the result of a request comes that a server was asked to end. After that, it is
asked again."""
LEFT_S = 600.0
"""Seconds after which a server that was not heard of has ended what it had."""
LATE_S = 30.0
"""Seconds after its return in which a server that was stopped may take an old message: it works off
what has come meanwhile."""


class Leftovers:
    """Requests that a server has to end, each until the server says that it does not have it.

    A request must not go to such a server: what the server says of it would be about its old run.
    Nor may it before the result of the old run has come, since views can overtake results: that one
    would count as the end of the new run.
    """

    def __init__(self) -> None:
        self._left_s: dict[str, dict[str, float]] = {}  # since when, by server and request
        self._asked_s: dict[tuple[str, str], float] = {}  # time of the view that led to a question
        self._back_s: dict[str, float] = {}  # when servers were back; infinite: they are lost
        self._late: dict[str, set[str]] = {}  # messages that may come yet to a server that is back

    def add(self, server: str, request_id: str, now: float) -> None:
        """Record that a server should not have a request any more."""
        for name in list(self._left_s):
            since_s = self._left_s[name]
            self._keep(name, {key: at_s for key, at_s in since_s.items() if at_s > now - LEFT_S})
        self._left_s.setdefault(server, {})[request_id] = now

    def drop(self, server: str, request_id: str) -> None:
        """Record that a server has a request rightly."""
        since_s = self._left_s.get(server, {})
        self._keep(server, {key: at_s for key, at_s in since_s.items() if key != request_id})

    def bars(self, request_id: str, server: str = "") -> bool:
        """Return whether a server may have a request wrongly; without a name: whether any may."""
        names = [server] if server else self._left_s
        return any(request_id in self._left_s.get(name, ()) for name in names)

    def heard(
        self, view: ServerView, made_s: float, rightly: Callable[[str], bool] = lambda _: False
    ) -> list[str]:
        """Take what a server says of itself; return the ids of the requests that it has to end.

        A view that was made soon after a request left its server may lack what is on its way there.
        A server that does not say what it serves has to end all of them, once. The others are asked
        again while they still have them.

        Args:
            view: of the server.
            made_s: when it was made.
            rightly: returns whether the server should have a request.
        """
        left_s = self._left_s.get(view.name, {})
        if view.served is None:
            self._keep(view.name, {})
            return list(left_s)
        served = view.served
        late = self._late_of(view.name, made_s)
        came = {key: made_s for key in late & set(served) if not rightly(key)}
        left_s = left_s | came
        self._keep(
            view.name,
            {
                key: at_s for key, at_s in left_s.items()
                if key in served or at_s + MISSING_S >= made_s
                or self._is_asked(view.name, key, made_s)
            },
        )  # fmt: skip
        late.update(left_s.keys() - self._left_s.get(view.name, {}).keys())
        ends = [k for k in left_s if k in served and not self._is_asked(view.name, k, made_s)]
        self._asked_s |= {(view.name, key): made_s for key in ends}
        return ends

    def ended(self, server: str, request_id: str) -> None:
        """Take the result of a request that a server should not have."""
        self._asked_s.pop((server, request_id), None)

    def lost(self, server: str) -> None:
        """Record that a server is gone: what it was asked may not have reached it."""
        self._back_s[server] = math.inf
        self._asked_s = {k: at_s for k, at_s in self._asked_s.items() if k[0] != server}

    def _late_of(self, server: str, made_s: float) -> set[str]:
        """Return the requests with messages that a server may take only now; changes are kept.

        They hold no place for a new run: most never come.
        """
        back_s = self._back_s.get(server, -math.inf)
        if back_s == math.inf:
            self._back_s[server] = back_s = made_s
        if made_s <= back_s + LATE_S:
            return self._late.setdefault(server, set())
        self._back_s.pop(server, None)
        self._late.pop(server, None)
        return set()

    def _is_asked(self, server: str, request_id: str, made_s: float) -> bool:
        """Return whether a server was asked to end a request, and its result may come yet."""
        return made_s <= self._asked_s.get((server, request_id), -math.inf) + RESULT_S

    def _keep(self, server: str, left_s: dict[str, float]) -> None:
        gone = self._left_s.get(server, {}).keys() - left_s.keys()
        for request_id in gone:
            self._asked_s.pop((server, request_id), None)
        if left_s:
            self._left_s[server] = left_s
        else:
            self._left_s.pop(server, None)
