"""A server alone, with its recovery journal, and the messages between it and its clients."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from timely_llm.core.request import (
    Request,
    Result,
    StreamChunk,
)
from timely_llm.core.segment import Segment
from timely_llm.histories.checks import Checks
from timely_llm.histories.clients import Client
from timely_llm.histories.machine import ServerMachine
from timely_llm.histories.network import ClientNetwork, ClientsWay
from timely_llm.histories.schedule import Schedule
from timely_llm.robots.client.taking_up import RequestFate
from timely_llm.serving.journal.sink import JournalSink
from timely_llm.serving.server.server import Server
from timely_llm.skills.skill_set import SkillSet


class LoneServer(ServerMachine, ClientsWay):
    """One server without a dispatcher; it is its clients' way to it.

    Clients notice its death by its silence, or by the next life that they find. That one goes on
    with the requests of the journal, and clients ask for them by their ids.

    Attributes:
        network: of its clients.
        replaces_plans: as in `Service`.

    Arguments are those of `ServerMachine`; there is a journal.
    """

    replaces_plans = False

    def __init__(
        self, name: str, schedule: Schedule, source: random.Random, checks: Checks,
        skill_set: SkillSet, text: str, simulated_time: bool, journal: Path,
        fired: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._clients: Mapping[str, Client] = {}
        self.network = ClientNetwork(
            schedule, source, lambda: self._lives if self.alive and not self.foreign else None
        )
        super().__init__(
            name, schedule, source, checks, skill_set, text, simulated_time, journal, fired
        )

    def connect(self, clients: Mapping[str, Client]) -> None:
        """Let robots and people, by name, use the server."""
        self._clients = clients

    @property
    def ready(self) -> bool:
        """Whether clients find it."""
        return self.alive

    @property
    def problem(self) -> str:
        """Why clients cannot use it; empty: they can."""
        return "it has another interface" if self.foreign else ""

    # Its life.

    def begin(self) -> None:
        """Start the server, unless it lives; clients find it."""
        before = self._lives
        super().begin()
        if self.alive and self._lives != before:
            self.network.back(self._clients.values())

    def resume(self, sink: JournalSink) -> None:
        """Go on with the requests of the journal, which has all that were accepted."""
        assert self.journal is not None
        self._checks.resuming(self.journal.saved_ids)
        super().resume(sink)
        self._checks.resumed(self.name, self.journal.emptied)

    def die(self) -> None:
        """End the process at once."""
        lived = self.alive
        super().die()
        if lived:
            self._checks.orphan()
            self.network.gone(self._clients.values(), lambda: self.alive)

    def check(self, began_s: float) -> None:
        """Check the server after a turn, and what its clients got."""
        super().check(began_s)
        self._checks.alone(self.name, self.server, self.clock.now())

    # Its sink.

    def accepted(self, request: Request) -> None:
        """Take a request that the server accepted, or goes on with."""
        assert self.journal is not None
        key = request.request_id
        self.network.note("accepted", key)
        if not (key in self.journal.saved_ids and key in self._checks.stories):
            self._checks.accepted(request, self.clock.now())
        self.journal.accepted(request)

    def segment(self, segment: Segment) -> None:
        """Send a segment to its robot."""
        assert self.journal is not None
        self.network.note("segment", segment.request_id, segment.epoch, segment.index, segment.text)
        self.journal.segment(segment)
        self._checks.segment(segment)
        robot: Any = self._clients[segment.agent]
        self._tell("deliveries", segment.agent, lambda: robot.take(segment))

    def chunk(self, chunk: StreamChunk) -> None:
        """Send a token to its listener."""
        self.network.note("token", chunk.request_id, chunk.index, chunk.text)
        self._checks.chunk(chunk)
        person: Any = self._clients[chunk.agent]
        self._tell("deliveries", chunk.agent, lambda: person.take(chunk))

    def ended(self, result: Result) -> None:
        """Send a result to its client, and keep it."""
        self.network.note("ended", result.request_id, result.error_code.name)
        self._checks.ended(result)
        super().ended(result)

    def tell_result(self, result: Result) -> None:
        """Send a result to its client."""
        client: Any = self._clients[result.agent]
        self._tell("results", result.agent, lambda: client.finish(result))

    def publish(self) -> None:
        """Do nothing: it has no views."""

    def _tell(self, topic: str, agent: str, arrive: Callable[[], None]) -> None:
        self.network.send(topic, agent, arrive, sent_s=self.clock.now())

    # Clients.

    @property
    def serving(self) -> Server:
        """The server of the present life."""
        return self.server

    def submit(self, request: Request) -> None:
        """Take a request at once.

        Raises:
            Rejected: the server does not take it.
        """
        self.server.submit(request)

    def ask_segments(
        self, request: Request, answered: Callable[[Sequence[Segment] | None], None]
    ) -> None:
        """Let a client ask for the segments of its plan."""
        agent = request.agent

        def answer(done: Future[list[Segment]]) -> None:
            found = None if done.exception() else done.result()
            self._tell("answers", agent, lambda: answered(found))

        def do() -> None:
            self.server.segments(agent, request.request_id).add_done_callback(answer)

        self._take("requests", agent, do)

    def ask_result(self, request: Request, answered: Callable[[RequestFate], None]) -> None:
        """Let a client ask what became of its request."""
        key = request.request_id

        def do() -> None:
            served = self.server.serves(key)
            result = None if served else self._result(key)
            fate = RequestFate(served, result)
            self._tell("answers", request.agent, lambda: answered(fate))

        self._take("requests", request.agent, do)

    def _result(self, request_id: str) -> Result | None:
        """Return how a request ended in this life, or in an earlier one."""
        found = self._results.get(request_id, self.clock.now())
        return found if found is not None else self.server.result(request_id).result()

    def _take(
        self, topic: str, agent: str, arrive: Callable[[], None], late_s: float = 0.0
    ) -> None:
        self.network.send(topic, agent, lambda: self.put(arrive), late_s=late_s)
