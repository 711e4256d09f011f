"""One request of a trace being replayed: a simulated robot or person takes the result."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np

from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.segment import Segment, SkillCall, Value
from timely_llm.core.slo import Listener
from timely_llm.experiments.virtual.outcome import ConversationOutcome, ExecutedSegment, JobOutcome
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.robots.execution import PlanExecution
from timely_llm.robots.plan_follower import PlanFollower
from timely_llm.robots.world import World
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.lines import request_line
from timely_llm.traces.model import Conversation, Job

LAST_S = 1.0
"""Longest wait for segments or tokens after the result, seconds."""
AnyRequest = TypeVar("AnyRequest", bound=Request)
AnyResult = TypeVar("AnyResult", bound=Result)


class ReplayedRequest(ABC, Generic[AnyRequest, AnyResult]):
    """A request being replayed; times on the monotonic clock.

    Args:
        of_trace: its entry in the trace; due at `arrival_s` after the replay's start.
        request: the request.

    Attributes:
        request: as above.
        due_s: when it is to be sent, seconds after the replay's start.
        asked_s: when it was sent; infinite: not yet.
        result: how the server ended it; None: it has not.
        lost: the server has forgotten it without a result.
    """

    def __init__(self, of_trace: Job | Conversation, request: AnyRequest) -> None:
        self._of_trace = of_trace
        self.request = request
        self.due_s = of_trace.arrival_s
        self.asked_s = math.inf
        self.result: AnyResult | None = None
        self.lost = False

    @property
    def agent(self) -> str:
        """The robot or person of the request."""
        return self.request.agent

    @property
    def line(self) -> str:
        """Its line in a trace."""
        return request_line(self._of_trace)

    @property
    @abstractmethod
    def wake_s(self) -> float:
        """When `tick` has work; infinite: only a message brings some."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the request and its execution have ended."""

    @abstractmethod
    def finish(self, result: AnyResult) -> None:
        """Take the result; only the first one counts."""

    def lose(self, reason: str) -> None:
        """Record that the server has forgotten the request."""
        self.lost = True

    @abstractmethod
    def tick(self, now: float) -> None:
        """Do all due work."""

    def ask(self) -> None:
        """Record that the request is sent now."""
        self.asked_s = time.monotonic()


class PermissiveWorld(World):
    """A world with every object that a plan names: a trace does not list objects."""

    def sees(self, name: str) -> bool:
        """Return that the object is in view."""
        return True


class MeasuredRun(PlanExecution):
    """Executes a plan in the durations that a trace has measured, as far as it has any.

    Segments take them in order; the last of several segments takes none, as in experiments
    (`experiments/virtual/workload.py`). The first call of a segment takes all of its duration.

    Args:
        skill_set: the robot's skills, and their durations where the trace has none.
        number: seed of these durations.
        asked_s: when the plan was asked for.
        measured_s: duration of each segment, seconds.
    """

    def __init__(
        self, skill_set: SkillSet, number: int, asked_s: float, measured_s: Sequence[float]
    ) -> None:
        super().__init__(skill_set, PermissiveWorld(), np.random.default_rng(number), asked_s)
        self._measured_s = measured_s
        self._last = 0
        self._timed: set[int] = set()

    def receive(self, index: int, text: str, final: bool, now: float) -> None:
        """Take a segment; one that came before changes nothing."""
        if final:
            self._last = index
        super().receive(index, text, final, now)

    def _make(self, call: SkillCall) -> tuple[float, Value]:
        seconds, value = super()._make(call)
        index = max(self._began_s)
        if index >= len(self._measured_s) or 0 < index == self._last:
            return seconds, value
        first = index not in self._timed
        self._timed.add(index)
        return (self._measured_s[index] if first else 0.0), value


