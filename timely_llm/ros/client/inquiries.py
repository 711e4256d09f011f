"""Questions about open requests: a network may lose a result, a restarted server all requests."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from timely_llm import srv
from timely_llm.core.text import quoted
from timely_llm.ros import conversions
from timely_llm.ros.identity.server_check import ServerCheck, unchecked

MISSED_S = 5.0
"""Period of questions for a result that may have been lost on the way, seconds."""
FOLLOWED_S = 0.5
"""The same for a request of another client, seconds: its result does not come by itself."""
AGAIN_S = 0.5
"""Time from the answer that a server does not know a request to the second question, seconds."""
PATIENCE_S = 2.0
"""Longest time that a question or a request is on its way, seconds. The first question to a server
that was just found has `AGAIN_S`: discovery may lose it."""
UNKNOWN = 2
"""Number of such answers in a row after which the server has lost the request."""
SURE_S = 5.0
"""Least time of such answers where a request may still be on its way: longer than DDS takes to send
a message again, seconds."""


@dataclass
class _Open:
    period_s: float
    opened_s: float
    next_s: float
    accepted: bool = False
    sure_s: float = 0.0
    unknown: int = 0
    unknown_s: float = 0.0
    question: Any = field(default=None, repr=False)
    asked_s: float = 0.0
    lost_s: float = 0.0  # when a question without an answer counts as lost
    soon: bool = False  # the next question may be lost


class Inquiries:
    """Asks the server from time to time about open requests; for one thread.

    Args:
        client: of the service `get_result`.
        listener_of: returns the listener of a request, by its id; a request without one is dropped.
        server: full name of the server's node.
        check: drops what the server did not sign; None: it drops nothing.
    """

    def __init__(
        self,
        client: Any,
        listener_of: Callable[[str], Any],
        server: str,
        check: ServerCheck | None = None,
    ) -> None:
        self._client = client
        self._listener_of = listener_of
        self._server = server
        self._check = check or unchecked()
        self._open: dict[str, _Open] = {}

    def open(
        self,
        request_id: str,
        followed: bool = False,
        period_s: float | None = None,
        sure_s: float = 0.0,
    ) -> None:
        """Ask about a request from now on, the first time soon unless it is accepted meanwhile.

        Args:
            request_id: the request's.
            followed: another client made it, and the server has it.
            period_s: seconds between questions; infinite: only when the server may be another one.
            sure_s: least time for which the server must not know it before it is lost, seconds.
        """
        self.close(request_id)
        now = time.monotonic()
        if period_s is None:
            period_s = FOLLOWED_S if followed else MISSED_S
        sent = not followed and math.isfinite(period_s)
        first_s = now + (min(period_s, PATIENCE_S) if sent else period_s)
        self._open[request_id] = _Open(period_s, now, first_s, followed, sure_s)

    def accepted(self, request_id: str) -> None:
        """Record that the server has a request."""
        one = self._open.get(request_id)
        if one is not None:
            one.accepted = True
            if not one.asked_s and one.next_s:  # not in a hurry
                one.next_s = one.opened_s + one.period_s

    def close(self, request_id: str) -> None:
        """End the questions about a request."""
        if (one := self._open.pop(request_id, None)) is not None:
            self._withdraw(one)

    def clear(self) -> None:
        """End all questions."""
        for request_id in list(self._open):
            self.close(request_id)

    def hurry(self) -> None:
        """Ask about all requests as soon as possible: another server may have replaced it."""
        for one in self._open.values():
            self._withdraw(one)
            one.next_s, one.period_s = 0.0, min(one.period_s, MISSED_S)
            one.soon = True

    def tick(self) -> None:
        """Send all due questions."""
        now = time.monotonic()
        due = [request_id for request_id, one in self._open.items() if now >= one.next_s]
        if not due or not self._client.service_is_ready():
            return
        for request_id in due:
            one = self._open[request_id]
            if self._listener_of(request_id) is None:
                self.close(request_id)
            elif one.question is None or now >= one.lost_s:
                self._ask(request_id, one, now)

    def _ask(self, request_id: str, one: _Open, now: float) -> None:
        self._withdraw(one)
        one.asked_s = now
        one.next_s = now + (AGAIN_S if one.soon else one.period_s)
        one.lost_s = now + (AGAIN_S if one.soon else PATIENCE_S)
        one.soon = False
        asked = srv.GetResult.Request(request_id=request_id)
        one.question = self._check.ask(self._client, asked)
        one.question.add_done_callback(
            lambda future: self._on_answer(request_id, one, future.result())
        )

    def _withdraw(self, one: _Open) -> None:
        if one.question is not None and not one.question.done():
            self._client.remove_pending_request(one.question)
        one.question = None

    def _on_answer(self, request_id: str, one: _Open, response: srv.GetResult.Response) -> None:
        one.question = None
        listener = self._listener_of(request_id)
        if listener is None or self._open.get(request_id) is not one:
            return
        result = conversions.result_in(response)
        if result is not None and result.agent == listener.agent:
            self.close(request_id)
            listener.finish(result)
        elif response.state != response.UNKNOWN:
            one.unknown = 0
        else:
            now = time.monotonic()
            # From now: a server that was stopped may answer before it has taken the request.
            one.next_s = now + AGAIN_S
            if not one.accepted and one.asked_s <= one.opened_s + PATIENCE_S:
                return  # the request may be on its way
            one.unknown_s = one.unknown_s if one.unknown else now
            one.unknown += 1
            if one.unknown >= UNKNOWN and now >= one.unknown_s + one.sure_s:
                self.close(request_id)
                listener.lose(
                    f"the server {self._server} does not know the request {quoted(request_id)} any"
                    " more: it was started anew"
                )
