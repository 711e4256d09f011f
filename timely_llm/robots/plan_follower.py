"""A plan as its robot follows it, epoch by epoch. Pure logic: the caller gives the time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from timely_llm.core.errors import PlanError
from timely_llm.core.request import ErrorCode, PlanResult
from timely_llm.core.segment import Segment, Value
from timely_llm.robots.epoch_run import EpochRun, ExecutionEvent
from timely_llm.robots.plan_epochs import PlanEpochs

AnyRun = TypeVar("AnyRun", bound=EpochRun)
RunEnding = Literal["", "finished", "failed", "error"]


class PlanFollower(Generic[AnyRun]):
    """Executes the segments of a plan's newest epoch, each (epoch, index) once.

    Segments of void epochs are ignored (see `PlanEpochs`). A segment that comes again changes
    nothing; with other words it fails. After a failure the follower waits for a newer epoch.

    Args:
        new_run: makes the execution of an epoch.
        failure: returns why the robot failed a segment that it has executed; empty: it did not.
        overtaken_s: how long segments that the result has overtaken are waited for, seconds; then
            the whole plan in the result makes up for them.
        replaces: returns whether the server replaces plans that did not fail.

    Attributes:
        runs: the executions of all epochs that were followed, in order.
        result: how the server ended the request; None while it has not.
    """

    def __init__(
        self,
        new_run: Callable[[], AnyRun],
        failure: Callable[[ExecutionEvent], str] = lambda event: "",
        overtaken_s: float = 0.0,
        replaces: Callable[[], bool] = lambda: False,
    ) -> None:
        self._new_run = new_run
        self._failure = failure
        self._overtaken_s = overtaken_s
        self._epochs = PlanEpochs(replaces)
        self._came: set[tuple[int, int]] = set()  # (epoch, index) of segments, of all epochs
        self._make_up_s = math.inf
        self._returned = False
        self._events: list[ExecutionEvent] = []
        self.runs = [new_run()]
        self.result: PlanResult | None = None

    @property
    def epoch(self) -> int:
        """The epoch that is being executed."""
        return self._epochs.newest

    @property
    def run(self) -> AnyRun:
        """The execution of that epoch."""
        return self.runs[-1]

    @property
    def failed(self) -> bool:
        """Whether a segment of that epoch failed: nothing more of it is executed."""
        return self._epochs.void(self._epochs.newest)

    @property
    def wake_s(self) -> float:
        """When to call `wake`; infinite while only a segment or a result brings news."""
        return math.inf if self.failed else min(self.run.wake_s, self._make_up_s)

    @property
    def ending(self) -> RunEnding:
        """How the plan ended for its robot; empty while it has not.

        "error": the server ended the request with an error. "failed": a segment failed after the
        request had ended, so there will be no new epoch; or the request ended with an epoch that
        the robot did not cause.
        """
        if self.result is None:
            return ""
        if self.result.error_code is not ErrorCode.NONE:
            return "error"
        if self.failed:
            return "failed"
        return "finished" if self.run.ended else ""

    def offer(self, segment: Segment, now: float) -> bool:
        """Take a segment, wherever it comes from; return whether its epoch is executed."""
        if self.ending or not self._follow(segment.epoch, segment.request_id):
            return False
        self._came.add((segment.epoch, segment.index))
        self._execute(
            segment.index,
            lambda: self.run.receive(segment.index, segment.text, segment.final, now),
            now,
        )
        self._make_up(now)
        return True

    def finish(self, result: PlanResult, now: float) -> None:
        """Take the result; only the first one counts."""
        if self.result is not None:
            return
        self.result = result
        if result.error_code is not ErrorCode.NONE:
            return
        if not self._epochs.void(result.epoch) and not self._epochs.caused(result.epoch):
            self.give_up()
        elif self._follow(result.epoch, result.request_id):
            self._make_up_s = now + self._overtaken_s
            self._make_up(now)

    def wake(self, now: float) -> None:
        """Go on after the end of a call, or without segments that did not come."""
        if not self.failed and now >= self.run.wake_s:
            self.run.wake(now)
            self._collect(now)
        self._make_up(now)

    def resume(self, value: Value, now: float) -> None:
        """Go on after a call that its caller made, and that returned `value`."""
        self.run.resume(value, now)
        self._collect(now)

    def fail(self, reason: str, now: float) -> None:
        """Fail the segment of a call that its caller could not make."""
        index = self.run.failing
        took_s = self.run.duration_s(index, now)
        self._fail(ExecutionEvent("failed", index, now, took_s, reason=reason))

    def give_up(self) -> None:
        """Execute nothing more of the epoch: it was reported as failed, or replaced."""
        self._epochs.fail(self._epochs.newest)

    def drain(self) -> list[ExecutionEvent]:
        """Return the events of the epoch in work since the last call."""
        events, self._events = self._events, []
        return events

    def _follow(self, epoch: int, request_id: str) -> bool:
        begun = self._epochs.newest
        if not self._epochs.follow(epoch, request_id):
            return False
        if epoch > begun:
            self.runs.append(self._new_run())
        return True

    def _make_up(self, now: float) -> None:
        """Let the whole plan in the result make up for segments that got lost on the way."""
        result = self.result
        if result is None or self.failed or self._make_up_s == math.inf:
            return
        if len(self._came) >= result.segments or now >= self._make_up_s:
            self._make_up_s = math.inf
            self._execute(self.run.segments, lambda: self.run.complete(result.plan, now), now)

    def _execute(self, index: int, work: Callable[[], None], now: float) -> None:
        """Execute a part of the plan; what the robot cannot read fails as segment `index`."""
        try:
            work()
        except PlanError as error:
            self.run.drain()  # nothing of an unreadable segment was executed
            self._fail(ExecutionEvent("failed", index, now, reason=str(error), unreadable=True))
        else:
            self._collect(now)

    def _collect(self, now: float) -> None:
        """Take the events of the run, up to the first failure."""
        for event in self.run.drain():
            reason = self._failure(event) if event.kind == "finished" else ""
            if reason:
                took_s = event.duration_s
                self._fail(ExecutionEvent("failed", event.index, event.at_s, took_s, reason=reason))
                return
            self._events.append(event)
        if self.run.returned and self.result is None and not self._returned:
            self._returned = True
            self._events.append(ExecutionEvent("returned", 0, now))

    def _fail(self, event: ExecutionEvent) -> None:
        self._epochs.fail(self._epochs.newest)
        self._events.append(event)
