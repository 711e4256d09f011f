"""Messages between clients and the process that serves them, and partitions between the two."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Protocol

from timely_llm.core.errors import RequestError
from timely_llm.core.request import ErrorCode, ExecutionReport, Rejected, Request, Result
from timely_llm.histories.schedule import LONGEST_WAY_S, Schedule

SILENCE_S = 2.4
"""A client counts a silent server as lost after this time, seconds: the lease and its grace."""
DISCOVERY_S = 0.5
"""Longest time in which a client finds a server, or a new dispatcher does, seconds."""


class Reached(Protocol):
    """A client, as the network sees it.

    Attributes:
        agent: its name.
        apart_s: end of a partition that it notices, seconds.
    """

    agent: str
    apart_s: float

    def server_lost(self) -> None:
        """Keep the open request: its server has been silent for too long."""
        ...

    def server_found(self) -> None:
        """Go on with a new server, or one that can be reached again."""
        ...


class ClientNetwork:
    """Carries messages of clients; those of an earlier life of the process do not arrive.

    Messages of a topic arrive in order, those of several topics do not. A partition that a client
    does not notice holds its messages, as reliable DDS repeats them; those of a longer one are
    lost.

    Args:
        schedule: what will happen.
        source: randomness of the network.
        life: returns the number of the process's starts; None: it is not there.
    """

    def __init__(
        self, schedule: Schedule, source: random.Random, life: Callable[[], int | None]
    ) -> None:
        self._schedule = schedule
        self._source = source
        self._life = life
        self._arrives_s: dict[tuple[str, str], float] = {}
        self._apart_s: dict[str, float] = {}  # ends of partitions, by client
        self._loses: dict[str, bool] = {}
        self._digest = sha256()

    @property
    def digest(self) -> str:
        """Hash of all that was noted."""
        return self._digest.hexdigest()

    def note(self, *words: object) -> None:
        """Note what clients get."""
        self._digest.update(f"{self._schedule.now!r} {words!r}\n".encode())

    def part(self, client: Reached, seconds: float) -> None:
        """Part a client from the process, for some seconds."""
        now, agent = self._schedule.now, client.agent
        still = now < self._apart_s.get(agent, 0.0)
        end_s = self._apart_s[agent] = max(self._apart_s.get(agent, 0.0), now + seconds)
        self._loses[agent] = (still and self._loses[agent]) or seconds > SILENCE_S
        if self._loses[agent]:
            client.apart_s = end_s
            self._schedule.at(now + SILENCE_S, client.server_lost)
            self._schedule.at(end_s + self._discovery_s(), client.server_found)

    def gone(self, clients: Iterable[Reached], is_back: Callable[[], bool]) -> None:
        """Let clients notice that the process is gone.

        Args:
            clients: all of them.
            is_back: returns whether there is a new one; then no client notices its silence.
        """

        def notice() -> None:
            if not is_back():
                for client in clients:
                    client.server_lost()

        self._schedule.at(self._schedule.now + SILENCE_S, notice)

    def back(self, clients: Iterable[Reached]) -> None:
        """Let clients find a new process."""
        for client in clients:
            self._schedule.at(self._schedule.now + self._discovery_s(), client.server_found)

    def _discovery_s(self) -> float:
        return self._source.uniform(0.0, DISCOVERY_S)

    def send(
        self, topic: str, agent: str, arrive: Callable[[], None], *, late_s: float = 0.0,
        sent_s: float = 0.0,
    ) -> None:  # fmt: skip
        """Let a message of a client, or for it, arrive.

        Args:
            topic: its topic.
            agent: the client.
            arrive: called when it arrives.
            late_s: seconds that it takes longer.
            sent_s: when it is sent, if that is not now, seconds.
        """
        life, way = self._life(), (topic, agent)
        now = max(self._schedule.now, sent_s)
        at_s = now + self._source.uniform(0.0005, LONGEST_WAY_S)
        self._arrives_s[way] = max(at_s, self._arrives_s.get(way, 0.0))

        def happen() -> None:
            if life is None or life != self._life():
                return
            apart_s = self._apart_s.get(agent, 0.0)
            if self._schedule.now < apart_s:
                if not self._loses[agent]:
                    self._schedule.at(apart_s, happen)
                return
            arrive()

        self._schedule.at(self._arrives_s[way] + late_s, happen)


class Serving(Protocol):
    """What serves clients: a server, or a dispatcher's relay."""

    def submit(self, request: Request) -> Any:
        """Take a request.

        Raises:
            RequestError: it is not taken.
        """
        ...

    def report(self, report: ExecutionReport) -> Any:
        """Take a report."""
        ...

    def cancel(self, request_id: str) -> Any:
        """End a request."""
        ...


class ClientsWay(ABC):
    """The messages of clients to the process that serves them."""

    @property
    @abstractmethod
    def serving(self) -> Serving:
        """What serves clients in the present life of the process."""

    @abstractmethod
    def _take(
        self, topic: str, agent: str, arrive: Callable[[], None], late_s: float = 0.0
    ) -> None:
        """Let a message of a client arrive at this life of the process."""

    @abstractmethod
    def tell_result(self, result: Result) -> None:
        """Send a result to its client."""

    def ask(self, request: Request) -> None:
        """Let a request arrive."""

        def arrive() -> None:
            try:
                self.serving.submit(request)
            except RequestError as error:
                code = error.code if isinstance(error, Rejected) else ErrorCode.INVALID_REQUEST
                self.tell_result(request.refused(code, str(error)))

        self._take("requests", request.agent, arrive)

    def report(self, report: ExecutionReport, late_s: float = 0.0) -> None:
        """Let a report arrive, some seconds late."""
        self._take("reports", report.agent, lambda: self.serving.report(report), late_s)

    def cancel(self, request: Request, arrives: Callable[[], None]) -> None:
        """Let a client's cancel arrive; `arrives` is called just before."""

        def arrive() -> None:
            arrives()
            self.serving.cancel(request.request_id)

        self._take("requests", request.agent, arrive)