class ReplayedJob(ReplayedRequest[PlanRequest, PlanResult]):
    """A job with a simulated robot that executes its plan; times on the monotonic clock.

    Args:
        number: its place in the replay.
        work: the job, due at `work.arrival_s` after the replay's start.
        request: its request.
        skill_set: the robot's skills.
        report: sends a report to the server.
        replaces: returns whether the server replaces plans that did not fail.
    """

    def __init__(
        self,
        number: int,
        work: JobInstance,
        request: PlanRequest,
        skill_set: SkillSet,
        report: Callable[[ExecutionReport], None],
        replaces: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(work.job, request)
        self.work = work
        self._number = number
        self._skill_set = skill_set
        self._report = report
        self._received_s: dict[tuple[int, int], float] = {}
        self._executed: dict[tuple[int, int], ExecutedSegment] = {}
        self._plan = PlanFollower(self._new_run, overtaken_s=LAST_S, replaces=replaces)

    @property
    def wake_s(self) -> float:
        """When the running skill or the wait for segments ends; infinite: neither does."""
        return self._plan.wake_s

    @property
    def finished(self) -> bool:
        """Whether it ended without an error, and its plan was executed to the end."""
        return self._plan.ending == "finished"

    @property
    def done(self) -> bool:
        """Whether the request and its execution have ended."""
        return self.lost or bool(self._plan.ending)

    def outcome(self, start_s: float, end_s: float) -> JobOutcome:
        """Return the robot's outcome, in seconds after `start_s`.

        Args:
            start_s: start of the replay.
            end_s: end of the replay; a segment that is still being executed counts up to there.
        """
        executed = tuple(
            ExecutedSegment(
                *(min(at_s, end_s) - start_s for at_s in (one.received_s, one.start_s, one.end_s))
            )
            for one in self._executed.values()
        )
        arrival_s = self.asked_s - start_s
        return JobOutcome(replace(self.work, arrival_s=arrival_s), self.finished, executed)

    def offer(self, segment: Segment) -> None:
        """Take a segment, wherever it comes from; a known one changes nothing."""
        now = time.monotonic()
        if not self.lost and self._plan.offer(segment, now):
            self._received_s.setdefault((segment.epoch, segment.index), now)
            self._report_events()

    def finish(self, result: PlanResult) -> None:
        """Take the result; only the first one counts."""
        if self.result is None:
            self.result = result
            self._plan.finish(result, time.monotonic())
            self._report_events()

    def tick(self, now: float) -> None:
        """Go on after a skill that has ended, or without segments that did not come."""
        self._plan.wake(now)
        self._report_events()

    def _new_run(self) -> MeasuredRun:
        measured_s = [skill.seconds for skill in self.work.job.skill_times]
        return MeasuredRun(self._skill_set, self._number, time.monotonic(), measured_s)

    def _report_events(self) -> None:
        """Store and report the events of the plan."""
        epoch = self._plan.epoch
        for event in self._plan.drain():
            place = epoch, event.index
            if event.kind == "started":
                received_s = self._received_s.get(place, event.at_s)
                self._executed[place] = ExecutedSegment(received_s, event.at_s, math.inf)
            elif event.kind == "finished":
                self._executed[place] = replace(self._executed[place], end_s=event.at_s)
            report = event.report(self.request.request_id, self.agent, epoch)
            if report is not None:
                self._report(report)


class ReplayedTalk(ReplayedRequest[StreamRequest, StreamResult]):
    """A conversation with a simulated listener; times on the monotonic clock.

    Args:
        conversation: due at `arrival_s` after the replay's start.
        request: its request.
    """

    def __init__(self, conversation: Conversation, request: StreamRequest) -> None:
        super().__init__(conversation, request)
        self._conversation = conversation
        self._listener = Listener(request.words_per_s)
        self._times_s: list[float] = []
        self._next = 0
        self._end_s = math.inf

    @property
    def finished(self) -> bool:
        """Whether it ended without an error."""
        return self.result is not None and self.result.error_code is ErrorCode.NONE

    @property
    def wake_s(self) -> float:
        """When the wait for tokens ends; infinite before the result."""
        return self._end_s

    @property
    def done(self) -> bool:
        """Whether the request has ended and its tokens have come."""
        if self.lost or self.result is None:
            return self.lost
        whole = len(self._times_s) >= self.result.generated_tokens
        return whole or not self.finished or time.monotonic() >= self._end_s

    def outcome(self, start_s: float) -> ConversationOutcome:
        """Return the listener's outcome, in seconds after `start_s`, the replay's start."""
        asked = replace(self._conversation, arrival_s=self.asked_s - start_s)
        times_s = tuple(time_s - start_s for time_s in self._times_s)
        return ConversationOutcome(
            asked, self.finished and bool(times_s), times_s, self._listener.stalled_s
        )

    def offer(self, chunk: StreamChunk) -> None:
        """Take a token; a known one changes nothing."""
        if chunk.index >= self._next:
            now = time.monotonic()
            self._next = chunk.index + 1
            self._times_s.append(now)
            self._listener.receive(chunk.text, now)

    def finish(self, result: StreamResult) -> None:
        """Take the result; only the first one counts."""
        if self.result is None:
            self.result = result
            self._end_s = time.monotonic() + LAST_S

    def tick(self, now: float) -> None:
        """Do nothing: `done` depends on the time alone."""
