"""What the robot of a plan has got, where it stands, and plans that wait for their robots."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from timely_llm.core.request import ExecutionReport, PlanResult, ReportState, Result
from timely_llm.core.segment import Segment
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.contract import Waiting
from timely_llm.dispatch.front.delivered.recovery import LOST, Recovery
from timely_llm.dispatch.link import Found

ANSWER_S = 60.0
"""Seconds in which a robot has to report what it executed: from its predicted end, and its last
report."""


@dataclass(eq=False)
class DeliveredPlan:
    """The segments that a robot has got from all servers that had its request.

    A robot drops the segments of an epoch once it gets one of a newer epoch. So the segments of a
    new server are held until the robot has executed those that it has: a robot in a closed loop
    reports that, and another one is believed to execute as predicted.

    Attributes:
        waiting: the request, as it was asked first.
        asked_s: when it was.
        epoch: the newest epoch of the present server.
        segments: what the robot got of its newest epoch, in order.
        held: segments of the present server that the robot gets when it is free.
        free_s: when the robot has executed what it has, as predicted.
        heard_s: when the robot's last report of it came.
        whole: the client has all of the plan.
        returned: the robot reported that the plan has returned: nothing follows.
        failure: why the robot could not execute a segment of the newest epoch; empty: it could.
    """

    waiting: Waiting
    asked_s: float
    epoch: int = 0
    segments: list[Segment] = field(default_factory=list)
    held: list[Segment] = field(default_factory=list)
    free_s: float = -math.inf
    heard_s: float = -math.inf
    whole: bool = False
    returned: bool = False
    failure: str = ""
    _done: list[str] = field(default_factory=list)  # texts of earlier epochs that were executed
    _count: int = 0
    _finished: int = -1  # index of the newest segment of the newest epoch that was executed
    _value: str = ""  # of that segment
    _holds: bool = False
    _moved: bool = False
    _least: int = 0  # segments of older epochs come too late
    _response_s: float = -1.0
    _waited_s: float = 0.0

    @property
    def begun(self) -> bool:
        """Whether the robot got a segment."""
        return self._count > 0

    @property
    def count(self) -> int:
        """Number of segments that the robot got."""
        return self._count

    @property
    def due_s(self) -> float:
        """When the robot needs the next segment, on the dispatcher's clock."""
        return self.free_s if self.begun else self.asked_s + self.waiting.plan.time_utility.ert_s

    @property
    def shown(self) -> int:
        """The newest epoch of which the robot got a segment."""
        return self.segments[-1].epoch if self.segments else 0

    @property
    def executed(self) -> bool:
        """Whether the robot reported that it has executed all that it has."""
        return self._finished >= len(self.segments) - 1

    @property
    def executes(self) -> bool:
        """Whether the plan goes on only after a report of its robot."""
        if self.failure or self.executed:
            return False
        return self.waiting.plan.closed_loop if self.whole else self.segments[-1].blocking

    def adopt(self, found: Found, now: float) -> None:
        """Record what was delivered before, of the newest epoch."""
        self.epoch = found.epoch
        for segment in found.segments:
            self._show(segment, now)

    def is_behind(self, found: Found) -> bool:
        """Return whether a server goes on with a later epoch of the plan."""
        return found.epoch > self.epoch

    def is_free(self, now: float) -> bool:
        """Return whether the robot has executed what it has."""
        return self.executed if self.waiting.plan.closed_loop else now >= self.free_s

    def holds(self, now: float) -> bool:
        """Return whether segments of the present server are held."""
        return self._holds and not self.is_free(now)

    def is_late(self, segment: Segment) -> bool:
        """Return whether a segment is one of a plan that does not go on, or has come before.

        A server that was started again with its journal publishes again what was not reported.
        """
        if self.returned or segment.epoch < max(self._least, self.shown):
            return True
        return any(
            (one.epoch, one.index) == (segment.epoch, segment.index)
            and one.final >= segment.final
            and one.text.startswith(segment.text)
            for one in (*self.segments, *self.held)
        )

    def take(self, segment: Segment, now: float) -> list[Segment]:
        """Record a segment of the present server that is not late; return what the robot gets."""
        self.epoch = max(self.epoch, segment.epoch)
        if self.holds(now):
            self.held.append(segment)
            return []
        return [*self.release(now), self._show(segment, now)]

    def release(self, now: float) -> list[Segment]:
        """Return the held segments: the robot gets them now."""
        held, self.held, self._holds = self.held, [], False
        return [self._show(segment, now) for segment in held]

    def _show(self, segment: Segment, now: float) -> Segment:
        if self.segments and segment.epoch > self.shown:
            self._done += [one.text for one in self._counted]
            self.segments, self._finished, self.failure = [], -1, ""
        again = segment.index < len(self.segments)
        self.segments[segment.index :] = [segment]
        self.whole = segment.final
        if not again:
            self._account(segment, now)
        return segment

    def _account(self, segment: Segment, now: float) -> None:
        """Enter what the robot got: response and waiting time, and when it will be free."""
        if not self._count:
            self._response_s = now - self.asked_s
        self._waited_s += max(now - max(self.free_s, self.asked_s), 0.0)
        self.free_s = max(now, self.free_s) + segment.predicted_s
        self._count += 1

    @property
    def _counted(self) -> list[Segment]:
        """What counts as executed: all that the robot has, up to a segment that failed."""
        return self.segments[: self._finished + 1] if self.failure else self.segments

    def report(self, report: ExecutionReport, now: float) -> ExecutionReport:
        """Record a robot's report; return it as the present server gets it.

        The server knows nothing of segments of an earlier one. A report that ends their execution
        is one about its own plan.
        """
        if report.epoch != self.shown or report.state is ReportState.ALIVE:
            return report
        self.heard_s = now
        if report.state is ReportState.FINISHED and report.index < len(self.segments):
            if report.index >= self._finished:
                self._finished, self._value = report.index, report.value
        elif report.state is ReportState.RETURNED:
            self.whole = self.returned = True
            self._finished = len(self.segments) - 1
            self.held, self._holds = [], False
            return replace(report, epoch=self.epoch)
        elif report.state is ReportState.FAILED and not (self.failure or self.returned):
            text = "".join(one.text.strip() for one in self.segments[report.index :][:1])
            self.whole, self.failure = False, f"segment {report.index} failed: {report.value}"
            self._finished = min(report.index, len(self.segments)) - 1
            self._least = self.epoch + 1
            if self._holds:
                self.held, self._holds = [], False
                value = f"{text}: {report.value}"
                return replace(report, epoch=self.epoch, index=0, value=value)
        return report

    def has_come(self, result: Result) -> bool:
        """Return whether all segments of the last epoch of the present server have come.

        After the robot has returned none is awaited: those that come are late.
        """
        if self.returned or not isinstance(result, PlanResult):
            return True
        of_epoch = (one for one in (*self.segments, *self.held) if one.epoch == result.epoch)
        texts = {one.index: one.text for one in of_epoch}
        return "".join(texts.values()) == result.plan

    def anew(self, waiting: Waiting) -> Waiting:
        """Return the request as it was sent, for a plan's next epoch.

        A dispatcher that finds the old run too knows by the epoch which run counts.
        """
        self.epoch = self._least = self.epoch + 1
        return replace(waiting, request=replace(waiting.plan, epoch=self.epoch))

    def rest(self, recovery: Recovery, now: float) -> Waiting:
        """Return the request for the rest of the plan, and begin its next epoch.

        What the robot has counts as executed, unless it reported a failure.

        Raises:
            RequestError: no server admits such a request.
        """
        request = self.waiting.plan
        plan = "".join(one.text for one in self.segments)
        done = "".join([*self._done, *(one.text for one in self._counted)])
        if self.segments and self.segments[-1].blocking and self.executed:
            done += recovery.value(request, self._value)
        task = recovery.task(request, plan, self.failure or LOST, done)
        self.epoch = self._least = self.epoch + 1
        self.held, self._holds, self._moved = [], not self.failure, True
        request = replace(request, task=task, time_utility=URGENT, epoch=self.epoch)
        return replace(self.waiting, request=request, asked_s=now)

    def merged(self, result: Result, moved: bool = False) -> Result:
        """Return a result as the client gets it: with what earlier servers delivered.

        Args:
            result: the present server's; or one that has nothing but an error, if none has it.
            moved: no server has the request.
        """
        if not (self._moved or moved) or not isinstance(result, PlanResult):
            return result
        utility = self.waiting.plan.time_utility.value(self._response_s) if self.begun else 0.0
        return replace(
            result,
            plan="".join(one.text for one in self.segments),
            epoch=self.shown,
            segments=self._count,
            response_s=self._response_s,
            waiting_s=self._waited_s,
            utility=utility,
        )


