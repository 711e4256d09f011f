"""Simulated robots and people of a history."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from timely_llm.core.errors import ConfigurationError
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
from timely_llm.robots.client.taking_up import (
    AnswerTakingUp,
    AskedServer,
    PlanTakingUp,
    RequestFate,
    TakingUp,
)
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

TICK_S = 0.1
"""Period in which a client without a server looks for one, seconds."""
ASK_AGAIN_S = 0.5
"""Time after which a person without a server tries to ask again, seconds."""


class Service(Protocol):
    """The way of clients to what serves them: a dispatcher, or a server alone."""

    @property
    def ready(self) -> bool:
        """Whether it is there for clients that have found it."""
        ...

    @property
    def problem(self) -> str:
        """Why clients cannot use it; empty: they can."""
        ...

    @property
    def replaces_plans(self) -> bool:
        """Whether it replaces plans that did not fail."""
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

    def ask_segments(
        self, request: Request, answered: Callable[[Sequence[Segment] | None], None]
    ) -> None:
        """Ask for the segments of a plan; None: it is not served. There may be no answer."""
        ...

    def ask_result(self, request: Request, answered: Callable[[RequestFate], None]) -> None:
        """Ask what became of a request; there may be no answer."""
        ...

    def lose(self, request: Request, unknown: bool) -> None:
        """Record that a client gives a request up.

        Args:
            request: the request.
            unknown: what is there does not know it; else nothing that it can use is there.
        """
        ...


class Client(ABC):
    """What robots and people share: requests, signs of life, and their own death.

    A client without a server keeps its request and asks the next one, as the clients of ROS do: by
    the same `TakingUp`.

    Attributes:
        request: the open request; None: there is none.
        alive: it lives.
        apart_s: end of a partition that it notices, seconds.
        RECOVERY_S: longest time without a server after which the request is lost, seconds.
    """

    RECOVERY_S: ClassVar[float] = 30.0

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
        self._open: _OpenRequest | None = None
        self._finds = True
        self._unknown = False  # the present server does not know the open request
        self._ticks = False
        self.alive = True
        self.apart_s = 0.0
        self._taking_up = self._make_taking_up(_ClientServer(self, service))
        self._live()

    @abstractmethod
    def _make_taking_up(self, server: AskedServer) -> TakingUp[Any]:
        """Return what keeps open requests."""

    @property
    def request(self) -> Request | None:
        """The open request; None: there is none."""
        return None if self._open is None else self._open.request

    @property
    def ready(self) -> bool:
        """Whether the client has found what serves it."""
        return self._finds and self._service.ready and not self._service.problem

    def next_id(self) -> str:
        """Return a new request's id."""
        self._count += 1
        return f"{self.agent}-{self._count}"

    def _live(self) -> None:
        if self.alive:
            if (request := self.request) is not None:
                said = ReportState.ALIVE
                alive = ExecutionReport("", self.agent, said, value=request.request_id)
                self._service.say(alive)
            self._schedule.at(self._schedule.now + ALIVE_S, self._live)

    def _sends(self, request: Request) -> None:
        self._open = _OpenRequest(self, request)
        self._taking_up.tick([request.request_id])
        self._service.ask(request)

    def waits_for(self, request_id: str) -> bool:
        """Return whether a request is the open one of a client that lives."""
        return self.alive and self.request is not None and self.request.request_id == request_id

    def cancel(self) -> None:
        """Cancel the open request; a server that takes it up gets the cancel again."""
        if self._open is not None:
            self._open.canceling = True
            self._service.cancel(self._open.request)

    # The loss of its server.

    def server_lost(self) -> None:
        """Keep the open request: its server has been silent for too long."""
        self._finds = False
        self._keep("it is silent")

    def server_found(self) -> None:
        """Go on with a new server, or one that can be reached again."""
        if self._schedule.now < self.apart_s:
            self._schedule.at(self.apart_s, self.server_found)
        elif self._service.ready:
            self._finds = True
            self._keep("it was started anew and does not answer")

    def _keep(self, reason: str) -> None:
        if self.alive and self._open is not None:
            self._unknown = False
            self._taking_up.keep([self._open], reason)
            self._tick()

    def _tick(self) -> None:
        if not self._ticks and self.alive:
            self._taking_up.tick([] if self.request is None else [self.request.request_id])
            if self._taking_up.waits:
                self._ticks = True
                self._schedule.at(self._schedule.now + TICK_S, self._tick_again)

    def _tick_again(self) -> None:
        self._ticks = False
        self._tick()

    def find(self) -> bool:
        """Return whether there is a server to ask.

        Raises:
            ConfigurationError: the client cannot use it.
        """
        found = self._finds and self._service.ready
        if found and self._service.problem:
            raise ConfigurationError(self._service.problem)
        return found

    def hear_fate(self, request_id: str, fate: RequestFate) -> None:
        """Take what a server says of a request."""
        if self.waits_for(request_id):
            self._unknown = not fate.served and fate.result is None

    def lose(self, request: Request) -> None:
        """Give the open request up: no server goes on with it."""
        if self.waits_for(request.request_id):
            self._service.lose(request, self._unknown or self.ready)
            self.forget()

    @abstractmethod
    def take_up(self, segments: Sequence[Segment]) -> None:
        """Go on with a plan at a new server, which has published these segments."""

    @abstractmethod
    def finish(self, result: Result) -> None:
        """Take a result."""

    @abstractmethod
    def forget(self) -> None:
        """Forget the request, and ask for another one soon."""


