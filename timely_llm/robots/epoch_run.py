"""The execution of one epoch's segments. Pure logic: the caller gives the time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from timely_llm.core.request import SHORTEST_S, ExecutionReport, ReportState
from timely_llm.core.segment import SkillCall, Value
from timely_llm.skills.minispec.interpreter import Do, Ended, Interpreter, NeedMore
from timely_llm.skills.skill_set import SkillSet, one_line

EventKind = Literal["started", "call", "finished", "failed", "returned"]
_STATES = {
    "started": ReportState.STARTED,
    "finished": ReportState.FINISHED,
    "failed": ReportState.FAILED,
    "returned": ReportState.RETURNED,
}


@dataclass(frozen=True)
class ExecutionEvent:
    """An event of a plan's execution.

    Attributes:
        kind: a segment was started, finished or failed; a call begins; the plan returned.
        index: the segment's index.
        at_s: when, on the caller's clock.
        duration_s: seconds the segment took (finished, failed) or the call takes (call).
        skipped: the segment was in a block that was not entered (finished).
        call: the call (call).
        value: what the segment's blocking call returned, if it made one (finished).
        reason: why the segment failed, in one sentence (failed).
        unreadable: the robot could not read the segment's text (failed).
    """

    kind: EventKind
    index: int
    at_s: float
    duration_s: float = 0.0
    skipped: bool = False
    call: SkillCall | None = None
    value: Value | None = None
    reason: str = ""
    unreadable: bool = False

    def report(self, request_id: str, agent: str, epoch: int) -> ExecutionReport | None:
        """Return the report of this event; None for a call: a report is of a whole segment."""
        state = _STATES.get(self.kind)
        if state is None:
            return None
        duration_s = self.duration_s
        if self.kind == "finished":
            duration_s = 0.0 if self.skipped else max(duration_s, SHORTEST_S)
        value = self.reason or value_text(self.value)
        return ExecutionReport(request_id, agent, state, self.index, duration_s, value, epoch)


def value_text(value: Value | None) -> str:
    """Return what a skill returned as reports carry it: one line, empty if it returned nothing."""
    return "" if value is None else one_line(str(value), "")


class EpochRun(ABC):
    """Executes segments as they come, up to the next call that takes time.

    Args:
        skill_set: the skills of the plan.

    Attributes:
        segments: segments that have come.
        call: the running call; None: none runs.
        end: how the plan ended; None: it has not.
        wake_s: when the running call ends; infinite: it is not known, or no call runs.
    """

    def __init__(self, skill_set: SkillSet) -> None:
        self._interpreter = Interpreter(skill_set)
        self._began_s: dict[int, float] = {}
        self._events: list[ExecutionEvent] = []
        self.segments = 0
        self.call: Do | None = None
        self.end: Ended | None = None
        self.wake_s = math.inf

    @abstractmethod
    def _begin(self, call: Do, now: float) -> Value | None:
        """Begin a call; return its value if it takes no time, else None."""

    def _reached(self, action: Do | NeedMore | Ended, now: float) -> None:  # noqa: B027
        """Measure what comes next; by default, nothing is measured."""

    def wake(self, now: float) -> None:  # noqa: B027
        """End the running call if its time is over; by default, its caller ends it."""

    @property
    def ended(self) -> bool:
        """Whether the plan is over."""
        return self.end is not None

    @property
    def returned(self) -> bool:
        """Whether the plan ended by a return."""
        return self.end is not None and self.end.returned

    @property
    def failing(self) -> int:
        """The segment that fails if the running call does."""
        return max(self._interpreter.segment, 0)

    def duration_s(self, index: int, now: float) -> float:
        """Return the seconds since a segment began; 0 if it has not."""
        return now - self._began_s.get(index, now)

    def receive(self, index: int, text: str, final: bool, now: float) -> None:
        """Take a segment; one that came before changes nothing.

        Raises:
            PlanError: its text is no plan, or differs from what came before.
        """
        self.segments = max(self.segments, index + 1)
        self._interpreter.add(index, text, final)
        self._go_on(now)

    def complete(self, plan: str, now: float) -> None:
        """Take the whole plan in place of segments that did not come.

        Raises:
            PlanError: it does not begin with the segments that came.
        """
        self._interpreter.complete(plan)
        self._go_on(now)

    def resume(self, value: Value, now: float) -> None:
        """End the running call, which returned `value`."""
        self.call = None
        self._interpreter.resume(value)
        self._go_on(now)

    def drain(self) -> list[ExecutionEvent]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def _go_on(self, now: float) -> None:
        while self.call is None and self.end is None:
            action = self._interpreter.next()
            self._reached(action, now)
            self._note_segments(now)
            if isinstance(action, NeedMore):
                return
            if isinstance(action, Ended):
                self.end = action
                return
            value = self._begin(action, now)
            if value is None:
                self.call = action
            else:
                self._interpreter.resume(value)

    def _note_segments(self, now: float) -> None:
        for event in self._interpreter.events():
            index = event.index
            if event.kind == "started":
                self._began_s[index] = now
                self._events.append(ExecutionEvent("started", index, now))
            else:
                took_s = self.duration_s(index, now)
                self._events.append(
                    ExecutionEvent("finished", index, now, took_s, event.skipped, value=event.value)
                )
