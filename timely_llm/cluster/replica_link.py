"""The link to one replica; see `Link`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from timely_llm.cluster.connection import Connection
from timely_llm.cluster.messages import Ask, EndRequest, Ping, Question, Reply
from timely_llm.core.request import ExecutionReport, Request, Result
from timely_llm.dispatch.link import Found
from timely_llm.dispatch.round_trip import RoundTrip

FIRST_RTT_S = 0.001
"""Seconds of a message there and back, until it is measured."""


class ReplicaLink:
    """Carries requests to one life of a replica.

    Args:
        connection: to the replica.

    Attributes:
        round_trip: the time of a message there and back.
    """

    def __init__(self, connection: Connection) -> None:
        self.round_trip = RoundTrip(FIRST_RTT_S)
        self._connection = connection
        self._numbers = itertools.count()
        self._asked: dict[int, Callable[[Any], None]] = {}

    def tick(self, now: float) -> None:
        """Measure the time of a message, if it is time to."""
        if self.round_trip.begins(now):
            self._connection.send(Ping(now))

    def answered(self, answer: Reply) -> None:
        """Take an answer of the replica."""
        take = self._asked.pop(answer.number, None)
        if take is not None:
            take(answer.value)

    # What the relay asks for.

    def send(self, request: Request) -> None:
        """Send a request."""
        self._connection.send(request)

    def report(self, report: ExecutionReport) -> None:
        """Send a robot's report."""
        self._connection.send(report)

    def cancel(self, request_id: str) -> None:
        """End a request."""
        self._connection.send(EndRequest(request_id))

    def withdraw(self, request_id: str, stays: Callable[[], None]) -> None:
        """End a request unless it has begun; see `Link`."""
        self._ask("withdraw", request_id, lambda withdrawn: None if withdrawn else stays())

    def inquire(self, request_id: str, answered: Callable[[Result | None], None]) -> None:
        """Ask how a request ended: what is known came before the answer; see `Link`."""
        self._ask("inquire", request_id, lambda served: None if served else answered(None))

    def find(self, answered: Callable[[Sequence[Found]], None]) -> None:
        """Reply that there is nothing: a replica ends with its front."""
        answered(())

    def skill_set(self, name: str, answered: Callable[[str], None]) -> None:
        """Ask for the YAML text of a registered skill set; empty: there is none."""
        self._ask("skill_set", name, answered)

    def register(self, text: str, answered: Callable[[str, int, str], None]) -> None:
        """Register a skill set; see `Link`."""
        self._ask("register", text, lambda answer: answered(*answer))

    def unregister(self, name: str, answered: Callable[[str], None]) -> None:
        """Forget a skill set; see `Link`."""
        self._ask("unregister", name, answered)

    def close(self) -> None:
        """Forget all questions."""
        self._asked.clear()

    def _ask(self, question: Question, about: str, take: Callable[[Any], None]) -> None:
        number = next(self._numbers)
        self._asked[number] = take
        self._connection.send(Ask(number, question, about))