class Executions:
    """Plans of robots that are not free.

    A server makes the rest of a held plan, and its segments are held. An alone plan has no server:
    it waits for a report, or its server has ended it with a result.
    """

    def __init__(self) -> None:
        self._held: dict[str, DeliveredPlan] = {}
        self._alone: dict[str, DeliveredPlan] = {}
        self._results: dict[str, Result] = {}

    @property
    def wake_s(self) -> float:
        """When a robot is free, or has to have reported."""
        free_s = (one.free_s for one in self._held.values() if not one.waiting.plan.closed_loop)
        return min(*free_s, *map(self._ends_s, self._alone), math.inf, math.inf)

    def hold(self, plan: DeliveredPlan) -> None:
        """Add a plan that a server goes on with."""
        self._held[plan.waiting.key] = plan

    def leave(self, plan: DeliveredPlan, result: Result | None = None) -> None:
        """Add a plan without a server; with a result: its server has ended it."""
        key = plan.waiting.key
        self._held.pop(key, None)
        self._alone[key] = plan
        if result is not None:
            self._results[key] = result

    def holds(self, request_id: str) -> bool:
        """Return whether a plan is held."""
        return request_id in self._held

    def alone(self, request_id: str) -> bool:
        """Return whether a plan has no server, because its robot executes it."""
        return request_id in self._alone

    def result(self, request_id: str) -> Result | None:
        """Return the result with which a plan's server has ended it."""
        return self._results.get(request_id)

    def drop(self, request_id: str) -> None:
        """Forget a plan."""
        for plans in (self._held, self._alone, self._results):
            plans.pop(request_id, None)

    def due(self, now: float) -> list[str]:
        """Return the plans with robots that are free, or that should have reported."""
        free = [key for key, one in self._held.items() if one.is_free(now)]
        return free + [key for key in self._alone if self._ends_s(key) <= now]

    def _ends_s(self, key: str) -> float:
        plan = self._alone[key]
        if key in self._results and not plan.waiting.plan.closed_loop:
            return plan.free_s
        return max(plan.free_s, plan.heard_s) + ANSWER_S
