"""Simulated robots and people of a history."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np

from timely_llm.core.request import (
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
FAILURE_SHARE = 0.05
"""Share of segments that a robot fails to execute."""

Ask = Callable[[Request], None]
Say = Callable[[ExecutionReport], None]


class Client:
    """What robots and people share: requests, signs of life, and their own death.

    Attributes:
        request: the open request; None: there is none.
    """

    def __init__(
        self, agent: str, schedule: Schedule, source: random.Random, ask: Ask, say: Say,
        until_s: float,
    ) -> None:  # fmt: skip
        self.agent = agent
        self._schedule = schedule
        self._source = source
        self._ask = ask
        self._say = say
        self._until_s = until_s
        self._count = 0
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
                self._say(ExecutionReport("", self.agent, ReportState.ALIVE))
            self._schedule.at(self._schedule.now + ALIVE_S, self._live)

    def _sends(self, request: Request) -> None:
        self.request = request
        self._ask(request)


class HistoryRobot(Client):
    """A robot that asks for plans and follows them, as the robots of a fleet do."""

    def __init__(
        self, agent: str, schedule: Schedule, source: random.Random, ask: Ask, say: Say,
        until_s: float, skill_set: SkillSet, tasks: TaskSet, checks: Checks,
    ) -> None:  # fmt: skip
        super().__init__(agent, schedule, source, ask, say, until_s)
        self._skill_set = skill_set
        self._tasks = tasks
        self._checks = checks
        self._rng = np.random.default_rng(source.randrange(2**32))
        self._follower: PlanFollower[PlanExecution] | None = None
        self._pause()

    def restart(self) -> None:
        """Forget the plan, and ask for another one soon."""
        self._follower = self.request = None
        self._pause()

    def take(self, segment: Segment) -> None:
        """Take a segment."""
        if self._follows(segment.request_id) and self._follower is not None:
            self._follower.offer(segment, self._schedule.now)
            self._after()

    def finish(self, result: Result) -> None:
        """Take a result."""
        if self._follows(result.request_id) and self._follower is not None:
            assert isinstance(result, PlanResult)
            self._follower.finish(result, self._schedule.now)
            self._after()

    def _follows(self, request_id: str) -> bool:
        return self.alive and self.request is not None and self.request.request_id == request_id

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
        task = self._tasks.draw(self._source.random() < 0.3, self._rng)

        def new_run() -> PlanExecution:
            return PlanExecution(self._skill_set, task.world, self._rng, self._schedule.now)

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
                self._say(report)
        if follower.ending:
            self.restart()
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
        self, person: Person, schedule: Schedule, source: random.Random, ask: Ask, say: Say,
        until_s: float,
    ) -> None:  # fmt: skip
        super().__init__(person.agent, schedule, source, ask, say, until_s)
        self._person = person
        self._pause()

    def take(self, chunk: StreamChunk) -> None:
        """Take a piece of an answer."""
        if self.request is not None and chunk.request_id == self.request.request_id:
            self._person.receive(chunk.text, self._schedule.now)

    def finish(self, result: Result) -> None:
        """Take a result."""
        if self.request is None or result.request_id != self.request.request_id:
            return
        assert isinstance(result, StreamResult)
        self.request = None
        self._person.take(result, self._schedule.now)
        self._pause()

    def _pause(self) -> None:
        self._schedule.at(self._person.next_s, self._ask_question)

    def _ask_question(self) -> None:
        if not self.alive or self._schedule.now > self._until_s:
            return
        question = self._person.ask()
        self._sends(
            StreamRequest(
                self.next_id(), self.agent, question.messages, conversation=question.conversation,
                turn=question.turn, words_per_s=self._person.manner.words_per_s, max_tokens=64,
            )
        )  # fmt: skip
