"""The replicas behind a relay: started, watched, started again when they end, and linked to it."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from socket import socket
from typing import Any
from uuid import uuid4

from timely_llm.cluster.connection import Connection, Door
from timely_llm.cluster.messages import (
    Ask,
    Beat,
    EndRequest,
    Failed,
    Ping,
    Pong,
    Ready,
    ReplicaQuestion,
    ReplicaTask,
    Reply,
    Stop,
)
from timely_llm.cluster.place import Place, Started
from timely_llm.core.clock import Clock
from timely_llm.core.errors import EngineError, TimelyError
from timely_llm.core.generation import State
from timely_llm.core.request import ExecutionReport, Request, Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.dispatch.contract import ServerView
from timely_llm.dispatch.link import Found
from timely_llm.dispatch.load import joint_view
from timely_llm.dispatch.relay import Relay
from timely_llm.dispatch.round_trip import RoundTrip

CONNECT_S = 60.0
"""Longest time from the start of a replica to its connection, seconds."""
SILENT_S = 2.0
"""A replica without a sign of life for this time is lost: it gets no requests, seconds."""
KILL_S = 8.0
"""A replica without a sign of life for this time is killed and replaced, seconds."""
AWAY_S = 0.5
"""When the front itself did nothing for this time, it says nothing about replicas, seconds."""
SOUND_S = 10.0
"""A replica that served for this time is replaced at once when it ends, seconds."""
LONGEST_PAUSE_S = 30.0
"""Longest pause before a replica is started that ended soon again and again, seconds."""
CLOSE_S = 5.0
"""Time that replicas get to free their engines, seconds."""
POLL_S = 0.02
FIRST_RTT_S = 0.001
"""Seconds of a message there and back, until it is measured."""


class ReplicaLink:
    """Carries requests to one life of a replica.

    Args:
        connection: to the replica.

    Attributes:
        round_trip: the time of a message there and back.
    """

    def __init__(self, connection: Connection) -> None:
        self.round_trip = RoundTrip(FIRST_RTT_S)
        self._connection = connection
        self._numbers = itertools.count()
        self._asked: dict[int, Callable[[Any], None]] = {}

    def tick(self, now: float) -> None:
        """Measure the time of a message, if it is time to."""
        if self.round_trip.begins(now):
            self._connection.send(Ping(now))

    def answered(self, answer: Reply) -> None:
        """Take an answer of the replica."""
        take = self._asked.pop(answer.number, None)
        if take is not None:
            take(answer.value)

    # What the relay asks for.

    def send(self, request: Request) -> None:
        """Send a request."""
        self._connection.send(request)

    def report(self, report: ExecutionReport) -> None:
        """Send a robot's report."""
        self._connection.send(report)

    def cancel(self, request_id: str) -> None:
        """End a request."""
        self._connection.send(EndRequest(request_id))

    def withdraw(self, request_id: str, stays: Callable[[], None]) -> None:
        """End a request unless it has begun; see `Link`."""
        self._ask("withdraw", request_id, lambda withdrawn: None if withdrawn else stays())

    def inquire(self, request_id: str, answered: Callable[[Result | None], None]) -> None:
        """Ask how a request ended: what is known came before the answer; see `Link`."""
        self._ask("inquire", request_id, lambda served: None if served else answered(None))

    def find(self, answered: Callable[[Sequence[Found]], None]) -> None:
        """Reply that there is nothing: a replica ends with its front."""
        answered(())

    def skill_set(self, name: str, answered: Callable[[str], None]) -> None:
        """Ask for the YAML text of a registered skill set; empty: there is none."""
        self._ask("skill_set", name, answered)

    def register(self, text: str, answered: Callable[[str, int, str], None]) -> None:
        """Register a skill set; see `Link`."""
        self._ask("register", text, lambda answer: answered(*answer))

    def unregister(self, name: str, answered: Callable[[str], None]) -> None:
        """Forget a skill set; see `Link`."""
        self._ask("unregister", name, answered)

    def close(self) -> None:
        """Forget all questions."""
        self._asked.clear()

    def _ask(self, question: ReplicaQuestion, about: str, take: Callable[[Any], None]) -> None:
        number = next(self._numbers)
        self._asked[number] = take
        self._connection.send(Ask(number, question, about))


