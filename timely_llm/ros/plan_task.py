"""One plan that was asked for, as its client sees it: no ROS, usable from any thread."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Protocol

from timely_llm.core.request import ErrorCode, ExecutionReport, PlanResult, ReportState
from timely_llm.core.segment import Segment, SkillCall
from timely_llm.ros.pending import Canceler, Pending, PlanClientError

CALL = re.compile(r"([A-Za-z_]\w*)\(((?:'[^']*'|\"[^\"]*\"|[^()'\"])*)\)")
ARGUMENT = re.compile(r"'[^']*'|\"[^\"]*\"|[^,\s]+")
CLOSERS = " \n;}"
"""A plan's last marks may come after its last segment."""


class Postman(Canceler, Protocol):
    """What a task asks of its client."""

    def report(self, report: ExecutionReport) -> None:
        """Send a robot's word to the server."""
        ...


class PlanTask(Pending[PlanResult]):
    """A plan in the making; made by `PlanClient.submit`."""

    def __init__(self, request_id: str, agent: str, postman: Postman) -> None:
        super().__init__(request_id, agent, postman)
        self._postman = postman
        self._epoch = self._next = 0
        self._void = -1  # the newest epoch in which a segment failed
        self._segments: dict[int, Segment] = {}
        self._began_s: dict[tuple[int, int], float] = {}
        self._read = ""
        self._returned = self._reported = False

    def segments(self, timeout_s: float = 30.0) -> Iterator[Segment]:
        """Yield the segments in order, each once, until the plan is complete.

        After `failed` the segments of a new plan follow, whose `epoch` is higher. After a segment
        whose `blocking` is true the next one comes only when it was reported as `finished`.

        Args:
            timeout_s: how long to wait for each.

        Raises:
            PlanTimeout: the next segment did not come in time.
            PlanClientError: the plan ended with an error, or the client was closed.
        """
        while True:
            segment = self._take(timeout_s)
            if segment is None:
                return
            yield segment

    def started(self, segment: Segment) -> None:
        """Report that the robot began to execute a segment."""
        self._began_s[segment.epoch, segment.index] = time.monotonic()
        self._report(ReportState.STARTED, segment)

    def finished(self, segment: Segment, duration_s: float | None = None, value: str = "") -> None:
        """Report that a segment was executed.

        Args:
            segment: which.
            duration_s: how long it took; None: since it was started, or else since it came.
            value: what its blocking skill returned.
        """
        self._report(ReportState.FINISHED, segment, duration_s, value)

    def failed(self, segment: Segment, reason: str, duration_s: float | None = None) -> None:
        """Report that a segment could not be executed; a new plan is asked for.

        Args:
            segment: which; what came after it is void.
            reason: one sentence that the model is told.
            duration_s: as in `finished`.
        """
        with self._changed:
            self._void = max(self._void, segment.epoch)
            self._segments.clear()
        self._report(ReportState.FAILED, segment, duration_s, reason)

    def returned(self) -> None:
        """Report that the plan returned: no further segment is needed."""
        with self._changed:
            self._returned = True
            self._changed.notify_all()
            state = ReportState.RETURNED
            report = ExecutionReport(self.request_id, self.agent, state, epoch=self._epoch)
        self._postman.report(report)

    def result(self, timeout_s: float = 60.0) -> PlanResult:
        """Return how the request ended, also if it ended with an error.

        In a closed loop it ends with the report about its last segment; who reports nothing at all
        is not waited for.

        Raises:
            PlanTimeout: it did not end in time.
            PlanClientError: the client was closed before.
        """
        with self._changed:
            unreported = self._last_was_read() and not (self._reported or self.done)
        if unreported:
            self.returned()
        return super().result(timeout_s)

    # What the client's thread tells.

    def offer(self, segment: Segment) -> None:
        """Take a segment, wherever it comes from; one that is known changes nothing."""
        with self._changed:
            if segment.epoch < self._epoch or segment.epoch <= self._void:
                return
            self._go_to(segment.epoch)
            if segment.index not in self._segments or segment.final:
                self._segments[segment.index] = segment
            self._changed.notify_all()

    def _go_to(self, epoch: int) -> None:
        if epoch > self._epoch:
            self._epoch, self._next, self._read = epoch, 0, ""
            self._segments.clear()

    def _take(self, timeout_s: float) -> Segment | None:
        """Wait for the next segment and return it; None: the plan is complete."""
        with self._changed:
            self._wait(self._has_news, timeout_s, "sent no segment")
            if self._returned or self._last_was_read():
                return None
            segment = self._segments.get(self._next)
            error = self._result is not None and self._result.error_code is not ErrorCode.NONE
            if segment is None or error:
                segment = self._recover()
            if segment is not None:
                self._next += 1
                self._read += segment.text
                self._began_s.setdefault((segment.epoch, segment.index), time.monotonic())
            return segment

    def _has_news(self) -> bool:
        news = self._next in self._segments or self._last_was_read()
        return news or self._returned or self.done

    def _last_was_read(self) -> bool:
        last = self._segments.get(self._next - 1)
        return last is not None and last.final

    def _recover(self) -> Segment | None:
        """Return what got lost on the way as one segment, from the whole plan in the result."""
        result = self._ended()
        if result.error_code is not ErrorCode.NONE:
            raise PlanClientError(result.error_msg, result.error_code)
        if result.epoch <= self._void:
            raise PlanClientError(
                "a segment failed after its request had ended: submit a new task",
                ErrorCode.EXECUTION_FAILED,
            )
        self._go_to(result.epoch)
        lost = result.plan.removeprefix(self._read)
        if not lost.strip(CLOSERS):
            return None
        segment = Segment(
            self.request_id, self.agent, self._next, lost, calls_of(lost), 0.0, True, self._epoch
        )
        self._segments[self._next] = segment
        return segment

    def _report(
        self, state: ReportState, segment: Segment, duration_s: float | None = 0.0, value: str = ""
    ) -> None:
        self._reported = True
        if duration_s is None:
            now = time.monotonic()
            duration_s = now - self._began_s.get((segment.epoch, segment.index), now)
        self._postman.report(
            ExecutionReport(
                self.request_id, self.agent, state, segment.index, duration_s, value, segment.epoch
            )
        )


def calls_of(text: str) -> tuple[SkillCall, ...]:
    """Return the skill calls named in the text of a plan, their arguments as texts."""
    return tuple(
        SkillCall(name, tuple(word.strip("'\"") for word in ARGUMENT.findall(words)))
        for name, words in CALL.findall(text)
    )
