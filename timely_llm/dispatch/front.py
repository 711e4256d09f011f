"""Requests for several servers: gathered, assigned, moved, and sent on when a server is lost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from timely_llm.core.errors import RequestError
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    StreamChunk,
    served_already,
)
from timely_llm.core.segment import Segment
from timely_llm.dispatch.contract import (
    GATHER_S,
    LONGEST_BURST_S,
    Dispatcher,
    ServerView,
    Waiting,
)
from timely_llm.dispatch.delivered import Delivered, Recovery
from timely_llm.dispatch.ledger import Ledger, Sent
from timely_llm.dispatch.moves import moves


@dataclass(frozen=True)
class Send:
    """Send a request to a server."""

    waiting: Waiting
    server: str


@dataclass(frozen=True)
class Withdraw:
    """Take a request from a server unless it has begun there.

    The answer is `Front.withdrawn` or `Front.stays`.
    """

    request_id: str
    server: str


@dataclass(frozen=True)
class Finish:
    """End a request at its client: no server has it.

    Attributes:
        request_id: its id.
        code: NONE if its client has all of it.
        reason: one sentence, empty without an error.
    """

    request_id: str
    code: ErrorCode = ErrorCode.NONE
    reason: str = ""


Action = Send | Withdraw | Finish


@dataclass(frozen=True)
class _Returned:
    """A request that comes back from a server at a time.

    Attributes:
        at_s: when.
        waiting: the request.
        server: the server that gets it then; one that is not reached: the rule assigns it.
    """

    at_s: float
    waiting: Waiting
    server: str


class Front:
    """Takes requests for several servers. It has no clock and no I/O.

    Each input returns the actions that follow from it. The caller carries them out in order, and
    calls `tick` at `wake_s`. A request is at one server at most: what another server says of it
    does not count (see `serves`).

    Args:
        dispatcher: the rule that assigns requests; a new one.
        recovery: words requests that go on after their server was lost.
        moves: requests that have not begun may move to another server.
    """

    def __init__(self, dispatcher: Dispatcher, recovery: Recovery, moves: bool = True) -> None:
        self._dispatcher = dispatcher
        self._recovery = recovery
        self._moves = moves
        self._ledger = Ledger()
        self._delivered: dict[str, Delivered] = {}
        self._burst: list[Waiting] = []
        self._burst_ends_s = math.inf
        self._unplaced: list[Waiting] = []
        self._moving: dict[str, str] = {}  # new servers of requests that are to be withdrawn
        self._returned: list[_Returned] = []

    @property
    def wake_s(self) -> float:
        """When to call `tick`, on the caller's clock; infinite: not before another input."""
        return min(self._burst_ends_s, *(one.at_s for one in self._returned), math.inf)

    @property
    def waiting(self) -> list[str]:
        """The ids of the requests that no server has."""
        returned = (one.waiting for one in self._returned)
        return [one.key for one in (*self._burst, *self._unplaced, *returned)]

    def server_of(self, request_id: str) -> str | None:
        """Return the server that has a request; None: no server has it."""
        sent = self._ledger.of(request_id)
        return sent.server if sent else None

    def serves(self, server: str, request_id: str) -> bool:
        """Return whether a server has a request, so that what it says of it counts."""
        return self.server_of(request_id) == server

    def asked(self, waiting: Waiting, now: float) -> list[Action]:
        """Take a request. Those of a burst are assigned together.

        A burst ends after a silence of `GATHER_S`. Once that is later than `LONGEST_BURST_S` after
        its first request, no further request prolongs it.

        Raises:
            Rejected: a request with its id is being served already.
        """
        if waiting.key in self._delivered:
            raise served_already(waiting.key)
        self._delivered[waiting.key] = Delivered(waiting)
        if not self._burst and not self._begins_burst(now):
            return self._assign([waiting], now)
        self._burst.append(waiting)
        latest_s = self._burst[0].asked_s + LONGEST_BURST_S
        if len(self._burst) == 1 or self._burst_ends_s < latest_s:
            self._burst_ends_s = now + GATHER_S
        return []

    def tick(self, now: float) -> list[Action]:
        """Do what is due."""
        actions: list[Action] = []
        if now >= self._burst_ends_s:
            burst, self._burst, self._burst_ends_s = self._burst, [], math.inf
            actions += self._assign(burst, now)
        due = [one for one in self._returned if one.at_s <= now]
        self._returned = [one for one in self._returned if one.at_s > now]
        for one in due:
            if self._ledger.reaches(one.server):
                actions.append(self._send(one.waiting, one.server, now))
            else:
                actions += self._assign([one.waiting], now)
        return actions

    def heard(self, view: ServerView, made_s: float, now: float) -> list[Action]:
        """Take what a server said of itself at `made_s`; a server that was lost is back."""
        self._ledger.heard(view, made_s)
        actions: list[Action] = []
        if any(one.can_go_to(view) for one in self._unplaced):
            waiting, self._unplaced = self._unplaced, []
            actions += self._assign(waiting, now)
        if self._moves and view.unstarted:
            actions += self._withdrawals(now)
        return actions

    def withdrawn(self, request_id: str, server: str, at_s: float) -> None:
        """Record that a server gave a request back, and when the dispatcher has it again."""
        sent = self._ledger.of(request_id)
        if sent is not None and sent.server == server:
            self._ledger.ended(request_id)
            new = self._moving.pop(request_id, "")
            self._returned.append(_Returned(at_s, sent.waiting, new))

    def stays(self, request_id: str, server: str) -> None:
        """Record that a server keeps a request that was to be withdrawn: it has begun."""
        if self.serves(server, request_id):
            self._moving.pop(request_id, None)

    def segment(self, segment: Segment) -> Segment:
        """Record a segment of the server that has its request; return it for the robot.

        Its epoch is above those of earlier servers.
        """
        self._ledger.delivered(segment.request_id)
        return self._delivered[segment.request_id].segment(segment)

    def chunk(self, chunk: StreamChunk) -> StreamChunk:
        """Record a token of the server that has its request; return it for the client.

        Its index goes on after the tokens of earlier servers.
        """
        self._ledger.delivered(chunk.request_id)
        return self._delivered[chunk.request_id].chunk(chunk)

    def report(self, report: ExecutionReport) -> tuple[str, ExecutionReport] | None:
        """Take a robot's report about a request.

        Returns:
            The server that has the request, and the report for it; None: no server has it.
        """
        if report.request_id not in self._delivered:
            return None
        report = self._delivered[report.request_id].report(report)
        server = self.server_of(report.request_id)
        return None if server is None else (server, report)

    def ended(self, request_id: str) -> None:
        """Forget a request: the server that has it ended it, or its client canceled it."""
        self._ledger.ended(request_id)
        self._delivered.pop(request_id, None)
        self._moving.pop(request_id, None)
        self._burst = [one for one in self._burst if one.key != request_id]
        self._unplaced = [one for one in self._unplaced if one.key != request_id]
        self._returned = [one for one in self._returned if one.waiting.key != request_id]

    def lost(self, server: str, now: float) -> list[Action]:
        """Send the requests of a server that is silent to others.

        Those that have not begun go as they were. The others go on after what was delivered: a
        plan with its next epoch, as an urgent request; an answer from its text.
        """
        actions: list[Action] = []
        left = []
        for one in self._ledger.lost(server):
            self._moving.pop(one.waiting.key, None)
            rest = self._rest(one, now)
            if isinstance(rest, Finish):
                self.ended(rest.request_id)
                actions.append(rest)
            else:
                left.append(rest)
        return actions + self._assign(left, now)

    def _begins_burst(self, now: float) -> bool:
        """Return whether a request may be the first of a burst that is awaited."""
        return self._dispatcher.gathers and all(one.rests for one in self._ledger.views(now))

    def _assign(self, waiting: Sequence[Waiting], now: float) -> list[Action]:
        """Assign requests to servers; those that no server can take wait for one."""
        made = self._dispatcher.assign(now, waiting, self._ledger.views(now))
        by_key = {one.key: one for one in waiting}
        actions: list[Action] = [self._send(by_key.pop(key), name, now) for key, name in made]
        self._unplaced += by_key.values()
        return actions

    def _send(self, waiting: Waiting, server: str, now: float) -> Send:
        self._ledger.send(waiting, server, now)
        return Send(waiting, server)

    def _withdrawals(self, now: float) -> Iterator[Withdraw]:
        """Yield the requests that should move and are not about to."""
        unstarted = list(self._ledger.unstarted())
        servers = {one.key: name for one, name in unstarted}
        for key, new in moves(now, unstarted, self._ledger.views(now)):
            if key not in self._moving:
                self._moving[key] = new
                yield Withdraw(key, servers[key])

    def _rest(self, lost: Sent, now: float) -> Waiting | Finish:
        """Return what is left of a request that a server took with it."""
        if not lost.begun:
            return lost.waiting
        key, delivered = lost.waiting.key, self._delivered[lost.waiting.key]
        if delivered.whole:
            return Finish(key)
        request = delivered.waiting.request
        if isinstance(request, PlanRequest) and request.given_plan:
            reason = "a plan written by hand is not replaced by one of the model's"
            return Finish(key, ErrorCode.ENGINE_FAILED, f"its server was lost; {reason}")
        try:
            return delivered.rest(self._recovery, now)
        except RequestError as error:
            reason = f"its server was lost; the rest could not be asked for: {error}"
            return Finish(key, ErrorCode.ENGINE_FAILED, reason)
