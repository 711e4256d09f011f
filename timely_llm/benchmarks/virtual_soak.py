"""Hours of robots and people in virtual time: nothing may grow, and nothing may get lost."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import psutil

from timely_llm.benchmarks.soak import WARM_SHARE, Sample, Soak, growth, sample
from timely_llm.core.clock import VirtualClock
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    ReportState,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.engines.example_script import ExampleScript
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import DEFAULT_PROFILE, PROFILES, SimulatedEngine
from timely_llm.policies.registry import make_policy
from timely_llm.resources import resource
from timely_llm.robots.plan_epochs import PlanEpochs
from timely_llm.robots.questions import load_question_set
from timely_llm.robots.tasks import load_task_set
from timely_llm.serving.conversations import RetentionLimits
from timely_llm.serving.loop import Loop
from timely_llm.serving.publisher import EventPublisher
from timely_llm.skills.skill_set import load_skill_set

KV_TOKENS = 1_000
"""KV tokens of the engine; small, to force evictions."""
PEOPLE_SHARE = 0.25
"""People for each robot."""
CONVERSATIONS, FORGOTTEN_S = 8, 300.0
"""Most conversations that are kept, and for how long, seconds."""
PAUSE_S = 20.0
"""Mean seconds from the end of a request to the same agent's next one."""
ALIVE_S = 5.0
"""Seconds between two signs of life of a robot with an open request."""
SPREAD = 0.2
"""Standard deviation of the logarithm of true over predicted seconds of a segment."""
CANCELED_SHARE, SILENT_SHARE, URGENT_SHARE, GOES_ON_SHARE = 0.03, 0.01, 0.2, 0.7
"""Shares of requests that are canceled, of robots that fall silent, of urgent tasks, and of answers
that the same conversation goes on after."""
ANSWER_TOKENS = 96
SAMPLES = 480
"""Looks at the process in a run."""
LEAST_S = 0.001
"""Time that a turn takes in which nothing happens, seconds."""
END_S = 600.0
"""Time after the last request in which all must end, seconds."""


def rows(soak: Soak, progress: Callable[[float, float], None]) -> list[dict[str, Any]]:
    """Run a serving loop with robots and people, and return one row about it.

    Args:
        soak: what is run; its minutes are virtual.
        progress: called with the virtual seconds that have passed and all of them.
    """
    site = _VirtualSite(soak)
    process, samples = psutil.Process(), list[Sample]()
    for number in range(SAMPLES):
        site.run(soak.duration_s * (number + 1) / SAMPLES)
        samples.append(sample(process, site.clock.now()))
        progress(min(site.clock.now(), soak.duration_s), soak.duration_s)
    row = {"robots": soak.robots, "minutes": soak.minutes, "policy": soak.policy}
    row |= site.end()
    warm = [one for one in samples if one.at_s >= WARM_SHARE * soak.duration_s]
    return [row | growth(warm) | {"server_mb_max": max(one.megabytes for one in samples)}]


@dataclass
class _Agent:
    """A robot or a person with at most one open request.

    Attributes:
        request_id: of the open request; empty: there is none.
        epochs: which epochs of the open plan the robot executes.
        index: of the segment that the robot takes next.
        free_s: when the robot has executed what it has.
        silent: the robot reports nothing more of its open request.
        conversation, turns: the person's open conversation, and its turns so far.
        asked, served: requests, and those that ended well.
    """

    name: str
    person: bool
    request_id: str = ""
    epochs: PlanEpochs = field(default_factory=PlanEpochs)
    index: int = 0
    free_s: float = 0.0
    silent: bool = False
    conversation: str = ""
    turns: int = 0
    asked: int = 0
    served: int = 0


@dataclass
class _Counts:
    """What happened in the run."""

    ends: Counter[ErrorCode] = field(default_factory=Counter)
    segments: int = 0
    segments_lost: int = 0
    chunks: int = 0
    ends_twice: int = 0


