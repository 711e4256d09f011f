"""A server's machine: its lives, its clock, its engine and its recovery journal."""

from __future__ import annotations

import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from timely_llm.core.clock import SimulatedClock, VirtualClock
from timely_llm.core.request import Request, Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.dispatch.load import Load
from timely_llm.engines.example_script import NO_MODEL, ExampleScript
from timely_llm.engines.simulated import DEFAULT_PROFILE, PROFILES
from timely_llm.histories.checks import Checks
from timely_llm.histories.engine import FailingEngine
from timely_llm.histories.journal import HostJournal, Killed
from timely_llm.histories.schedule import Schedule
from timely_llm.histories.sink_counts import SinkCounts
from timely_llm.histories.turned_server import TurnedServer
from timely_llm.policies.registry import make_policy
from timely_llm.serving.conversations import RetentionLimits
from timely_llm.serving.journal.sink import JournalSink
from timely_llm.serving.limits import RequestLimits, Timeouts
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.results import Results, size_of
from timely_llm.skills.skill_set import SkillSet

TIMEOUTS = Timeouts(client_timeout_s=5.0, answer_timeout_s=10.0, queue_timeout_s=20.0)
STEP_TIMEOUT_S = 5.0
"""A step that takes longer ends its server, seconds."""
PUBLISH_S = 0.1
"""Seconds between two views of a server."""
LONG_ANSWER = " ".join([NO_MODEL] * 30)
CLOCK_S = 0.1
"""Seconds between two messages of the simulator's clock."""


class _Script(ExampleScript):
    """Plans of examples, and long answers."""

    def __call__(self, key: str, prompt: str) -> str:
        """Return the next part of a plan, or all of an answer that has no part yet."""
        said = super().__call__(key, prompt)
        return LONG_ANSWER if said == NO_MODEL else said


