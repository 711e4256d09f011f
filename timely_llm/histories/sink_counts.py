"""What a server did as its sink saw it, to compare with what the server counts itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from timely_llm.core.request import ErrorCode, Request, Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.histories.checks import ensure
from timely_llm.histories.turned_server import TurnedServer
from timely_llm.serving.server.statistics import statistics
from timely_llm.serving.sink import RecordingSink, ServerSink

STATES = ("queued", "running", "suspended", "blocked", "executing")


class SinkCounts:
    """Counts what passes on its way to a sink, in one life of a server.

    Args:
        sink: takes all of it.
    """

    def __init__(self, sink: ServerSink) -> None:
        self._sink = sink
        self._counts: Counter[str] = Counter()
        self._ends: Counter[ErrorCode] = Counter()

    def accepted(self, request: Request) -> None:
        """Count a request that the server accepted."""
        self._sink.accepted(request)
        self._counts["accepted"] += 1

    def coming(self, segments: Iterable[Segment]) -> None:
        """Let segments be recorded."""
        if isinstance(self._sink, RecordingSink):
            self._sink.coming(segments)

    def written(self) -> None:
        """Let the records be written that wait."""
        if isinstance(self._sink, RecordingSink):
            self._sink.written()

    def segment(self, segment: Segment) -> None:
        """Count a segment."""
        self._sink.segment(segment)
        self._counts["segments"] += 1

    def chunk(self, chunk: StreamChunk) -> None:
        """Count a token of an answer."""
        self._sink.chunk(chunk)
        self._counts["chunks"] += 1

    def stepped(self, result: StepResult) -> None:
        """Count a step and its tokens."""
        self._sink.stepped(result)
        self._counts["steps"] += 1
        self._counts["generated_tokens"] += sum(map(len, result.tokens.values()))

    def ended(self, result: Result) -> None:
        """Count the end of a request."""
        self._sink.ended(result)
        self._ends[result.error_code] += 1

    def check(self, name: str, server: TurnedServer) -> None:
        """Compare with the server's statistics after a turn.

        Raises:
            BrokenError: they do not agree.
        """
        said, ends = statistics(server.loop, server.stats), self._ends
        counted = {
            **{key: self._counts[key] for key in ("steps", "segments", "chunks")},
            "generated_tokens": self._counts["generated_tokens"],
            "ended": ends[ErrorCode.NONE],
            "expired": ends[ErrorCode.EXPIRED],
            "silent": ends[ErrorCode.CLIENT_SILENT],
        }
        for key, count in counted.items():
            ensure(
                said[key] == count,
                "counters add up",
                f"{name} counts {said[key]} {key}, its sink got {count}",
            )
        served = server.serving
        ensure(
            self._counts["accepted"] == ends.total() + served,
            "counters add up",
            f"{name} accepted {self._counts['accepted']}, ended {ends.total()}, serves {served}",
        )
        states = sum(said[state] for state in STATES)
        ensure(states == served, "counters add up", f"{name} serves {served}, and says {states}")
        # One that is refused before the loop has it is neither a request nor a failure of the loop.
        refused = self._counts["accepted"] - said["requests"]
        bad = ends.total() - ends[ErrorCode.NONE] - ends[ErrorCode.CANCELED] - said["failed"]
        ensure(
            0 <= refused <= bad and (server.failed or refused == bad),
            "counters add up",
            f"{name} lacks {refused} requests and {bad} failures that its sink got",
        )
