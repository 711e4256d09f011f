"""An open plan: the segments that have come, and whether they are void; usable from any thread."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from timely_llm.core.request import ErrorCode, ExecutionReport, PlanResult, ReportState
from timely_llm.core.segment import Segment, SkillCall
from timely_llm.robots.client.pending import Canceler, Pending, PlanClientError, failed
from timely_llm.robots.plan_epochs import PlanEpochs

MOST_HELD = 256
"""Segments that are held while the server is asked for a plan."""
LOOK_S = 0.02
"""Period of looks at a clock that is not the machine's, seconds of the machine."""


class ReportSender(Canceler, Protocol):
    """The part of a client that sends reports."""

    def report(self, report: ExecutionReport) -> None:
        """Send a robot's report to the server."""
        ...


class OpenPlan(Pending[PlanResult]):
    """A plan, while its request is open and shortly after.

    Args:
        request_id: unique on the server.
        agent: the robot's name.
        sender: sends reports.
        seconds: returns the robot's time, by which durations are measured.
        replaces: returns whether the server replaces plans that did not fail.
        resumed: the request is an earlier one: no segment counts before `adopt`.

    Attributes:
        seconds: as above.
    """

    def __init__(
        self,
        request_id: str,
        agent: str,
        sender: ReportSender,
        seconds: Callable[[], float] = time.monotonic,
        replaces: Callable[[], bool] = lambda: False,
        resumed: bool = False,
    ) -> None:
        super().__init__(request_id, agent, sender)
        self.seconds = seconds
        self._reports = sender
        self._epochs = PlanEpochs(replaces)
        self._held: deque[Segment] | None = deque(maxlen=MOST_HELD) if resumed else None
        self._unknown = resumed  # which epoch is the newest one
        self._segments: dict[int, Segment] = {}  # of the newest epoch, by index
        self._returned = False

    # What the server sends.

    def offer(self, segment: Segment) -> None:
        """Take a segment, wherever it comes from; a known one changes nothing."""
        with self._changed:
            if self._held is not None:
                self._held.append(segment)
            elif self._follow(segment.epoch, asked=self._unknown):
                self._unknown = False
                self._take_in(segment)

    def adopt(self, segments: Iterable[Segment]) -> None:
        """Take the segments of the newest epoch, of which the server was asked.

        If a resumed plan has none yet, the next segment says which epoch is the newest one.
        """
        with self._changed:
            held, self._held = self._held or (), None
            for segment in segments:
                if self._follow(segment.epoch, asked=True):
                    self._unknown = False
                    self._take_in(segment)
            for segment in held:
                self.offer(segment)

    def _take_in(self, segment: Segment) -> None:
        if segment.index not in self._segments or segment.final:
            self._segments[segment.index] = segment
        self._changed.notify_all()

    def _follow(self, epoch: int, asked: bool = False) -> bool:
        """Go over to a newer epoch; return whether segments of `epoch` are executed.

        Args:
            epoch: of a segment or a result.
            asked: the server named it when it was asked for the plan.
        """
        begun = self.epoch
        if asked:
            self._epochs.adopt(epoch)
        if not self._epochs.follow(epoch, self.request_id):
            return False
        if epoch > begun:
            self._segments.clear()
        return True

    # What an execution asks.

    @property
    def epoch(self) -> int:
        """The newest epoch of which a segment came."""
        return self._epochs.newest

    @property
    def ending(self) -> PlanResult | None:
        """How the request ended; None: it has not."""
        return self._result

    def known(self, epoch: int, index: int) -> Segment | None:
        """Return a segment that has come and is not void."""
        with self._changed:
            valid = epoch == self.epoch and not self._epochs.void(epoch)
            return self._segments.get(index) if valid else None

    def stopped(self) -> PlanClientError | None:
        """Return why nothing more of any epoch is to be executed; None: an epoch may be."""
        result = self._result
        if result is not None and result.error_code is not ErrorCode.NONE:
            return failed(result)
        if result is not None and not self._epochs.caused(result.epoch):
            return foreign(result)
        if self._canceling:
            return PlanClientError("the request was canceled", ErrorCode.CANCELED)
        if self._closed and result is None:
            return self._closing()
        if self._returned:
            return PlanClientError("the plan was reported as returned elsewhere")
        return None

    def void(self, epoch: int) -> str:
        """Return why nothing more of an epoch is to be executed; empty: it is not void."""
        with self._changed:
            stopped = self.stopped()
            if stopped is not None:
                return str(stopped)
            replaced = self._epochs.void(epoch)
            return "a new plan takes the place of this one" if replaced else ""

    def wait_void(self, epoch: int, timeout_s: float) -> bool:
        """Wait until an epoch is void; return whether it is.

        Args:
            epoch: of the plan.
            timeout_s: the longest time, in the robot's seconds.
        """
        end_s = self.seconds() + timeout_s
        most_s = math.inf if self.seconds is time.monotonic else LOOK_S
        with self._changed:
            while not self.void(epoch) and (left_s := end_s - self.seconds()) > 0:
                self._changed.wait(min(left_s, most_s, threading.TIMEOUT_MAX))
            return bool(self.void(epoch))

    def wait_for(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until a condition holds that depends on what the server sends.

        Raises:
            PlanTimeout: it does not in time.
        """
        with self._changed:
            self._wait(condition, timeout_s, what)

    # Reports.

    def send_report(self, report: ExecutionReport) -> None:
        """Send a report; a failure makes its epoch void."""
        if report.state is ReportState.FAILED:
            with self._changed:
                self._epochs.fail(report.epoch)
                if report.epoch == self.epoch:
                    self._segments.clear()
                self._changed.notify_all()
        self._reports.report(report)

    def returned(self) -> None:
        """Report that the plan returned: no further segment is needed."""
        with self._changed:
            self._returned = True
            self._changed.notify_all()
            epoch = self.epoch
        self.send_report(self._report_of(ReportState.RETURNED, epoch, 0))

    def _report_of(
        self, state: ReportState, epoch: int, index: int, duration_s: float = 0.0, value: str = ""
    ) -> ExecutionReport:
        return ExecutionReport(self.request_id, self.agent, state, index, duration_s, value, epoch)


def foreign(result: PlanResult) -> PlanClientError:
    """Return the error of a request that ended with an epoch that its robot did not cause."""
    return PlanClientError(
        f"the request ended with a plan of epoch {result.epoch}, and its robot reported no failure"
        f" of epoch {result.epoch - 1}: submit a new task",
        ErrorCode.EXECUTION_FAILED,
    )


def too_late(reason: str = "") -> PlanClientError:
    """Return the error of a segment that failed after its request had ended."""
    why = f" ({reason})" if reason else ""
    return PlanClientError(
        f"a segment failed{why} after its request had ended: submit a new task",
        ErrorCode.EXECUTION_FAILED,
    )


class Execution:
    """The execution that a running skill is part of: handed to callables that ask for it.

    A callable asks with a keyword of this name: `def g(name, *, execution)`. A running callable
    cannot be ended from outside; this object shows it when it should end. All methods may be called
    from any thread.

    Attributes:
        call: the call that is being made.
        epoch, index: the segment that contains the call.
    """

    def __init__(self, plan: OpenPlan, epoch: int, index: int, call: SkillCall) -> None:
        self._plan = plan
        self.call = call
        self.epoch, self.index = epoch, index

    @property
    def canceled(self) -> bool:
        """Whether the plan of this call is void: nothing more of it will be executed."""
        return bool(self.reason)

    @property
    def reason(self) -> str:
        """Why the plan is void, in one sentence; empty while it is not."""
        return self._plan.void(self.epoch)

    def wait(self, timeout_s: float) -> bool:
        """Sleep for robot's seconds, at most until the plan is void; return whether it is."""
        return self._plan.wait_void(self.epoch, timeout_s)

    def cancel(self) -> None:
        """End the request; does not wait. The execution ends when the running skill returns."""
        self._plan.ask_to_cancel()