class _Life:
    """A replica from its start to its end.

    Attributes:
        name: the replica's, the same in each of its lives.
        life: a text of this life alone.
        began_s: when it was started.
        heard_s: when its last message came.
        ready: its message when it began to serve; None: it has not.
        lost: the relay does not use it, as it is silent.
        statistics: the newest ones.
        problem: why it ended, in its own words.
    """

    def __init__(self, name: str, place: Place, post: Callable[[_Life, Any], None], now: float):
        self.name = name
        self.life = uuid4().hex
        self.began_s = self.heard_s = now
        self.ready: Ready | None = None
        self.lost = False
        self.statistics: Mapping[str, Any] = {}
        self.problem = ""
        self.connection: Connection | None = None
        self.link: ReplicaLink | None = None
        self._post = post
        self._door = Door(place.host, lambda stream: post(self, stream))
        try:
            self._started: Started = place.start(name, self._door.address, self._door.nonce)
        except BaseException:
            self._door.close()
            raise

    def connected(self, stream: socket, task: ReplicaTask) -> None:
        """Take the replica's connection, and send it what it is to be."""
        self.connection = Connection(
            stream, lambda message: self._post(self, message), lambda why: self._post(self, why)
        )
        self.link = ReplicaLink(self.connection)
        self.connection.send(task)

    def ended(self) -> str:
        """Return how it ended; empty: it has not."""
        return self._started.ended()

    def stop(self) -> None:
        """Ask it to end."""
        if self.connection is not None:
            self.connection.send(Stop())

    def kill(self) -> None:
        """End it, and what belongs to it."""
        self._door.close()
        self._started.kill()
        if self.connection is not None:
            self.connection.close(0.0)


