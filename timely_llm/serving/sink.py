"""Where deliveries go."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from timely_llm.core.request import Request, Result
from timely_llm.core.segment import Segment
from timely_llm.core.stream import StreamChunk
from timely_llm.engines.contract import StepResult
from timely_llm.serving.failures import Failures
from timely_llm.serving.gate import Gate

log = logging.getLogger(__name__)
T = TypeVar("T")


class Sink(Protocol):
    """Where deliveries go; called from the loop's thread, must not block."""

    def segment(self, segment: Segment) -> None:
        """Publish a segment, in the step in which its boundary was matched."""
        ...

    def chunk(self, chunk: StreamChunk) -> None:
        """Publish a piece of an answer, in the step in which its token was generated."""
        ...

    def ended(self, result: Result) -> None:
        """Tell how a request ended; nothing more comes of it."""
        ...

    def stepped(self, result: StepResult) -> None:
        """Tell what a step of the engine did, before anything that it made is told."""
        ...


class Nobody:
    """A sink that does not look."""

    def segment(self, segment: Segment) -> None:
        """Ignore a segment."""

    def chunk(self, chunk: StreamChunk) -> None:
        """Ignore a piece of an answer."""

    def ended(self, result: Result) -> None:
        """Ignore an end."""

    def stepped(self, result: StepResult) -> None:
        """Ignore a step."""


class ServerSink(Sink, Protocol):
    """A sink that is also told which requests a server lets in."""

    def accepted(self, request: Request) -> None:
        """Tell of a request, in the thread that submits it and before anything comes of it."""
        ...


class Watched:
    """Passes deliveries of requests on that are being served, and their one end.

    A request has ended when somebody has taken it out of the gate: the loop, or whoever ends
    requests for a loop that does not run any more. What comes of it later is told to nobody.

    Args:
        sink: takes them.
        gate: knows who is being served.
    """

    def __init__(self, sink: Sink, gate: Gate) -> None:
        self._sink = sink
        self._gate = gate
        self._failures = Failures(log, "a step or an end could not be told")

    def segment(self, segment: Segment) -> None:
        """Pass a segment on."""
        if segment.request_id in self._gate:
            self._sink.segment(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        """Pass a piece of an answer on."""
        if chunk.request_id in self._gate:
            self._sink.chunk(chunk)

    def ended(self, result: Result) -> None:
        """Pass an end on, if the request has not ended; its place is free, whatever happens."""
        if self._gate.leave(result.request_id):
            self._told(self._sink.ended, result)

    def stepped(self, result: StepResult) -> None:
        """Pass a step on."""
        self._told(self._sink.stepped, result)

    def _told(self, tell: Callable[[T], None], what: T) -> None:
        """Tell something that is over; that it could not be told is logged, and changes nothing."""
        try:
            tell(what)
        except Exception as error:
            self._failures.add(error)
