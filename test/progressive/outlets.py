"""The outlets of a request with help, which note what comes out."""

from __future__ import annotations

from timely_llm.core.request import ExecutionReport, Request, Result, StreamChunk
from timely_llm.core.segment import Segment


class Noted:
    """Notes what a request with help asks for and delivers."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.ended: list[str] = []
        self.reports: list[ExecutionReport] = []
        self.forgotten: list[str] = []
        self.chunks: list[StreamChunk] = []
        self.segments: list[Segment] = []
        self.result: Result | None = None
        self.room = True

    def has_room(self) -> bool:
        return self.room

    def ask_edge(self, parent: str, request: Request) -> None:
        self.asked.append(request)

    def end_part(self, request_id: str) -> None:
        self.ended.append(request_id)

    def pass_report(self, report: ExecutionReport) -> None:
        self.reports.append(report)

    def forget(self, key: str) -> None:
        self.forgotten.append(key)

    def deliver(self, made: StreamChunk | Segment) -> None:
        assert self.result is None, "nothing comes after the end"
        if isinstance(made, StreamChunk):
            self.chunks.append(made)
        else:
            self.segments.append(made)

    def finish(self, result: Result) -> None:
        assert self.result is None, "a request ends once"
        self.result = result

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)