class _VirtualSite:
    """A serving loop in virtual time, its robots and its people; the sink of the loop.

    Attributes:
        clock: theirs.
    """

    def __init__(self, soak: Soak) -> None:
        self.clock = VirtualClock()
        self._soak = soak
        self._rng = np.random.default_rng(soak.seed)
        skill_set = load_skill_set(resource("config/skill_sets/drone.yaml"))
        self._tasks = load_task_set(resource("config/tasks/drone.yaml"))
        self._questions = load_question_set(resource("config/questions/small_talk.yaml"))
        engine = SimulatedEngine(
            PROFILES[DEFAULT_PROFILE], ExampleScript(lambda: [skill_set]), self.clock,
            EngineLimits(kv_tokens=KV_TOKENS),
        )  # fmt: skip
        self._loop = Loop(
            engine, make_policy(soak.policy), self.clock,
            retention=RetentionLimits(CONVERSATIONS, FORGOTTEN_S),
        )  # fmt: skip
        self._loop.register(skill_set)
        self._free = self._loop.free_kv_tokens
        self._publisher = EventPublisher(self._loop, self)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._ids = count(), count()
        self._counts = _Counts()
        people = max(round(PEOPLE_SHARE * soak.robots), 1)
        agents = [_Agent(f"robot-{number}", False) for number in range(soak.robots)]
        agents += [_Agent(f"person-{number}", True) for number in range(people)]
        self._agents = {agent.name: agent for agent in agents}
        self._until_s = soak.duration_s
        for agent in agents:
            self._pause(agent)

    def run(self, until_s: float) -> None:
        """Serve until a virtual time."""
        while self.clock.now() < until_s:
            while self._due and self._due[0][0] <= self.clock.now():
                heapq.heappop(self._due)[2]()
            self._publisher.publish(self._loop.take_events())
            turn = self._loop.turn()
            self._publisher.publish(turn.events)
            if not turn.stepped and not turn.events:
                next_s = self._due[0][0] if self._due else math.inf
                wake_s = min(turn.wake_s, next_s, until_s)
                self.clock.advance(max(wake_s - self.clock.now(), LEAST_S))

    def end(self) -> dict[str, Any]:
        """Serve what is open; return what became of all requests."""
        end_s = self.clock.now() + END_S
        while self._loop.generations and self.clock.now() < end_s:
            self.run(min(self.clock.now() + 1.0, end_s))
        self._loop.conversations.forget_all()
        counts, stats = self._counts, self._publisher.stats
        ends, requests = counts.ends, sum(one.asked for one in self._agents.values())
        well = ends[ErrorCode.NONE]
        usual = ErrorCode.NONE, ErrorCode.CANCELED
        errors = {code: number for code, number in ends.most_common() if code not in usual}
        robots = [one for one in self._agents.values() if not one.person]
        return {
            "requests": requests,
            "finished": well,
            "canceled": ends[ErrorCode.CANCELED],
            "errors": sum(errors.values()),
            "error_codes": ", ".join(f"{code.name} {number}" for code, number in errors.items()),
            "without_end": requests - ends.total(),
            "replans": stats.replans,
            "evictions": stats.evictions,
            "robots_never_served": sum(one.asked > 0 and not one.served for one in robots),
            "segments_published": counts.segments,
            "segments_lost": counts.segments_lost,
            "answer_tokens": counts.chunks,
            "kv_not_free": self._free - self._loop.free_kv_tokens,
            "ends_twice": counts.ends_twice,
            "steps": stats.steps,
        }

    # The sink.

    def segment(self, segment: Segment) -> None:
        """Let a robot execute a segment after those that it has."""
        self._counts.segments += 1
        robot = self._agents[segment.agent]
        if segment.request_id != robot.request_id:
            return
        begun = robot.epochs.newest
        if not robot.epochs.follow(segment.epoch, segment.request_id):
            return
        if segment.epoch > begun:
            robot.index = 0
        if segment.index < robot.index:
            return  # it came a second time, as the final one
        self._counts.segments_lost += segment.index - robot.index
        robot.index = segment.index + 1
        now = self.clock.now()
        begin_s = max(robot.free_s, now)
        robot.free_s = begin_s + segment.predicted_s * math.exp(SPREAD * self._rng.normal())
        fails = self._rng.random() < self._soak.failure_share
        self._at(begin_s, lambda: self._report(robot, segment, ReportState.STARTED))
        state = ReportState.FAILED if fails else ReportState.FINISHED
        took_s = robot.free_s - begin_s
        self._at(robot.free_s, lambda: self._report(robot, segment, state, took_s))

    def chunk(self, chunk: StreamChunk) -> None:
        """Count a token."""
        self._counts.chunks += 1

    def stepped(self, result: StepResult) -> None:
        """Do nothing."""

    def ended(self, result: Result) -> None:
        """Let an agent pause, and ask again."""
        agent = self._agents[result.agent]
        self._counts.ends[result.error_code] += 1
        if result.request_id != agent.request_id:
            self._counts.ends_twice += 1
            return
        agent.request_id, agent.silent = "", False
        agent.served += result.error_code is ErrorCode.NONE
        agent.turns += 1
        if result.error_code is not ErrorCode.NONE or self._rng.random() > GOES_ON_SHARE:
            agent.conversation = ""
        self._pause(agent)

    # Robots and people.

    def _pause(self, agent: _Agent) -> None:
        self._at(self.clock.now() + self._rng.exponential(PAUSE_S), lambda: self._ask(agent))

    def _ask(self, agent: _Agent) -> None:
        if self.clock.now() >= self._until_s:
            return
        agent.request_id = f"{agent.name}-{next(self._ids)}"
        agent.asked += 1
        asked = self._question(agent) if agent.person else self._task(agent)
        self._loop.admit(asked)
        if self._rng.random() < CANCELED_SHARE:
            name = agent.request_id
            self._at(self.clock.now() + self._rng.exponential(2.0), lambda: self._cancel(name))
        if not agent.person:
            agent.silent = self._rng.random() < SILENT_SHARE
            self._live(agent, agent.request_id)

    def _task(self, robot: _Agent) -> Request:
        robot.epochs, robot.index = PlanEpochs(), 0
        robot.free_s = self.clock.now()
        task = self._tasks.draw(bool(self._rng.random() < URGENT_SHARE), self._rng)
        return PlanRequest(
            robot.request_id, robot.name, "drone", task.text, task.time_utility, closed_loop=True
        )

    def _question(self, person: _Agent) -> Request:
        if not person.conversation:
            person.conversation, person.turns = f"talk-{next(self._ids)}", 0
        words = self._questions.draw(not person.turns, self._rng)
        return StreamRequest(
            person.request_id, person.name, (ChatMessage("user", words),),
            conversation=person.conversation, turn=person.turns, max_tokens=ANSWER_TOKENS,
        )  # fmt: skip

    def _cancel(self, request_id: str) -> None:
        self._loop.cancel(request_id, ErrorCode.CANCELED, "canceled by the client")

    def _live(self, robot: _Agent, request_id: str) -> None:
        """Give signs of life as long as a request is open."""
        if robot.request_id != request_id or robot.silent:
            return
        self._loop.report(ExecutionReport("", robot.name, ReportState.ALIVE))
        self._at(self.clock.now() + ALIVE_S, lambda: self._live(robot, request_id))

    def _report(
        self, robot: _Agent, segment: Segment, state: ReportState, took_s: float = 0.0
    ) -> None:
        ended = robot.request_id != segment.request_id
        if ended or robot.epochs.void(segment.epoch) or robot.silent:
            return
        if state is ReportState.FAILED:
            robot.free_s = self.clock.now()
            robot.epochs.fail(segment.epoch)
        blocks = state is ReportState.FINISHED and any(call.blocking for call in segment.calls)
        self._loop.report(
            ExecutionReport(
                segment.request_id, robot.name, state, segment.index, took_s,
                "True" if blocks else "", segment.epoch,
            )
        )  # fmt: skip

    def _at(self, time_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time_s, next(self._order), happen))
