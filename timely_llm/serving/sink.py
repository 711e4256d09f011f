"""Where deliveries go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from timely_llm.core.request import Request, Result
from timely_llm.core.segment import Segment
from timely_llm.core.stream import StreamChunk
from timely_llm.engines.contract import StepResult


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
    """Passes deliveries on, and tells when a request has ended.

    Args:
        sink: takes them.
        ended: told the id of each request that has ended, after the sink.
    """

    def __init__(self, sink: Sink, ended: Callable[[str], None]) -> None:
        self._sink = sink
        self._ended = ended

    def segment(self, segment: Segment) -> None:
        """Pass a segment on."""
        self._sink.segment(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        """Pass a piece of an answer on."""
        self._sink.chunk(chunk)

    def ended(self, result: Result) -> None:
        """Pass an end on."""
        self._sink.ended(result)
        self._ended(result.request_id)

    def stepped(self, result: StepResult) -> None:
        """Pass a step on."""
        self._sink.stepped(result)
