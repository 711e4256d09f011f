"""Answers of an engine, each in a queue of its own."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable

from timely_llm.core.clock import WallClock
from timely_llm.core.request import Request, Result, StreamChunk, StreamRequest, StreamResult
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.engines.contract import Engine
from timely_llm.policies.fcfs import Stream
from timely_llm.serving.limits import RequestLimits, Timeouts
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.server import Server

Answer = queue.SimpleQueue[StreamChunk | StreamResult]
"""The chunks of an answer and, as the last item, its result."""


class Answers:
    """Serves conversations on an engine by continuous batching, as clouds do.

    Args:
        make_engine: makes the engine, in the thread that runs it.
        most: most answers at a time.
    """

    def __init__(self, make_engine: Callable[[], Engine], most: int = 64) -> None:
        self._answers: dict[str, Answer] = {}
        self._lock = threading.Lock()
        clock = WallClock()
        self._server = Server(
            lambda: Loop(make_engine(), Stream(), clock, timeouts=Timeouts(math.inf)),
            self,
            clock,
            RequestLimits(max_requests=most, max_requests_per_agent=most),
        )
        self._server.wait_ready()

    def begin(self, request: StreamRequest) -> Answer:
        """Begin an answer.

        Raises:
            Rejected: it is refused, and why.
        """
        answer: Answer = queue.SimpleQueue()
        with self._lock:
            self._answers[request.request_id] = answer
        try:
            self._server.submit(request)
        except BaseException:
            self._forget(request.request_id)
            raise
        return answer

    def cancel(self, request_id: str) -> None:
        """Give an answer up; one that has ended is not an error."""
        self._server.cancel(request_id)

    def close(self) -> None:
        """End all answers and free the engine."""
        self._server.close()

    def _forget(self, request_id: str) -> Answer | None:
        with self._lock:
            return self._answers.pop(request_id, None)

    # The sink of the server.

    def accepted(self, request: Request) -> None:
        """Take a request; see `ServerSink.accepted`."""

    def segment(self, segment: Segment) -> None:
        """Take a segment: conversations have none."""

    def chunk(self, chunk: StreamChunk) -> None:
        """Pass a chunk on to its answer."""
        answer = self._answers.get(chunk.request_id)
        if answer is not None:
            answer.put(chunk)

    def ended(self, result: Result) -> None:
        """Pass a result on to its answer."""
        answer = self._forget(result.request_id)
        if answer is not None and isinstance(result, StreamResult):
            answer.put(result)

    def stepped(self, result: StepResult) -> None:
        """Take a step; see `Sink.stepped`."""