class _OpenRequest:
    """The open request of a client, as `TakingUp` sees it."""

    def __init__(self, client: Client, request: Request) -> None:
        self._client = client
        self.request = request
        self.canceling = False

    @property
    def request_id(self) -> str:
        """Its id."""
        return self.request.request_id

    @property
    def agent(self) -> str:
        """Its client."""
        return self.request.agent

    @property
    def done(self) -> bool:
        """Whether its client waits for it no more."""
        return not self._client.waits_for(self.request_id)

    def finish(self, result: Result) -> None:
        """Pass the result on."""
        self._client.finish(result)

    def lose(self, reason: str) -> None:
        """Let the client give it up."""
        self._client.lose(self.request)

    def adopt(self, made: Any, tokens: int = 0) -> None:
        """Pass the segments of a plan on; of an answer, the result has all tokens."""
        if not isinstance(made, str):
            self._client.take_up(made)


class _ClientServer:
    """The way of `TakingUp` to what serves a client."""

    name, resumes = "of a history", True

    def __init__(self, client: Client, service: Service) -> None:
        self._client = client
        self._service = service

    def find(self) -> bool:
        """Return whether there is a server to ask."""
        return self._client.find()

    def stop_asking(self, request_id: str) -> None:
        """Do nothing: no result is lost without a partition."""

    def ask_segments(
        self, request_id: str, agent: str, answered: Callable[[Sequence[Segment] | None], None]
    ) -> None:
        """Ask for the segments of a plan."""
        request = self._client.request
        if request is not None and self._client.waits_for(request_id):
            self._service.ask_segments(request, answered)

    def ask_result(self, request_id: str, answered: Callable[[RequestFate], None]) -> None:
        """Ask what became of a request."""

        def take(fate: RequestFate) -> None:
            self._client.hear_fate(request_id, fate)
            answered(fate)

        request = self._client.request
        if request is not None and self._client.waits_for(request_id):
            self._service.ask_result(request, take)

    def take_up(self, request_id: str) -> None:
        """Do nothing: the result comes by itself."""

    def cancel(self, request_id: str) -> None:
        """Cancel the request again."""
        if (request := self._client.request) is not None:
            self._service.cancel(request)

    def report(self, report: ExecutionReport) -> None:
        """Send a report."""
        self._service.say(report)


class HistoryRobot(Client):
    """A robot that asks for plans and follows them, as the robots of a fleet do."""

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
        self._pause()

    def _make_taking_up(self, server: AskedServer) -> TakingUp[Any]:
        return PlanTakingUp(server, PlanResult, self.RECOVERY_S, lambda: self._schedule.now)

    def forget(self) -> None:
        """Forget the plan, and ask for another one soon."""
        self._follower = self._open = None
        self._pause()

    def take(self, segment: Segment) -> None:
        """Execute a segment of the plan that it follows; ignore any other."""
        if self.waits_for(segment.request_id) and self._follower is not None:
            self._follower.offer(segment, self._schedule.now)
            self._after()

    def take_up(self, segments: Sequence[Segment]) -> None:
        """Take the segments of the newest epoch."""
        for segment in segments:
            self.take(segment)

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
        if not self.ready:
            self._pause()
            return
        task = self._tasks.draw(self._source.random() < 0.3, self._rng)

        def new_run() -> PlanExecution:
            return PlanExecution(self._skill_set, task.world, self._rng, self._schedule.now)

        self._follower = PlanFollower(
            new_run, self._failure, replaces=lambda: self._service.replaces_plans
        )
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
                self._taking_up.report(report)
        if follower.ending:
            self.forget()
            return
        if follower.wake_s < math.inf:
            self._schedule.at(follower.wake_s, lambda: self._wake(follower))

    def _wake(self, follower: PlanFollower[PlanExecution]) -> None:
        if self.alive and follower is self._follower and follower.wake_s <= self._schedule.now:
            follower.wake(self._schedule.now)
            self._after()


class HistoryPerson(Client):
    """A person who talks."""

    def __init__(
        self, person: Person, schedule: Schedule, source: random.Random, service: Service,
        until_s: float,
    ) -> None:  # fmt: skip
        super().__init__(person.agent, schedule, source, service, until_s)
        self._person = person
        self._pause()

    def _make_taking_up(self, server: AskedServer) -> TakingUp[Any]:
        return AnswerTakingUp(server, StreamResult, self.RECOVERY_S, lambda: self._schedule.now)

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
        self._open = None
        self._person.take(result, self._schedule.now)
        self._pause()

    def forget(self) -> None:
        """Give the answer up, and ask another question soon."""
        request = self.request
        if isinstance(request, StreamRequest):
            reason = "its server is gone"
            self.finish(request.refused(ErrorCode.SHUTTING_DOWN, reason))

    def _pause(self) -> None:
        self._schedule.at(self._person.next_s, self._ask_question)

    def _ask_question(self) -> None:
        now = self._schedule.now
        if not self.alive or now > self._until_s:
            return
        if not self.ready:
            self._schedule.at(now + ASK_AGAIN_S, self._ask_question)
            return
        question = self._person.ask()
        self._sends(
            StreamRequest(
                self.next_id(), self.agent, question.messages, conversation=question.conversation,
                turn=question.turn, words_per_s=self._person.manner.words_per_s,
                max_tokens=LONG_TOKENS if self._source.random() < LONG_SHARE else SHORT_TOKENS,
            )
        )  # fmt: skip
