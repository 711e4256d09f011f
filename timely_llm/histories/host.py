"""A server behind a dispatcher, and the messages between the two."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from timely_llm.core.errors import RequestError
from timely_llm.core.generation import by_kind
from timely_llm.core.request import ExecutionReport, Rejected, Request, Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.dispatch.link import Found
from timely_llm.histories.checks import Checks
from timely_llm.histories.dispatcher import DispatcherMachine
from timely_llm.histories.machine import ServerMachine
from timely_llm.histories.schedule import LONGEST_WAY_S, Schedule
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.face import running
from timely_llm.skills.skill_set import SkillSet

NAME = "/dispatcher"
"""Name by which servers know the dispatcher's requests."""


class Host(ServerMachine):
    """One server behind the dispatcher; it is the dispatcher's link to it.

    Messages of a topic arrive in order, those of several topics do not. In a partition they wait,
    as reliable DDS repeats them; views are lost.

    Args:
        dispatcher: the dispatcher.

    The other arguments are those of `ServerMachine`.
    """

    def __init__(
        self, name: str, schedule: Schedule, source: random.Random, dispatcher: DispatcherMachine,
        checks: Checks, skill_set: SkillSet, text: str, simulated_time: bool, journal: Path | None,
        fired: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._dispatcher = dispatcher
        self._arrives_s: dict[str, float] = {}
        super().__init__(
            name, schedule, source, checks, skill_set, text, simulated_time, journal, fired
        )

    def serves(self, request_id: str) -> bool:
        """Return whether a request is served here, and the dispatcher has asked for such ones."""
        asked = self.alive and self._dispatcher.knows(self.name, self.life)
        return asked and self.server.serves(request_id)

    # From the server: its sink.

    def accepted(self, request: Request) -> None:
        """Take a request that the server accepted."""
        self._checks.began(request)
        if self.journal is not None:
            self.journal.accepted(request)

    def segment(self, segment: Segment) -> None:
        """Send a segment."""
        if self.journal is not None:
            self.journal.segment(segment)
        self._tell("deliveries", lambda: self._dispatcher.relay.segment(self.name, segment))

    def chunk(self, chunk: StreamChunk) -> None:
        """Send a token."""
        self._tell("deliveries", lambda: self._dispatcher.relay.chunk(self.name, chunk))

    def tell_result(self, result: Result) -> None:
        """Send a result."""
        self._tell("results", lambda: self._dispatcher.relay.ended(self.name, result))

    def publish(self) -> None:
        """Send a view."""
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
            self.put(do)

        self._schedule.at(self._arrival_s(topic, self._schedule.now), arrive)
