"""Questions to all servers how a request ended that an earlier dispatcher has sent."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial

from timely_llm.core.request import ErrorCode, Result
from timely_llm.dispatch.front.front import ELSEWHERE
from timely_llm.dispatch.link import Link
from timely_llm.serving.server.inbox import settle

ANSWER_S = 2.0
"""Seconds in which servers answer."""

NO_ENDS = ELSEWHERE | {ErrorCode.CANCELED, ErrorCode.UNKNOWN_SKILL_SET}
"""Results of servers that do not know the end: the request was withdrawn, or sent elsewhere."""


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
