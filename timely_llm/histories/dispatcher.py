"""The dispatcher's machine: its lives, and the messages between it and clients."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from timely_llm.core.clock import Clock
from timely_llm.core.request import (
    Request,
    Result,
    StreamChunk,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.dispatch.assign.registry import make_dispatcher
from timely_llm.dispatch.contract import Waiting
from timely_llm.dispatch.front.actions import Action
from timely_llm.dispatch.link import Found, Link
from timely_llm.dispatch.relay import Relay
from timely_llm.dispatch.settings import DispatchSettings
from timely_llm.histories.checks import Checks
from timely_llm.histories.clients import Client
from timely_llm.histories.network import DISCOVERY_S, ClientNetwork, ClientsWay
from timely_llm.histories.schedule import Schedule
from timely_llm.robots.client.taking_up import RequestFate
from timely_llm.serving.server.registration import Reading
from timely_llm.skills.skill_set import SkillSet

LOOK_S = 0.1
"""Seconds between two looks of the dispatcher at its timeouts."""
FIRST_SERVER_S = 5.0
"""Longest wait of a new dispatcher for a server before clients find it, seconds."""
UNCLAIMED_S = 12.0
"""Seconds in which a new dispatcher and clients find each other's requests."""

Lose = Callable[[Request, bool], None]


@dataclass(frozen=True)
class DispatcherFate(RequestFate):
    """What a dispatcher answers about a request.

    Attributes:
        lives: of servers that had reported their requests when this was answered.
    """

    lives: Collection[str] = ()


class _ReadingAtOnce(Reading):
    """Reads skill sets in the caller's thread."""

    def begin(self, read: Callable[[], SkillSet], done: Callable[[Future[SkillSet]], None]) -> None:
        """Read now."""
        outcome: Future[SkillSet] = Future()
        outcome.set_result(read())
        done(outcome)


