"""A server's machine: its lives, its clock, and the messages between it and the dispatcher."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from timely_llm.core.clock import SimulatedClock, VirtualClock
from timely_llm.core.errors import RequestError
from timely_llm.core.generation import by_kind
from timely_llm.core.request import ExecutionReport, Rejected, Request, Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.dispatch.link import Found
from timely_llm.dispatch.load import Load
from timely_llm.engines.example_script import NO_MODEL, ExampleScript
from timely_llm.engines.simulated import DEFAULT_PROFILE, PROFILES
from timely_llm.histories.checks import Checks
from timely_llm.histories.dispatcher import DispatcherMachine
from timely_llm.histories.engine import FailingEngine
from timely_llm.histories.journal import HostJournal, Killed
from timely_llm.histories.schedule import LONGEST_WAY_S, Schedule
from timely_llm.histories.sink_counts import SinkCounts
from timely_llm.histories.turned_server import TurnedServer
from timely_llm.policies.registry import make_policy
from timely_llm.serving.conversations import RetentionLimits
from timely_llm.serving.journal.sink import JournalSink
from timely_llm.serving.limits import RequestLimits, Timeouts
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.face import running
from timely_llm.serving.server.results import Results, size_of
from timely_llm.skills.skill_set import SkillSet

TIMEOUTS = Timeouts(client_timeout_s=5.0, answer_timeout_s=10.0, queue_timeout_s=20.0)
STEP_TIMEOUT_S = 5.0
"""A step that takes longer ends its server, seconds."""
NAME = "/dispatcher"
"""Name by which servers know the dispatcher's requests."""
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


