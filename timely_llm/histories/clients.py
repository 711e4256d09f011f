"""Simulated robots and people of a history."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    ReportState,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.histories.checks import Checks
from timely_llm.histories.schedule import Schedule
from timely_llm.robots.epoch_run import ExecutionEvent
from timely_llm.robots.execution import PlanExecution
from timely_llm.robots.people import Person
from timely_llm.robots.plan_follower import PlanFollower
from timely_llm.robots.tasks import TaskSet
from timely_llm.skills.skill_set import SkillSet

ALIVE_S = 1.0
"""Seconds between two signs of life."""
PAUSE_S = 2.0
"""Mean seconds between two requests of a client."""
SHORT_TOKENS, LONG_TOKENS = 64, 700
"""Tokens of answers."""
LONG_SHARE = 0.15
"""Share of answers that are long."""
FAILURE_SHARE = 0.05
"""Share of segments that a robot fails to execute."""

AGAIN_S = 0.5
"""Seconds from the answer that a new dispatcher does not know a request to the next question."""
PATIENCE_S = 2.0
"""Longest time that a question is on its way, seconds."""


@dataclass(frozen=True)
class RequestFate:
    """What a dispatcher says of a request.

    Attributes:
        served: it is being served.
        segments: of its newest epoch, if it is one for a plan.
        result: how it ended; None: it is served, or not known.
        lives: of servers that had reported their requests when this was reported.
    """

    served: bool
    segments: Sequence[Segment] = ()
    result: Result | None = None
    lives: Collection[str] = ()


class Service(Protocol):
    """The way of clients to the dispatcher."""

    @property
    def ready(self) -> bool:
        """Whether clients find a dispatcher."""
        ...

    def ask(self, request: Request) -> None:
        """Send a request."""
        ...

    def say(self, report: ExecutionReport) -> None:
        """Send a report."""
        ...

    def cancel(self, request: Request) -> None:
        """Ask to end a request."""
        ...

    def find(self, request: Request, answered: Callable[[RequestFate], None]) -> None:
        """Ask what became of a request; there may be no answer."""
        ...

    def lose(self, request: Request, unknown: bool) -> None:
        """Record that a client gives a request up.

        Args:
            request: the request.
            unknown: the dispatcher does not know it; else it was away for too long.
        """
        ...


class Client(ABC):
    """What robots and people share: requests, signs of life, and their own death.

    A client asks a new dispatcher for its request, as the clients of ROS do.

    Attributes:
        request: the open request; None: there is none.
        AWAY_S: longest time without a dispatcher after which the request goes on, seconds.
        TAKEN_S: time in which a new dispatcher knows the request, seconds.
    """

    AWAY_S: ClassVar[float]
    TAKEN_S: ClassVar[float]

    def __init__(
        self, agent: str, schedule: Schedule, source: random.Random, service: Service,
        until_s: float,
    ) -> None:  # fmt: skip
        self.agent = agent
        self._schedule = schedule
        self._source = source
        self._service = service
        self._until_s = until_s
        self._count = 0
        self._dispatchers = 0
        self._canceling = False  # the open request
        self.request: Request | None = None
        self.alive = True
        self._live()

    def next_id(self) -> str:
        """Return a new request's id."""
        self._count += 1
        return f"{self.agent}-{self._count}"

    def _live(self) -> None:
        if self.alive:
            if self.request is not None:
                self._service.say(ExecutionReport("", self.agent, ReportState.ALIVE))
            self._schedule.at(self._schedule.now + ALIVE_S, self._live)

    def _sends(self, request: Request) -> None:
        self.request, self._canceling = request, False
        self._service.ask(request)

    def waits_for(self, request_id: str) -> bool:
        """Return whether a request is the open one of a client that lives."""
        return self.alive and self.request is not None and self.request.request_id == request_id

    def cancel(self) -> None:
        """Cancel the open request; a dispatcher that takes it up gets the cancel again."""
        if self.request is not None:
            self._canceling = True
            self._service.cancel(self.request)

    # A new dispatcher.

    def reconnect(self, away_s: float) -> None:
        """Go on with a new dispatcher.

        Args:
            away_s: seconds without one.
        """
        self._dispatchers += 1
        request = self.request
        if request is None or not self.alive:
            return
        if away_s > self.AWAY_S:
            self._lose(request, unknown=False)
        else:
            self._find(request, self._dispatchers, self._schedule.now)

    def _find(self, request: Request, dispatcher: int, since_s: float) -> None:
        """Ask a dispatcher for a request until it knows it, or should."""
        answered = False

        def again() -> None:
            if dispatcher == self._dispatchers and self.waits_for(request.request_id):
                self._find(request, dispatcher, since_s)

        def take(answer: RequestFate) -> None:
            nonlocal answered
            known = dispatcher == self._dispatchers and self.waits_for(request.request_id)
            if answered or not known:
                return
            answered = True
            if answer.served:
                if self._canceling:
                    self._service.cancel(request)
                self.take_up(answer.segments)
            elif answer.result is not None:
                self.finish(answer.result)
            elif self._schedule.now > since_s + self.TAKEN_S:
                self._lose(request, unknown=True)
            else:
                self._schedule.at(self._schedule.now + AGAIN_S, again)

        self._service.find(request, take)
        later_s = self._schedule.now + PATIENCE_S
        self._schedule.at(later_s, lambda: None if answered else again())

    def _lose(self, request: Request, unknown: bool) -> None:
        self._service.lose(request, unknown)
        self.forget()

    @abstractmethod
    def take_up(self, segments: Sequence[Segment]) -> None:
        """Go on with the request at a new dispatcher, which has delivered these segments."""

    @abstractmethod
    def finish(self, result: Result) -> None:
        """Take a result."""

    @abstractmethod
    def forget(self) -> None:
        """Forget the request, and ask for another one soon."""


