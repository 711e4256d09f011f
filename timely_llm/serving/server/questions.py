"""What may be asked of a server about the requests that it serves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from timely_llm.core.clock import Clock
from timely_llm.core.request import Result
from timely_llm.core.segment import Segment
from timely_llm.serving.limits import RequestGate
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.face import (
    RequestStatus,
    RunningRequest,
    running,
    statuses_of,
)
from timely_llm.serving.server.results import Results, segments_of

T = TypeVar("T")


class LoopQuestions(ABC):
    """Answers questions in the loop's thread, between two steps.

    Args:
        gate: has the requests that are being served.
        clock: the loop's clock.

    Attributes:
        earlier_results: how requests of an earlier server ended, on the same clock.
        journal_problem: returns why the recovery journal is not written any more; empty: it is, or
            there is none.
    """

    def __init__(self, gate: RequestGate, clock: Clock) -> None:
        self._gate = gate
        self._clock = clock
        self.earlier_results: Results[Result] = Results(0.0, 0)
        self.journal_problem: Callable[[], str] = lambda: ""

    @abstractmethod
    def call(self, work: Callable[[Loop], T], slow: bool = False) -> Future[T]:
        """Run `work` on the loop between two steps; return its future result."""

    @property
    def accepting(self) -> bool:
        """Whether it takes requests: it neither drains nor ends."""
        return self._gate.is_open

    @property
    def serving(self) -> int:
        """How many requests are being served."""
        return len(self._gate)

    def serves(self, request_id: str) -> bool:
        """Return whether a request was let in and has not ended."""
        return request_id in self._gate

    def requests_of(self, dispatcher: str) -> Future[list[RunningRequest]]:
        """Return the requests of a dispatcher that are being served, in order of arrival."""

        def work(loop: Loop) -> list[RunningRequest]:
            sent = (r for r in self._gate.requests if dispatcher and r.dispatcher == dispatcher)
            return running(sent, loop.generations)

        return self.call(work)

    def so_far(self, request_id: str) -> Future[RunningRequest | None]:
        """Return a request that is being served, with what was made of it; None: it is not."""

        def work(loop: Loop) -> RunningRequest | None:
            asked = [one for one in self._gate.requests if one.request_id == request_id]
            return next(iter(running(asked, loop.generations)), None)

        return self.call(work)

    def result(self, request_id: str) -> Future[Result | None]:
        """Return how a request of an earlier server ended; the sink got all other ends."""
        future: Future[Result | None] = Future()
        future.set_result(self.earlier_results.get(request_id, self._clock.now()))
        return future

    def statuses(self) -> Future[list[RequestStatus]]:
        """Return the states of the requests being served, in order of arrival."""
        return self.call(lambda loop: statuses_of(loop.generations, self._clock.now()))

    def segments(self, agent: str, request_id: str = "") -> Future[list[Segment]]:
        """Return delivered segments of plans being served; see `segments_of`."""
        return self.call(lambda loop: segments_of(loop.generations, agent, request_id))