class Host:
    """One server behind the dispatcher; it is the server's sink and the dispatcher's link to it.

    Messages of a topic arrive in order, those of several topics do not. In a partition they wait,
    as reliable DDS repeats them; views are lost.

    Args:
        name: the server's.
        schedule: what will happen.
        source: randomness of the network.
        dispatcher: the dispatcher.
        checks: what must hold.
        skill_set: what robots can do.
        text: the skill set as YAML.
        simulated_time: robots' time is a simulator's.
        journal: file of the recovery journal; None: there is none.
        fired: takes the kind of a fault that waited for a record of the journal.
    """

    def __init__(
        self, name: str, schedule: Schedule, source: random.Random, dispatcher: DispatcherMachine,
        checks: Checks, skill_set: SkillSet, text: str, simulated_time: bool, journal: Path | None,
        fired: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.name = name
        self._schedule = schedule
        self._source = source
        self._checks = checks
        self._dispatcher = dispatcher
        self._skill_set = skill_set
        self._text = text
        self._simulated_time = simulated_time
        self._leap_s = 0.0
        self._lives = 0
        self._arrives_s: dict[str, float] = {}
        self.apart_s = 0.0  # end of a partition
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

    def serves(self, request_id: str) -> bool:
        """Return whether a request is served here, and the dispatcher has asked for such ones."""
        asked = self.alive and self._dispatcher.knows(self.name, self.life)
        return asked and self.server.serves(request_id)

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
        if sink is not None and self._is_killed(lambda: self.server.resume(sink)):
            return
        self._wake(0.0)
        if self.robot_clock is not None:
            self._tick_clock(self._lives)

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
        self._checks.server(self.name, self.server, self.engine, began_s)
        if self.clock.now() >= self._publish_s:
            self._publish_s = self.clock.now() + PUBLISH_S
            self.check_counts()
            self._publish()
        self._wake(wait_s if self.server.rests else min(wait_s, PUBLISH_S))

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

    # From the server: its sink.

    def accepted(self, request: Request) -> None:
        """Take a request that the server accepted."""
        self._checks.began(request)
        if self.journal is not None:
            self.journal.accepted(request)

    def stepped(self, result: StepResult) -> None:
        """Take a step."""

    def segment(self, segment: Segment) -> None:
        """Send a segment."""
        if self.journal is not None:
            self.journal.segment(segment)
        self._tell("deliveries", lambda: self._dispatcher.relay.segment(self.name, segment))

    def chunk(self, chunk: StreamChunk) -> None:
        """Send a token."""
        self._tell("deliveries", lambda: self._dispatcher.relay.chunk(self.name, chunk))

    def ended(self, result: Result) -> None:
        """Send a result, and keep it."""
        if self.journal is not None:
            self.journal.ended(result.request_id)
        self._results.put(result.request_id, result, size_of(result), self.clock.now())
        self._tell("results", lambda: self._dispatcher.relay.ended(self.name, result))

    def _publish(self) -> None:
        now, life = self.clock.now(), self.life
        if now < self.apart_s:
            return
        view = replace(self._load.view(now), active=self.server.accepting)

        def heard() -> None:
            age_s = max(self._schedule.now - now, 0.0)
            self._dispatcher.relay.heard(replace(view, age_s=age_s), life)

        self._tell("views", heard)

    def _tell(self, topic: str, tell: Callable[[], None]) -> None:
        """Let a message of this life arrive at this life of the dispatcher."""
        life, dispatcher = self._lives, self._dispatcher.life

        def arrive() -> None:
            if life != self._lives or not self.alive or self.foreign:
                return
            if dispatcher != self._dispatcher.life or not self._dispatcher.alive:
                return
            if self._schedule.now < self.apart_s:
                if topic != "views":
                    self._schedule.at(self.apart_s, arrive)
                return
            tell()
            self._dispatcher.changed()

        self._schedule.at(self._arrival_s(topic, self.clock.now()), arrive)

    def _arrival_s(self, topic: str, now: float) -> float:
        way_s = self._source.uniform(0.0005, LONGEST_WAY_S)
        self._arrives_s[topic] = max(now + way_s, self._arrives_s.get(topic, 0.0))
        return self._arrives_s[topic]

    # To the server: the dispatcher's link.

    def send(self, request: Request) -> None:
        """Send a request."""

        def do() -> None:
            try:
                self.server.submit(request)
            except Rejected as error:
                self.ended(request.refused(error.code, str(error)))

        self._ask("requests", do)

    def report(self, report: ExecutionReport) -> None:
        """Send a robot's report."""
        self._ask("reports", lambda: self.server.report(report))

    def cancel(self, request_id: str) -> None:
        """End a request."""
        self._ask("requests", lambda: self.server.cancel(request_id))

    def withdraw(self, request_id: str, stays: Callable[[], None]) -> None:
        """End a request unless it has begun."""

        def do() -> None:
            asked = self.server.cancel(request_id, unless_begun=True)
            asked.add_done_callback(
                lambda done: (
                    None if not done.exception() and done.result() else self._tell("answers", stays)
                )
            )

        self._ask("requests", do)

    def inquire(self, request_id: str, answered: Callable[[Result | None], None]) -> None:
        """Ask how a request ended."""

        def do() -> None:
            if not self.server.serves(request_id):
                result = self._results.get(request_id, self.clock.now())
                self._tell("answers", lambda: answered(result))

        self._ask("requests", do)

    def find(self, answered: Callable[[Sequence[Found]], None]) -> None:
        """Ask for the requests that a dispatcher of this name has sent."""

        def work(loop: Loop) -> list[Found]:
            gate = self.server._gate.requests
            sent = [one for one in gate if one.dispatcher == NAME]
            plans, _ = by_kind(loop.generations)
            segments = {plan.key: list(plan.segments) for plan in plans}
            return [
                Found(one.request, segments.get(one.request.request_id, ()), one.text, one.made)
                for one in running(sent, loop.generations)
            ]

        life = self.life

        def say(found: Sequence[Found]) -> None:
            answered(found)
            self._dispatcher.asked(self.name, life)

        def do() -> None:
            asked = self.server.call(work)
            asked.add_done_callback(
                lambda done: (
                    None if done.exception() else self._tell("answers", lambda: say(done.result()))
                )
            )

        self._ask("requests", do)

    def skill_set(self, name: str, answered: Callable[[str], None]) -> None:
        """Ask for the text of a skill set."""

        def do() -> None:
            try:
                text = self.server.skill_sets.text(name)
            except RequestError:
                text = ""
            self._tell("answers", lambda: answered(text))

        self._ask("requests", do)

    def register(self, text: str, answered: Callable[[str, int, str], None]) -> None:
        """Register a skill set: all servers have the only one."""
        self._ask("requests", lambda: self._tell("answers", lambda: answered("", 0, "refused")))

    def unregister(self, name: str, answered: Callable[[str], None]) -> None:
        """Forget a skill set: no client asks for it."""
        self._ask("requests", lambda: self._tell("answers", lambda: answered("refused")))

    def close(self) -> None:
        """Free what belongs to the link: nothing does."""

    def _ask(self, topic: str, do: Callable[[], object]) -> None:
        """Let a message of the dispatcher arrive at this life of the server."""
        life, dispatcher = self._lives, self._dispatcher.life

        def arrive(waited: bool = False) -> None:
            if life != self._lives or not self.alive or self.foreign:
                return
            apart = self._schedule.now < self.apart_s
            gone = dispatcher != self._dispatcher.life or not self._dispatcher.alive
            if gone and (apart or waited):
                return  # nothing repeats it any more
            if apart:
                self._schedule.at(self.apart_s, lambda: arrive(True))
                return
            self._inbox.append(do)
            if not self.server.rests:
                self._wake(0.0)

        self._schedule.at(self._arrival_s(topic, self._schedule.now), arrive)