class HistoryRobot(Client):
    """A robot that asks for plans and follows them, as the robots of a fleet do."""

    AWAY_S, TAKEN_S = 30.0, 8.0

    def __init__(
        self, agent: str, schedule: Schedule, source: random.Random, service: Service,
        until_s: float, skill_set: SkillSet, tasks: TaskSet, checks: Checks,
    ) -> None:  # fmt: skip
        super().__init__(agent, schedule, source, service, until_s)
        self._skill_set = skill_set
        self._tasks = tasks
        self._checks = checks
        self._rng = np.random.default_rng(source.randrange(2**32))
        self._follower: PlanFollower[PlanExecution] | None = None
        self._reported: list[ExecutionReport] = []  # of the newest epoch
        self._pause()

    def forget(self) -> None:
        """Forget the plan, and ask for another one soon."""
        self._follower = self.request = None
        self._pause()

    def take(self, segment: Segment) -> None:
        """Execute a segment of the plan that it follows; ignore any other."""
        if self.waits_for(segment.request_id) and self._follower is not None:
            self._follower.offer(segment, self._schedule.now)
            self._after()

    def take_up(self, segments: Sequence[Segment]) -> None:
        """Take the segments of the newest epoch; the new dispatcher gets the reports again."""
        reported = list(self._reported)
        for segment in segments:
            self.take(segment)
        for report in reported:
            self._service.say(report)

    def finish(self, result: Result) -> None:
        """Take the result of the plan."""
        if self.waits_for(result.request_id) and self._follower is not None:
            assert isinstance(result, PlanResult)
            self._follower.finish(result, self._schedule.now)
            self._after()

    def _pause(self) -> None:
        count, pause_s = self._count, self._source.expovariate(1.0 / PAUSE_S)

        def ask() -> None:
            if self.alive and count == self._count and self.request is None:
                self._ask_for_plan()

        self._schedule.at(self._schedule.now + pause_s, ask)

    def _ask_for_plan(self) -> None:
        now = self._schedule.now
        if now > self._until_s:
            return
        if not self._service.ready:
            self._pause()
            return
        task = self._tasks.draw(self._source.random() < 0.3, self._rng)

        def new_run() -> PlanExecution:
            return PlanExecution(self._skill_set, task.world, self._rng, self._schedule.now)

        self._reported = []
        # A dispatcher moves plans.
        self._follower = PlanFollower(new_run, self._failure, replaces=lambda: True)
        self._sends(
            PlanRequest(
                self.next_id(), self.agent, self._skill_set.name, task.text, task.time_utility,
                closed_loop=self._source.random() < 0.7,
            )
        )  # fmt: skip

    def _failure(self, event: ExecutionEvent) -> str:
        failed = not event.skipped and self._source.random() < FAILURE_SHARE
        return "something is in the way" if failed else ""

    def _after(self) -> None:
        """Report what was executed, and go on when the running call ends."""
        follower, request = self._follower, self.request
        if follower is None or request is None:
            return
        for event in follower.drain():
            key, epoch = request.request_id, follower.epoch
            if event.kind == "started":
                self._checks.executed(key, epoch, event.index)
            elif event.kind == "failed":
                self._checks.failed(key, epoch)
            report = event.report(key, self.agent, epoch)
            if report is not None:
                self._report(report)
        if follower.ending:
            self.forget()
            return
        if follower.wake_s < math.inf:
            self._schedule.at(follower.wake_s, lambda: self._wake(follower))

    def _report(self, report: ExecutionReport) -> None:
        if self._reported and self._reported[-1].epoch != report.epoch:
            self._reported.clear()
        self._reported.append(report)
        self._service.say(report)

    def _wake(self, follower: PlanFollower[PlanExecution]) -> None:
        if self.alive and follower is self._follower and follower.wake_s <= self._schedule.now:
            follower.wake(self._schedule.now)
            self._after()


