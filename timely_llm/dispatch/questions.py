"""What may be asked of a relay about its requests, and what it asks servers of their ends."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial

from timely_llm.core.clock import Clock
from timely_llm.core.errors import RequestError
from timely_llm.core.generation import State
from timely_llm.core.request import ErrorCode, PlanRequest, Request, Result
from timely_llm.core.segment import Segment
from timely_llm.dispatch.alone import Alone, alone
from timely_llm.dispatch.contract import ServerView
from timely_llm.dispatch.front.delivered.answer import DeliveredAnswer
from timely_llm.dispatch.front.delivered.plan import DeliveredPlan
from timely_llm.dispatch.front.front import ELSEWHERE, Front
from timely_llm.dispatch.link import Link
from timely_llm.serving.limits import RequestGate
from timely_llm.serving.server.face import RequestStatus, RunningRequest
from timely_llm.serving.server.inbox import settle
from timely_llm.serving.server.results import check_asked

ANSWER_S = 2.0
"""Seconds in which servers answer."""

NO_ENDS = ELSEWHERE | {ErrorCode.CANCELED, ErrorCode.UNKNOWN_SKILL_SET}
"""Results of servers that do not know the end: the request was withdrawn, or sent elsewhere."""


class RelayQuestions(Alone):
    """Answers questions at once, from what clients have got.

    Args:
        gate: has the requests that are being served.
        front: knows what was delivered of them.
        clock: the time.
    """

    def __init__(self, gate: RequestGate, front: Front, clock: Clock) -> None:
        super().__init__()
        self._gate = gate
        self._front = front
        self._clock = clock

    @property
    def accepting(self) -> bool:
        """Whether it takes requests, if a server is there."""
        return self._gate.is_open

    @property
    def serving(self) -> int:
        """How many requests are being served."""
        return len(self._gate)

    @alone
    def views(self) -> list[ServerView]:
        """Return what is known of each server that takes requests."""
        return self._front.views(self._clock.now())

    @alone
    def server_of(self, request_id: str) -> str | None:
        """Return the server that has a request; None: no server has it."""
        return self._front.server_of(request_id)

    def serves(self, request_id: str) -> bool:
        """Return whether a request was let in and has not ended."""
        return request_id in self._gate

    @alone
    def requests_of(self, dispatcher: str) -> Future[list[RunningRequest]]:
        """Return the requests of a dispatcher that are being served, in order of arrival."""
        sent = (one for one in self._gate.requests if dispatcher and one.dispatcher == dispatcher)
        future: Future[list[RunningRequest]] = Future()
        future.set_result([self._with_text(one) for one in sent])
        return future

    @alone
    def so_far(self, request_id: str) -> Future[RunningRequest | None]:
        """Return a request that is being served, with what was made of it; None: it is not."""
        asked = (one for one in self._gate.requests if one.request_id == request_id)
        future: Future[RunningRequest | None] = Future()
        future.set_result(next(map(self._with_text, asked), None))
        return future

    @alone
    def statuses(self) -> Future[list[RequestStatus]]:
        """Return the states of the requests being served, in order of arrival."""
        future: Future[list[RequestStatus]] = Future()
        future.set_result([self._status(request) for request in self._gate.requests])
        return future

    @alone
    def segments(self, agent: str, request_id: str = "") -> Future[list[Segment]]:
        """Return delivered segments of plans being served; see `results.segments_of`."""
        future: Future[list[Segment]] = Future()
        try:
            future.set_result(self._segments(agent, request_id))
        except RequestError as error:
            future.set_exception(error)
        return future

    def _with_text(self, request: Request) -> RunningRequest:
        answer = self._front.delivered(request.request_id)
        if isinstance(answer, DeliveredAnswer):
            return RunningRequest(request, answer.count, answer.text)
        return RunningRequest(request)

    def _status(self, request: Request) -> RequestStatus:
        key, delivered = request.request_id, self._front.delivered(request.request_id)
        count = delivered.count if delivered else 0
        state = State.RUNNING if count else State.QUEUED
        if self._front.is_executed(key):
            state = State.EXECUTING
        due_in_s = delivered.due_s - self._clock.now() if delivered else 0.0
        return RequestStatus(
            key, request.agent, isinstance(request, PlanRequest), state, count, due_in_s
        )

    def _segments(self, agent: str, request_id: str) -> list[Segment]:
        """Return the delivered segments of the newest epoch of plans."""
        asked = [one for one in self._gate.requests if request_id in ("", one.request_id)]
        check_asked(agent, request_id, asked[0] if asked else None)
        plans = (self._front.delivered(one.request_id) for one in asked if agent in ("", one.agent))
        return [one for plan in plans if isinstance(plan, DeliveredPlan) for one in plan.segments]


class EndQuestions:
    """Asks servers, and ends the questions that one of them does not answer."""

    def __init__(self) -> None:
        self._open: list[tuple[float, Future[Result | None]]] = []

    def ask(
        self, request_id: str, links: Mapping[str, Link], future: Future[Result | None], now: float
    ) -> None:
        """Ask how a request ended.

        Args:
            request_id: the request.
            links: those to all servers, by name.
            future: gets the result of its newest plan; None: no server knows its end, or one still
                serves it.
            now: the time on the dispatcher's clock, seconds.
        """
        left, found = set(links), list[Result]()
        self._open.append((now + ANSWER_S, future))

        def answered(server: str, result: Result | None) -> None:
            left.discard(server)
            if result is not None and result.error_code not in NO_ENDS:
                found.append(result)
            if not left:
                newest = max(found, key=lambda one: getattr(one, "epoch", 0), default=None)
                settle(future, newest)

        for name, link in links.items():
            link.inquire(request_id, partial(answered, name))
        if not links:
            settle(future)

    def tick(self, now: float) -> None:
        """End the questions that were not answered in time."""
        for _, asked in [one for one in self._open if one[0] <= now]:
            settle(asked)
        self._open = [one for one in self._open if not one[1].done()]