class _Now(Clock):
    """The dispatcher's clock: the time of the newest event."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def now(self) -> float:
        """Return virtual seconds."""
        return self._schedule.now


class DispatcherMachine(ClientsWay):
    """One dispatcher and its clients' way to it; it is the dispatcher's sink.

    Messages of a topic arrive in order, those of several topics do not. Those of an earlier life of
    the dispatcher do not arrive.

    Args:
        schedule: what will happen.
        source: randomness of the network.
        checks: what must hold.
        settings: how the dispatcher serves.
        rule: name of the rule that assigns requests.
        skill_set: what robots can do.

    Attributes:
        relay: the dispatcher of the present life, or of the last one.
        life: number of its starts.
        alive: its process is there.
        ready: clients find it.
        network: of its clients.
        problem, replaces_plans: as in `Service`.
    """

    problem, replaces_plans = "", True  # it moves plans

    def __init__(
        self, schedule: Schedule, source: random.Random, checks: Checks,
        settings: DispatchSettings, rule: str, skill_set: SkillSet,
    ) -> None:  # fmt: skip
        self._schedule = schedule
        self._source = source
        self._checks = checks
        self._settings = settings
        self._rule = rule
        self._skill_set = skill_set
        self._links: Mapping[str, Link] = {}
        self._clients: Mapping[str, Client] = {}
        self.network = ClientNetwork(schedule, source, lambda: self.life if self.alive else None)
        self._wakes_s = float("inf")
        self._asked: dict[str, str] = {}  # lives of servers that were asked for requests, by name
        self.life = 0
        self.alive = self.ready = False

    # Its life.

    def begin(self, links: Mapping[str, Link], clients: Mapping[str, Client], lose: Lose) -> None:
        """Start the first dispatcher.

        Args:
            links: to all servers, by name.
            clients: robots and people, by name.
            lose: takes a request that no dispatcher knows, and true.
        """
        self._links, self._clients, self._lose = links, clients, lose
        self._start()
        self.ready = True
        for name, link in links.items():
            self.relay.joined(name, link)

    def die(self) -> None:
        """End the process at once; what is on its way to it or from it is lost."""
        self.alive = self.ready = False
        self._checks.orphan()
        self.network.gone(self._clients.values(), lambda: self.ready)

    def restart(self) -> None:
        """Start a new dispatcher, unless there is one; it finds the servers one by one."""
        if self.alive:
            return
        self._start()
        life, began_s = self.life, self._schedule.now

        def join(name: str, link: Link) -> None:
            if life == self.life and self.alive:
                self.relay.joined(name, link)

        for name, link in self._links.items():
            at_s = began_s + self._source.uniform(0.0, DISCOVERY_S)
            self._schedule.at(at_s, partial(join, name, link))

        def find() -> None:
            if life != self.life or not self.alive:
                return
            if not self.relay.servers and self._schedule.now < began_s + FIRST_SERVER_S:
                self._schedule.at(self._schedule.now + LOOK_S, find)
                return
            self.ready = True
            self.network.back(self._clients.values())
            self._schedule.at(self._schedule.now + UNCLAIMED_S, give_up)

        def give_up() -> None:
            """Give up the requests of clients that are gone."""
            if life == self.life and self.alive:
                for story in self._checks.open:
                    request = story.request
                    there = self._clients[request.agent].waits_for(request.request_id)
                    if story.orphaned and not there:
                        self._lose(request, True)

        find()

    def _start(self) -> None:
        self.life += 1
        self.alive = True
        self._asked.clear()
        self._wakes_s = float("inf")
        self.relay = Relay(
            make_dispatcher(self._rule), self, _Now(self._schedule), self._settings,
            lambda text, what: self._skill_set, lambda said: None, lambda: None,
        )  # fmt: skip
        self.relay.skill_sets._of_servers = _ReadingAtOnce()
        front = self.relay._front
        adopt = front.adopted

        def adopted(server: str, waiting: Waiting, found: Found, now: float) -> list[Action]:
            actions = adopt(server, waiting, found, now)
            delivered = front.delivered(waiting.key)
            assert delivered is not None
            self._checks.adopted(found.request, delivered)
            return actions

        front.adopted = adopted  # type: ignore[method-assign]
        self._look(self.life)

    # Its turns.

    def _look(self, life: int) -> None:
        if life == self.life and self.alive:
            self.relay.tick()
            self.changed()
            self._schedule.at(self._schedule.now + LOOK_S, lambda: self._look(life))

    def changed(self) -> None:
        """Check the dispatcher after an event, and wake it when it wants that."""
        self._checks.relay(self.relay, self._schedule.now)
        wakes_s = self.relay.wake_s()
        if wakes_s < self._wakes_s or self._wakes_s < self._schedule.now:
            self._wakes_s = wakes_s
            if wakes_s < float("inf"):
                life = self.life
                self._schedule.at(wakes_s, lambda: self._tick(life))

    def _tick(self, life: int) -> None:
        if life == self.life and self.alive:
            self._wakes_s = float("inf")
            self.relay.tick()
            self.changed()

    # Its sink.

    def accepted(self, request: Request) -> None:
        """Take a request that the dispatcher accepted."""
        self.network.note("accepted", request.request_id)
        self._checks.accepted(request, self._schedule.now)

    def segment(self, segment: Segment) -> None:
        """Send a segment to its robot."""
        self.network.note("segment", segment.request_id, segment.epoch, segment.index, segment.text)
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
        """Send a result to its client."""
        self.network.note("ended", result.request_id, result.error_code.name)
        self._checks.ended(result)
        self.tell_result(result)

    def stepped(self, result: StepResult) -> None:
        """Take a step: a dispatcher has none."""

    def tell_result(self, result: Result) -> None:
        """Send a result to its client."""
        client: Any = self._clients[result.agent]
        self._tell("results", result.agent, lambda: client.finish(result))

    # Clients.

    @property
    def serving(self) -> Relay:
        """The dispatcher of the present life."""
        return self.relay

    def ask_segments(
        self, request: Request, answered: Callable[[Sequence[Segment] | None], None]
    ) -> None:
        """Let a client ask for the segments of its plan."""
        key, agent = request.request_id, request.agent

        def arrive() -> None:
            found = None
            if self.relay.serves(key):
                plans = self.relay.segments(agent).result()
                found = [one for one in plans if one.request_id == key]
            self._tell("answers", agent, lambda: answered(found))

        self._take("requests", agent, arrive)

    def ask_result(self, request: Request, answered: Callable[[DispatcherFate], None]) -> None:
        """Let a client ask what became of its request."""
        key, agent = request.request_id, request.agent

        def tell(result: Result | None) -> None:
            # The request may have been found at a server meanwhile.
            served = result is None and self.relay.serves(key)
            fate = DispatcherFate(served, result, lives=tuple(self._asked.values()))
            self._tell("answers", agent, lambda: answered(fate))

        def arrive() -> None:
            if self.relay.serves(key):
                tell(None)
            else:
                self.relay.result(key).add_done_callback(lambda done: tell(done.result()))

        self._take("requests", agent, arrive)

    def submit(self, request: Request) -> None:
        """Take a request at once.

        Raises:
            Rejected: the dispatcher does not take it.
        """
        self.relay.submit(request)
        self.changed()

    def _take(
        self, topic: str, agent: str, arrive: Callable[[], None], late_s: float = 0.0
    ) -> None:
        def arrives() -> None:
            arrive()
            self.changed()

        self.network.send(topic, agent, arrives, late_s=late_s)

    def _tell(self, topic: str, agent: str, arrive: Callable[[], None]) -> None:
        """Let a message of this life of the dispatcher arrive at a client."""
        self.network.send(topic, agent, arrive)

    # Servers.

    def asked(self, server: str, life: str) -> None:
        """Record that a life of a server has reported its requests."""
        self._asked[server] = life

    def knows(self, server: str, life: str) -> bool:
        """Return whether a life of a server has reported its requests."""
        return self.alive and self._asked.get(server) == life