class HistoryPerson(Client):
    """A person who talks."""

    AWAY_S, TAKEN_S = 2.0, 0.4  # a second answer comes after AGAIN_S

    def __init__(
        self, person: Person, schedule: Schedule, source: random.Random, service: Service,
        until_s: float,
    ) -> None:  # fmt: skip
        super().__init__(person.agent, schedule, source, service, until_s)
        self._person = person
        self._pause()

    def take(self, chunk: StreamChunk) -> None:
        """Take a piece of an answer."""
        if self.waits_for(chunk.request_id):
            self._person.receive(chunk.text, self._schedule.now)

    def take_up(self, segments: Sequence[Segment]) -> None:
        """Go on: the tokens that follow come, and all of them in the result."""

    def finish(self, result: Result) -> None:
        """Take the result of the answer."""
        if not self.waits_for(result.request_id):
            return
        assert isinstance(result, StreamResult)
        self.request = None
        self._person.take(result, self._schedule.now)
        self._pause()

    def forget(self) -> None:
        """Give the answer up, and ask another question soon."""
        request = self.request
        if isinstance(request, StreamRequest):
            reason = "the dispatcher is gone"
            self.finish(request.refused(ErrorCode.SHUTTING_DOWN, reason))

    def _pause(self) -> None:
        self._schedule.at(self._person.next_s, self._ask_question)

    def _ask_question(self) -> None:
        now = self._schedule.now
        if not self.alive or now > self._until_s:
            return
        if not self._service.ready:
            self._schedule.at(now + AGAIN_S, self._ask_question)
            return
        question = self._person.ask()
        self._sends(
            StreamRequest(
                self.next_id(), self.agent, question.messages, conversation=question.conversation,
                turn=question.turn, words_per_s=self._person.manner.words_per_s,
                max_tokens=LONG_TOKENS if self._source.random() < LONG_SHARE else SHORT_TOKENS,
            )
        )  # fmt: skip
