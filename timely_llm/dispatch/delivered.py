"""What the client of a request has got, and how its request goes on at another server."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from timely_llm.core.request import (
    ExecutionReport,
    PlanRequest,
    ReportState,
    Request,
    StreamChunk,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.contract import Waiting


class Recovery(Protocol):
    """Words requests that go on after their server was lost."""

    def task(self, request: PlanRequest, plan: str, done: str) -> str:
        """Return the task that asks for the rest of a plan.

        Args:
            request: as it was asked first.
            plan: the text of what was delivered of the newest epoch.
            done: the text of what was executed.
        """
        ...

    def answer(self, request: StreamRequest, text: str, tokens: int) -> StreamRequest:
        """Return the request for the rest of an answer.

        Args:
            request: as it was asked first.
            text: what was delivered.
            tokens: number of tokens that were delivered.
        """
        ...


@dataclass(eq=False)
class Delivered:
    """What the client of one request has got from all servers that had the request.

    A server numbers the epochs and tokens of a request from 0. The client sees the numbers go on.

    Attributes:
        waiting: as it was asked first.
        epoch: epoch of the client with which the plan of the present server begins.
        whole: the client has all of it.
    """

    waiting: Waiting
    epoch: int = 0
    whole: bool = False
    _texts: list[str] = field(default_factory=list)  # of segments, or of tokens
    _newest: int = 0  # epoch of the newest segment
    _before: int = 0  # texts of earlier epochs, or tokens of earlier servers
    _executed: int = 0

    def segment(self, segment: Segment) -> Segment:
        """Record a segment of the present server; return it as the client gets it."""
        segment = replace(segment, epoch=self.epoch + segment.epoch)
        if segment.epoch > self._newest:
            self._newest, self._before = segment.epoch, len(self._texts)
        self._texts[self._before + segment.index :] = [segment.text]
        self.whole = segment.final
        return segment

    def chunk(self, chunk: StreamChunk) -> StreamChunk:
        """Record a token of the present server; return it as the client gets it."""
        chunk = replace(chunk, index=self._before + chunk.index)
        self._texts.append(chunk.text)
        self.whole = chunk.final
        return chunk

    def report(self, report: ExecutionReport) -> ExecutionReport:
        """Record a robot's report; return it as the present server gets it.

        A report about the plan of an earlier server counts as ALIVE there.
        """
        if report.epoch == self._newest:
            place = self._before + report.index
            if report.state is ReportState.FINISHED:
                self._executed = min(max(self._executed, place + 1), len(self._texts))
            elif report.state is ReportState.FAILED:
                del self._texts[place:]
                self.whole = False
            elif report.state is ReportState.RETURNED:
                self.whole = True
        if report.epoch < self.epoch:
            return replace(report, state=ReportState.ALIVE, index=0, epoch=0)
        return replace(report, epoch=report.epoch - self.epoch)

    def rest(self, recovery: Recovery, now: float) -> Waiting:
        """Return the request for what the client lacks, and begin its next epoch.

        What a robot reported as finished counts as executed. Without reports, all of it does.

        Raises:
            RequestError: no server admits such a request.
        """
        request: Request = self.waiting.request
        if isinstance(request, StreamRequest):
            self._before = len(self._texts)
            request = recovery.answer(request, "".join(self._texts), self._before)
            left = max(self.waiting.answer_tokens - self._before, 1.0)
            return replace(self.waiting, request=request, answer_tokens=left)
        assert isinstance(request, PlanRequest)
        plan = "".join(self._texts[self._before :])
        if request.closed_loop:
            del self._texts[self._executed :]
        task = recovery.task(request, plan, "".join(self._texts))
        self.epoch = self._newest = self._newest + 1
        self._before = len(self._texts)
        request = replace(request, task=task, time_utility=URGENT)
        return replace(self.waiting, request=request, asked_s=now)