class Replicas:
    """Keeps a number of replicas running, and gives a relay what they send.

    All calls are in the relay's thread. The owner calls `tick` at `wake_s` at the latest, and when
    it is woken.

    Args:
        place: starts replicas; owned.
        relay: assigns requests to them; it has no other servers.
        count: number of replicas.
        values: of the plan server's parameters, by name.
        skill_sets: sources and texts of the skill sets that each registers.
        clock: the relay's.
        say: takes a sentence for the log.
        wake: lets the owner's thread call `tick` soon; called from any thread.

    Attributes:
        relay: the same.

    Raises:
        TimelyError: a replica cannot be started.
    """

    def __init__(
        self,
        place: Place,
        relay: Relay,
        count: int,
        values: Mapping[str, Any],
        skill_sets: Sequence[tuple[str, str]],
        clock: Clock,
        say: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        self._place = place
        self.relay = relay
        self._values = values
        self._skill_sets = skill_sets
        self._clock = clock
        self._say = say
        self._wake = wake
        self._posted: SimpleQueue[tuple[_Life, Any]] = SimpleQueue()
        self._woken = False
        self._lives: dict[str, _Life] = {}
        self._again_s: dict[str, float] = {}
        self._pauses_s: dict[str, float] = {}
        self._ticked_s = clock.now()
        self._beginning = True
        self._views: list[ServerView] = []
        try:
            for number in range(1, count + 1):
                self._start(f"replica-{number}")
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the replicas that serve, by name."""
        return {name: one.ready.pid for name, one in self._lives.items() if one.ready}

    @property
    def statistics(self) -> list[Mapping[str, Any]]:
        """The newest statistics of each replica that has sent some."""
        return [one.statistics for one in self._lives.values() if one.statistics]

    @property
    def wake_s(self) -> float:
        """When to call `tick`, on the clock."""
        again_s = min(self._again_s.values(), default=math.inf)
        return min(self.relay.wake_s(), again_s, self._ticked_s + SILENT_S / 4)

    def view(self, name: str) -> ServerView:
        """Return what the replicas say of themselves, as one server of a name.

        While none is there, the newest views are used.
        """
        self._views = self.relay.views() or self._views
        served = self.relay.statuses().result()
        return replace(
            joint_view(name, self._views),
            requests=len(served),
            served=tuple(one.request_id for one in served),
            unstarted=frozenset(one.request_id for one in served if one.state is State.QUEUED),
        )

    def wait_ready(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until all replicas serve.

        Args:
            meanwhile: called often; an exception of it ends the waiting.

        Raises:
            TimelyError: a replica could not begin, and why; all are then ended.
        """
        try:
            while not self._complete():
                meanwhile()
                self.tick()
                for one in self._lives.values():
                    if one.problem:
                        raise EngineError(f"{one.name}: {one.problem}")
                time.sleep(POLL_S)
        except BaseException:
            self.close()
            raise
        self._beginning = False

    def tick(self) -> None:
        """Take what came, do what is due, and let the relay do the same."""
        now = self._clock.now()
        self._woken = False
        while not self._posted.empty():
            self._take(*self._posted.get(), now)
        away = now - self._ticked_s > AWAY_S
        self._ticked_s = now
        for one in list(self._lives.values()):
            self._watch(one, now, away)
        for name in [name for name, at_s in self._again_s.items() if at_s <= now]:
            self._again(name, now)
        self.relay.tick()

    def close(self) -> None:
        """End all replicas; those that take too long are killed."""
        lives = list(self._lives.values())
        self._lives.clear()
        self._again_s.clear()
        for one in lives:
            one.stop()
        end_s = time.monotonic() + CLOSE_S
        while time.monotonic() < end_s and not all(
            one.connection is None or one.ended() for one in lives
        ):
            time.sleep(POLL_S)
        for one in lives:
            one.kill()
        self._place.close()

    def _complete(self) -> bool:
        """Return whether all replicas take requests that name any of their skill sets."""
        ready = [one.ready for one in self._lives.values() if one.ready]
        names = {name for one in ready for name in one.skill_sets}
        views = self.relay.views()
        complete = all(names <= view.skill_sets.keys() for view in views)
        return complete and len(views) == len(self._lives) == len(ready)

    def _start(self, name: str) -> None:
        self._lives[name] = _Life(name, self._place, self._post, self._clock.now())

    def _again(self, name: str, now: float) -> None:
        """Start a replica that has ended."""
        del self._again_s[name]
        try:
            self._start(name)
        except TimelyError as error:
            self._say(str(error))
            self._pause(name, now)

    def _pause(self, name: str, now: float) -> None:
        """Start a replica after a pause, longer each time."""
        pause_s = min(2.0 * self._pauses_s.get(name, 0.25), LONGEST_PAUSE_S)
        self._pauses_s[name] = pause_s
        self._again_s[name] = now + pause_s

    def _post(self, one: _Life, message: Any) -> None:
        self._posted.put((one, message))
        if not self._woken:
            self._woken = True
            self._wake()

    def _take(self, one: _Life, message: Any, now: float) -> None:
        """Take what a replica sent, or its connection, or why that ended."""
        if self._lives.get(one.name) is not one:
            if isinstance(message, socket):
                message.close()
            return
        relay, name = self.relay, one.name
        one.heard_s = now
        match message:
            case Segment():
                relay.segment(name, message)
            case StreamChunk():
                relay.chunk(name, message)
            case Result():
                relay.ended(name, message)
            case Beat(view, statistics):
                self._beats(one, view, statistics)
            case Reply() if one.link is not None:
                one.link.answered(message)
            case Pong() if one.link is not None:
                one.link.round_trip.answered(now)
            case Ready() if one.link is not None:
                one.ready = message
                relay.joined(name, one.link)
            case Failed(problem):
                one.problem = problem
            case socket():
                values = self._values_of(name)
                one.connected(message, ReplicaTask(name, values, self._skill_sets, str(Path.cwd())))
            case str():
                self._ended(one, message, now)

    def _beats(self, one: _Life, view: Any, statistics: Mapping[str, Any]) -> None:
        assert one.link is not None
        one.statistics = statistics
        one.lost = False
        self.relay.heard(replace(view, rtt_s=one.link.round_trip.seconds), one.life)

    def _watch(self, one: _Life, now: float, away: bool) -> None:
        """Look whether a replica lives."""
        if away:
            one.heard_s = now
        if one.connection is None:
            if how := one.ended():
                self._ended(one, how, now)
            elif now - one.began_s > CONNECT_S:
                self._ended(one, f"it did not begin within {CONNECT_S:g} s", now)
        elif one.ready is not None and one.link is not None:
            silent_s = now - one.heard_s
            if silent_s > KILL_S:
                self._ended(one, f"it gave no sign of life for {silent_s:.0f} s", now)
            elif silent_s > SILENT_S and not one.lost:
                one.lost = True
                self.relay.lost(one.name, f"it has given no sign of life for {silent_s:.0f} s")
            else:
                one.link.tick(now)

    def _ended(self, one: _Life, how: str, now: float) -> None:
        """End a replica, unless it has ended, and send its requests to others."""
        one.problem = one.problem or one.ended() or how
        one.kill()
        if self._beginning:
            return  # its owner gives up
        del self._lives[one.name]
        self.relay.lost(one.name, one.problem)
        self.relay.left(one.name)
        self._say(f"{one.name} is started again: {one.problem}")
        if one.ready is not None and now - one.began_s > SOUND_S:
            self._pauses_s.pop(one.name, None)
            self._again_s[one.name] = now
        else:
            self._pause(one.name, now)

    def _values_of(self, name: str) -> dict[str, Any]:
        """Return the parameters of one replica: each writes an event log of its own.

        The relay has the budgets of agents: requests that move must not count twice.
        """
        return (
            dict(self._values)
            | {"agent_requests_per_s": 0.0, "agent_worth_per_min": 0.0}
            | {key: own_file(self._values[key], name) for key in ("event_log", "journal")}
        )


def own_file(path: str, name: str) -> str:
    """Return the event log of one replica: `run.jsonl` becomes `run.replica-1.jsonl`."""
    if not path:
        return ""
    whole = Path(path)
    return str(whole.with_name(f"{whole.stem}.{name}{whole.suffix}"))