class ServerMachine(ABC):
    """One server in all its lives; it is the server's sink.

    Args:
        name: the server's.
        schedule: what will happen.
        source: randomness of the network.
        checks: what must hold.
        skill_set: what robots can do.
        text: the skill set as YAML.
        simulated_time: robots' time is a simulator's.
        journal: file of the recovery journal; None: there is none.
        fired: takes the kind of a fault that waited for a record of the journal.

    Attributes:
        alive: its process is there.
        foreign: it is of another release.
        apart_s: end of its partition from a dispatcher.
    """

    def __init__(
        self, name: str, schedule: Schedule, source: random.Random, checks: Checks,
        skill_set: SkillSet, text: str, simulated_time: bool, journal: Path | None,
        fired: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.name = name
        self._schedule = schedule
        self._source = source
        self._checks = checks
        self._skill_set = skill_set
        self._text = text
        self._simulated_time = simulated_time
        self._leap_s = 0.0
        self._lives = 0
        self.apart_s = 0.0
        self.alive = False
        self.foreign = False
        self.journal: HostJournal | None = None
        if journal is not None:
            self.journal = HostJournal(
                journal,
                lambda: self.clock.now() + self._leap_s,
                lambda pause_s: self.clock.advance(pause_s),
                fired,
            )
        self.begin()

    @property
    def life(self) -> str:
        """A text for each start of the server."""
        return f"{self.name}#{self._lives}"

    # Its life.

    def begin(self) -> None:
        """Start the server, unless it lives."""
        if self.alive:
            return
        self._lives += 1
        self.alive = True
        self.clock = VirtualClock(self._schedule.now)
        self.robot_clock = SimulatedClock(True, self.clock.now()) if self._simulated_time else None
        self._results: Results[Result] = Results(60.0, 64)
        self._inbox: list[Callable[[], object]] = []
        self._turns = 0
        self._publish_s = self.clock.now()
        script = _Script(lambda: [self._skill_set])
        self.engine = FailingEngine(PROFILES[DEFAULT_PROFILE], script, self.clock)
        loop = Loop(
            self.engine, make_policy("deadline"), self.clock, timeouts=TIMEOUTS,
            retention=RetentionLimits(), robot_clock=self.robot_clock,
        )  # fmt: skip
        sink = None
        if self.journal is not None:
            sink = JournalSink(self.journal.open(), self, self.journal)
        self._counts = SinkCounts(sink or self)
        self.server = TurnedServer(
            lambda: loop, self._counts, self.clock, RequestLimits(), self._skill_set, self._text,
            sink,
        )  # fmt: skip
        self._load = Load(loop, self.name)
        if sink is not None and self._is_killed(lambda: self.resume(sink)):
            return
        self._wake(0.0)
        if self.robot_clock is not None:
            self._tick_clock(self._lives)

    def resume(self, sink: JournalSink) -> None:
        """Go on with the requests of the journal."""
        self.server.resume(sink)

    def exchange(self) -> None:
        """Replace the server by one of another release, or the other way round."""
        self.die()
        self.foreign = not self.foreign
        if self.journal is not None:
            self.journal.exchange()
        self.begin()

    def exhaust(self, seconds: float) -> None:
        """Leave the engine almost no free KV for some seconds."""
        engine = self.engine
        taken = engine.take_kv()
        self._schedule.at(self._schedule.now + seconds, lambda: engine.give_kv(taken))

    def die(self) -> None:
        """End the process at once; what is on its way to it or waits in it is lost."""
        self.alive = False
        if self.journal is not None:
            self.journal.end()

    def _is_killed(self, work: Callable[[], object]) -> bool:
        """Do work of the process; return whether a record of its journal has ended it."""
        with contextlib.suppress(Killed):
            work()
        if self.journal is None or not self.journal.killed:
            return False
        self.die()
        self._schedule.at(self.clock.now() + self.journal.pause_s, self.begin)
        return True

    def leap(self, seconds: float) -> None:
        """Set the simulator's clock ahead, or back."""
        self._leap_s += seconds

    def _tick_clock(self, life: int) -> None:
        if not self.alive or life != self._lives:
            return
        assert self.robot_clock is not None
        now = self.clock.now()
        self.robot_clock.update(self._schedule.now + self._leap_s, now)
        self._schedule.at(self._schedule.now + CLOCK_S, lambda: self._tick_clock(life))

    def _wake(self, seconds: float) -> None:
        """Turn the server after some seconds of its clock, unless it turns before."""
        self._turns += 1
        turn, life = self._turns, self._lives
        at_s = max(self.clock.now(), self._schedule.now) + seconds

        def happen() -> None:
            if turn == self._turns and life == self._lives and self.alive:
                self._turn()

        self._schedule.at(at_s, happen)

    def _turn(self) -> None:
        self.clock.advance(max(self._schedule.now - self.clock.now(), 0.0))
        began_s = self.clock.now()
        inbox, self._inbox = self._inbox, []
        wait_s = 0.0

        def work() -> None:
            nonlocal wait_s
            for do in inbox:
                do()
            wait_s = self.server.turn()

        if self._is_killed(work):
            return
        if self.server.over:
            self.die()  # its process ends, and is started again
            self._schedule.at(self.clock.now() + 1.0, self.begin)
            return
        self.check(began_s)
        if self.clock.now() >= self._publish_s:
            self._publish_s = self.clock.now() + PUBLISH_S
            self.check_counts()
            self.publish()
        self._wake(wait_s if self.server.rests else min(wait_s, PUBLISH_S))

    def check(self, began_s: float) -> None:
        """Check the server after a turn that began at `began_s`, seconds of its clock."""
        self._checks.server(self.name, self.server, self.engine, began_s)

    def check_counts(self) -> None:
        """Compare the statistics of the server with what its sink got."""
        self._counts.check(self.name, self.server)

    def hang(self, seconds: float) -> None:
        """Let a step take longer; its watchdog ends the server if it takes too long."""

        def happen() -> None:
            self.clock.advance(min(seconds, STEP_TIMEOUT_S))
            if seconds > STEP_TIMEOUT_S:
                self.server.hang(STEP_TIMEOUT_S)

        self.engine.hang = happen

    def put(self, do: Callable[[], object]) -> None:
        """Let the server do something in its next turn."""
        self._inbox.append(do)
        if not self.server.rests:
            self._wake(0.0)

    # Its sink.

    def stepped(self, result: StepResult) -> None:
        """Take a step, which no client sees."""
        return

    @abstractmethod
    def accepted(self, request: Request) -> None:
        """Take a request that the server accepted."""

    @abstractmethod
    def segment(self, segment: Segment) -> None:
        """Send a segment."""

    @abstractmethod
    def chunk(self, chunk: StreamChunk) -> None:
        """Send a token."""

    def ended(self, result: Result) -> None:
        """Send a result, and keep it."""
        if self.journal is not None:
            self.journal.ended(result.request_id)
        self._results.put(result.request_id, result, size_of(result), self.clock.now())
        self.tell_result(result)

    @abstractmethod
    def tell_result(self, result: Result) -> None:
        """Send a result."""

    @abstractmethod
    def publish(self) -> None:
        """Do what is done every 0.1 s."""
