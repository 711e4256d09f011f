"""The record of what was sent where, which brings old views up to date."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from timely_llm.dispatch.contract import MOST_DUE, ServerView, Waiting

MISSING_S = 1.0
"""Seconds after which a server must have got a request that was sent to it."""


@dataclass(eq=False)
class Sent:
    """A request that was sent to a server.

    Attributes:
        waiting: the request.
        server: name of the server.
        sent_s: when it was sent.
        begun: its client got a segment or a token of this server.
        inquired_s: when the server was asked how the request ended, because it does not serve it.
    """

    waiting: Waiting
    server: str
    sent_s: float
    begun: bool = False
    inquired_s: float = -math.inf

    @property
    def inquired(self) -> bool:
        """Whether the server was asked how the request ended."""
        return self.inquired_s > -math.inf


@dataclass(eq=False)
class _Record:
    """A server's last view, when it was made, and the requests that were sent to it."""

    view: ServerView
    made_s: float
    sent: dict[str, Sent] = field(default_factory=dict)


class Ledger:
    """The requests that were sent to each server and have not ended, and each server's last view.

    A server learns of a request only when its message comes, and a view is as old as its message.
    So the requests that a view cannot have are added to it.

    A request that moved counts as one of the server that a rule assigned it to. Else that server
    looks idle, and a rule that counts requests fills it again with what has to leave it.
    """

    def __init__(self) -> None:
        self._servers: dict[str, _Record] = {}
        self._sent: dict[str, Sent] = {}
        self._moved: dict[str, str] = {}  # servers that a rule chose for requests that moved on

    def heard(self, view: ServerView, made_s: float) -> None:
        """Record a server's view, and when it was made."""
        if view.name in self._servers:
            known = self._servers[view.name]
            known.view, known.made_s = view, made_s
        else:
            self._servers[view.name] = _Record(view, made_s)

    def lacks(self, server: str, skill_set: str) -> None:
        """Record that a server does not have a skill set, until its next view."""
        known = self._servers[server]
        left = {name: size for name, size in known.view.skill_sets.items() if name != skill_set}
        known.view = replace(known.view, skill_sets=left)

    def reaches(self, server: str) -> bool:
        """Return whether a view of a server has come and the server was not lost since."""
        return server in self._servers

    def send(self, waiting: Waiting, server: str, now: float, assigned: str = "") -> None:
        """Record that a request is sent to a server, and to no other from now on.

        Args:
            waiting: the request.
            server: the server.
            now: the time on the dispatcher's clock, seconds.
            assigned: the server that a rule chose for it before it moved; empty: this one.
        """
        self.ended(waiting.key)
        if assigned != server and assigned in self._servers:
            self._moved[waiting.key] = assigned
        sent = Sent(waiting, server, now)
        self._sent[waiting.key] = self._servers[server].sent[waiting.key] = sent

    def of(self, request_id: str) -> Sent | None:
        """Return a request that was sent; None: it has ended, or was never sent."""
        return self._sent.get(request_id)

    def assigned(self, request_id: str) -> str:
        """Return the server that a rule chose for a request that was sent and has not ended."""
        return self._moved.get(request_id, self._sent[request_id].server)

    def delivered(self, request_id: str) -> None:
        """Record that the client of a request got something."""
        if request_id in self._sent:
            self._sent[request_id].begun = True

    def ended(self, request_id: str) -> None:
        """Forget a request that has ended."""
        sent = self._sent.pop(request_id, None)
        self._moved.pop(request_id, None)
        if sent is not None and sent.server in self._servers:
            self._servers[sent.server].sent.pop(request_id, None)

    def lost(self, server: str) -> list[Sent]:
        """Forget a server, and return the requests that it took with it, in order of sending."""
        gone = self._servers.pop(server, None)
        left = list(gone.sent.values()) if gone else []
        for one in left:
            del self._sent[one.waiting.key]
            self._moved.pop(one.waiting.key, None)
        self._moved = {key: name for key, name in self._moved.items() if name != server}
        return left

    def views(self, now: float) -> list[ServerView]:
        """Return what is known of each active server at `now`, with the requests it has not seen.

        `requests` counts those that were assigned and have not ended, without the delay of a view.
        """
        active = {name: known for name, known in self._servers.items() if known.view.active}
        counts = {name: len(known.sent) for name, known in self._servers.items()}
        for key, name in self._moved.items():
            if name in active:
                counts[name] += 1
                counts[self._sent[key].server] -= 1
        return [_present(known, now, counts[name]) for name, known in active.items()]

    @property
    def last_views(self) -> list[ServerView]:
        """The last view of each active server, as it came."""
        return [known.view for known in self._servers.values() if known.view.active]

    def missing(self, server: str, now: float) -> Iterator[Sent]:
        """Yield the requests that a server's newest view lacks though it was made long after them.

        Each is yielded once in `MISSING_S` seconds.
        """
        known = self._servers[server]
        served = known.view.served
        if served is None:
            return
        for sent in known.sent.values():
            since_s = max(sent.sent_s, sent.inquired_s) + MISSING_S
            if since_s < known.made_s and sent.waiting.key not in served:
                sent.inquired_s = now
                yield sent

    def unstarted(self) -> Iterator[tuple[Waiting, str]]:
        """Yield the requests that took part in no step when their servers made their views."""
        for name, known in self._servers.items():
            for key in sorted(known.view.unstarted & known.sent.keys()):
                if not known.sent[key].begun:
                    yield known.sent[key].waiting, name


def _present(known: _Record, now: float, requests: int) -> ServerView:
    """Return the view of a server at `now`, with the requests that it counts."""
    view, age_s = known.view, max(now - known.made_s, 0.0)
    seen_s = known.made_s - view.rtt_s / 2.0
    unseen = [one.waiting for one in known.sent.values() if one.sent_s > seen_s]
    due = (*view.advanced(age_s), *(one.due(now, view) for one in unseen))
    return replace(
        view,
        due=due[-MOST_DUE:],
        rates=(*view.rates, *_rates(unseen)),
        free_kv_tokens=max(view.free_kv_tokens - sum(_kv_tokens(unseen, view)), 0),
        requests=requests,
        age_s=view.age_s + age_s,
    )


def _rates(waiting: Iterable[Waiting]) -> Iterator[float]:
    return (one.rate for one in waiting if one.rate)


def _kv_tokens(waiting: Iterable[Waiting], view: ServerView) -> Iterator[int]:
    return (one.to_compute(view) + round(one.answer_tokens) for one in waiting)
