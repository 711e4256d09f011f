"""Sinks: where segments, pieces of answers and results of requests go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar, runtime_checkable

from timely_llm.core.request import ErrorCode, Request, Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.serving.failures import Failures
from timely_llm.serving.limits import RequestGate

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
        """Publish the result of a request; nothing more comes of it."""
        ...

    def stepped(self, result: StepResult) -> None:
        """Publish a step of the engine, before the segments and chunks that it made."""
        ...


class ServerSink(Sink, Protocol):
    """A sink that also takes the requests that a server accepts."""

    def accepted(self, request: Request) -> None:
        """Publish a request, in the thread that submits it and before anything comes of it."""
        ...


@runtime_checkable
class RecordingSink(Protocol):
    """A sink that records what it publishes, many records with one write."""

    def coming(self, segments: Iterable[Segment]) -> None:
        """Record segments that come next, before the first of them; later records may wait."""
        ...

    def written(self) -> None:
        """Write the records that wait."""
        ...


class ActiveRequestSink:
    """Passes deliveries of requests on that are being served, and their one end.

    A request has ended when it has left the gate: the loop ended it, or the server did for a loop
    that does not run any more. What comes of it later is dropped.

    Args:
        sink: takes them.
        gate: has the requests that are being served.
    """

    def __init__(self, sink: Sink, gate: RequestGate) -> None:
        self._sink = sink
        self._recording = sink if isinstance(sink, RecordingSink) else None
        self._gate = gate
        self._failures = Failures(log, "a step, an end or a record could not be published")

    def coming(self, segments: Iterable[Segment]) -> None:
        """Let those segments be recorded that will be passed on."""
        if self._recording is not None:
            mine = [one for one in segments if one.request_id in self._gate]
            self._forward(self._recording.coming, mine)

    def written(self) -> None:
        """Let the records be written that wait."""
        if self._recording is not None:
            self._forward(lambda recording: recording.written(), self._recording)

    def segment(self, segment: Segment) -> None:
        """Pass a segment on."""
        self._gate.begun((segment.request_id,))
        if segment.request_id in self._gate:
            self._sink.segment(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        """Pass a piece of an answer on."""
        if chunk.request_id in self._gate:
            self._sink.chunk(chunk)

    def ended(self, result: Result) -> None:
        """Pass an end on, if the request has not ended; its place is free, whatever happens."""
        if self._gate.leave(result.request_id, result.error_code is ErrorCode.NONE):
            self._forward(self._sink.ended, result)

    def stepped(self, result: StepResult) -> None:
        """Pass a step on."""
        self._gate.begun(result.computed)
        self._forward(self._sink.stepped, result)

    def _forward(self, publish: Callable[[T], None], what: T) -> None:
        """Publish a step or an end, or record; a failure is logged, and changes nothing."""
        try:
            publish(what)
        except Exception as error:
            self._failures.add(error)
