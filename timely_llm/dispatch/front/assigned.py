"""Which server has a request, and which one gets it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timely_llm.dispatch.contract import Dispatcher, ServerView, Waiting
from timely_llm.dispatch.front.actions import Action, Cancel, Send, Withdraw
from timely_llm.dispatch.front.ledger import Ledger
from timely_llm.dispatch.front.leftovers import Leftovers
from timely_llm.dispatch.front.placement import Hedges, MoveQuestion, Unsent
from timely_llm.dispatch.front.refusals import Refusals


class Assigned:
    """The requests that servers have, or are to get: assigned, moved and hedged.

    Args:
        dispatcher: the rule that assigns requests; a new one.
        moves: requests that have not begun may move to another server.
        hedge: urgent plans are asked of two servers, until one of them delivers.
    """

    def __init__(self, dispatcher: Dispatcher, moves: bool, hedge: bool) -> None:
        self._dispatcher = dispatcher
        self._moves = moves
        self._ledger = Ledger()
        self._hedges = Hedges(dispatcher if hedge else None)
        self._unsent = Unsent()
        self._leftovers = Leftovers()
        self._refusals = Refusals()
        self._moving: dict[str, str] = {}  # new servers of requests that are to be withdrawn
        self._canceled: set[str] = set()

    @property
    def waiting(self) -> list[str]:
        """The ids of the requests that no server has, and that need one."""
        return self._unsent.keys

    def views(self, now: float) -> list[ServerView]:
        """Return what is known of each active server."""
        return self._ledger.views(now)

    @property
    def last_views(self) -> list[ServerView]:
        """The last view of each active server, as it came: without what was sent there since."""
        return self._ledger.last_views

    def server_of(self, request_id: str) -> str | None:
        """Return the server that has a request; None: no server has it."""
        sent = self._ledger.of(request_id)
        return sent.server if sent else None

    def serves(self, server: str, request_id: str) -> bool:
        """Return whether a server has a request, so that what it says of it counts."""
        return server in self._servers(request_id)

    def to_move(self, view: ServerView, now: float) -> MoveQuestion | None:
        """Return the question which requests should move, after a view; None: none may."""
        if not (self._moves and view.unstarted and view.active):
            return None
        unstarted = [one for one in self._ledger.unstarted() if one[0].key not in self._canceled]
        return MoveQuestion(now, unstarted, self._ledger.views(now))

    def moved(self, question: MoveQuestion) -> list[Action]:
        """Withdraw the requests of an answer that should still move and are not about to.

        Other inputs may have come since the question: a request that has begun, has ended, was
        canceled, or is elsewhere stays as it is.
        """
        actions: list[Action] = []
        servers = {one.key: name for one, name in question.unstarted}
        for key, new in question.answer:
            sent = self._ledger.of(key)
            if sent is None or sent.server != servers[key] or sent.begun or key in self._canceled:
                continue
            free = key not in self._moving and self._hedges.second(key) is None
            if free and self._ledger.reaches(new) and self._may_go(key, new):
                self._moving[key] = new
                actions.append(Withdraw(key, sent.server))
        return actions

    def _servers(self, key: str) -> list[str]:
        """Return the servers that have a request."""
        return [one for one in (self.server_of(key), self._hedges.second(key)) if one is not None]

    def _begins_burst(self, views: Sequence[ServerView]) -> bool:
        """Return whether a request may be the first of a burst that is awaited."""
        return self._dispatcher.gathers and all(one.rests for one in views)

    def _may_go(self, key: str, server: str) -> bool:
        """Return whether a server has neither refused a request nor may still have it."""
        return not (self._leftovers.bars(key, server) or self._refusals.bars(key, server))

    def _others(self, waiting: Waiting, now: float) -> list[ServerView]:
        """Return the servers that a request can go to and that have not refused it."""
        views = self._ledger.views(now)
        return [v for v in views if waiting.can_go_to(v) and self._may_go(waiting.key, v.name)]

    def _assign(
        self, waiting: Sequence[Waiting], now: float, views: Sequence[ServerView] | None = None
    ) -> list[Action]:
        """Assign requests to servers; those that no server can take wait for one.

        Args:
            waiting: the requests.
            now: the time on the caller's clock.
            views: what is known of each active server now; None: it is found out.
        """
        picky = [w for w in waiting if w.key in self._refusals or self._leftovers.bars(w.key)]
        keys = {one.key for one in picky}
        easy = [one for one in waiting if one.key not in keys]
        if easy and views is None:
            views = self._ledger.views(now)
        made = list(self._dispatcher.assign(now, easy, views or ())) if easy else []
        for one in picky:
            others = self._others(one, now)
            if not others and one.key in self._refusals:
                self._refusals.forget(one.key)  # those that took it are lost: ask again
                others = self._others(one, now)
            made += self._dispatcher.assign(now, [one], others)
        by_key = {one.key: one for one in waiting}
        actions: list[Action] = []
        for key, name in made:
            one = by_key.pop(key)
            actions.append(self._send(one, name, now))
            if self._hedges.takes(one):
                second = self._hedges.begin(one, name, self._others(one, now), now)
                actions += [Send(one, second)] if second else []
        for one in by_key.values():
            self._unsent.place(one)
        return actions

    def _send(self, waiting: Waiting, server: str, now: float, assigned: str = "") -> Send:
        self._ledger.send(waiting, server, now, assigned)
        return Send(waiting, server)

    def _leaving(self, server: str) -> Iterator[Withdraw]:
        """Yield the requests that have not begun at a server that takes no more of them."""
        for one, name in self._ledger.unstarted():
            if name == server and one.key not in self._moving and one.key not in self._canceled:
                self._moving[one.key] = ""
                yield Withdraw(one.key, server)

    def _won(self, key: str, server: str, now: float) -> list[Action]:
        """End a hedge: the server that delivered first has the request."""
        sent, second = self._ledger.of(key), self._hedges.drop(key)
        if second is None or sent is None:
            return []
        loser = sent.server if server == second else second
        if server == second:
            self._moving.pop(key, None)
            self._ledger.send(sent.waiting, server, now)
        self._leftovers.add(loser, key, now)
        return [Cancel(key, loser)]

    def _goes_on_with_second(self, key: str, server: str, now: float) -> bool:
        """Let the other server of a hedge have a request that one does not go on with.

        Returns:
            Whether the request is hedged.
        """
        sent, second = self._ledger.of(key), self._hedges.drop(key)
        if second is None or sent is None:
            return False
        if server != second:
            self._moving.pop(key, None)
            self._ledger.send(sent.waiting, second, now)
        return True
