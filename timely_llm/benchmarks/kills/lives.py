"""What the processes of a run have written, and the lives of the one that clients ask."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from timely_llm.benchmarks.kills.schedule import FACES, SERVER
from timely_llm.core.events.probe_events import AcceptedEvent, KillEvent
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import AskEvent, EndEvent, ReadyEvent, ReceiveEvent, StartEvent

Events = Sequence[RunEvent]


@dataclass(frozen=True)
class Fault:
    """Something that must not happen.

    Attributes:
        check: which rule is broken.
        evidence: what shows it.
    """

    check: str
    evidence: str


@dataclass(frozen=True)
class Logs:
    """What the processes of a run have written.

    Attributes:
        kills: what was done to processes.
        listener: what the dispatcher published, and what was served at the end.
        robots, people: what clients saw and did.
        servers: what servers did, by the name of a life.
        said: lines that processes printed, by the name of a life.
    """

    kills: Events
    listener: Events
    robots: Events
    people: Events
    servers: Mapping[str, Events]
    said: Mapping[str, Sequence[str]]


class Lives:
    """The lives of the process that clients ask, and when each ended.

    Attributes:
        journal: it is a server with a recovery journal; else it is a dispatcher.
        harmed_s: when it was killed or stopped.
    """

    def __init__(self, kills: Events) -> None:
        mine = [e for e in kills if isinstance(e, KillEvent) and e.process in FACES]
        self.journal = any(e.process == SERVER for e in mine)
        self._begun_s = [e.t for e in mine if e.kind == "started"]
        self.harmed_s = [e.t for e in mine if e.kind in ("killed", "stopped", "died")]
        self._ended_s = [e.t for e in mine if e.kind in ("killed", "died")]

    def at(self, t: float) -> int:
        """Return the number of the life that published what came at a time; the first is 0."""
        return max(bisect.bisect_right(self._begun_s, t) - 1, 0)

    def begun_s(self, life: int) -> float:
        """Return when a life began."""
        return self._begun_s[life]

    def ended(self, life: int) -> bool:
        """Return whether a life ended during the run."""
        return life < len(self._ended_s)

    def end_s(self, life: int) -> float:
        """Return when a life ended; infinite: it has not."""
        return self._ended_s[life] if self.ended(life) else float("inf")

    def since_harm_s(self, t: float) -> float:
        """Return the seconds since the process was last killed or stopped."""
        before = bisect.bisect_right(self.harmed_s, t)
        return t - self.harmed_s[before - 1] if before else float("inf")


def of_kind(events: Events, kind: type[Any]) -> Iterator[Any]:
    """Yield the events of a class."""
    return (event for event in events if isinstance(event, kind))


def name_of(key: str, epoch: int, index: int) -> str:
    """Return a segment in words."""
    return f"segment {index} of epoch {epoch} of {key}"


REPORTED_S = 1.0
"""Longest time from the beginning of a segment to its record in the journal, seconds."""


def unended(logs: Logs, lives: Lives) -> Iterator[Fault]:
    """Each request that a server accepted ends, at a client or in a server's event log."""
    if not lives.journal:
        return
    logged = (event for events in logs.servers.values() for event in of_kind(events, EndEvent))
    ended = {event.id for event in (*of_kind(logs.listener, EndEvent), *logged)}
    for key in sorted({event.id for event in of_kind(logs.listener, AcceptedEvent)} - ended):
        yield Fault("each accepted request ends", f"{key} has no end in any life")


def unneeded(logs: Logs, lives: Lives) -> Iterator[Fault]:
    """No segment comes again after its robot has reported that it began."""
    if not lives.journal:
        return
    begun_s = {(e.id, e.epoch, e.index): e.t for e in of_kind(logs.robots, StartEvent)}
    first_s: dict[tuple[str, int, int], float] = {}
    for event in of_kind(logs.listener, ReceiveEvent):
        place = event.id, event.epoch, event.index
        came_s = first_s.setdefault(place, event.t)
        life = lives.at(came_s)
        at_s = begun_s.get(place, float("inf"))
        # A robot that begins after the death of the server that sent the segment cannot report it.
        known = lives.at(at_s) == life and at_s + REPORTED_S < lives.end_s(life)
        if lives.at(event.t) > life and known:
            evidence = (
                f"{name_of(*place)}, begun {lives.end_s(life) - at_s:.1f} s before the server was"
                f" killed, came again {event.t - lives.end_s(life):.1f} s after it"
            )
            yield Fault("no segment comes again that was reported begun", evidence)


def pauses(logs: Logs, lives: Lives) -> Iterator[tuple[str, float]]:
    """Yield the start of the process, and the pauses of plans beside it, in seconds.

    The pause of a plan is the time from the readiness of a later life than that in which it was
    asked for to the first segment that its robot receives there, known ones included.
    """
    if not lives.journal:
        return
    ready_s = {
        lives.at(event.t): event.t
        for events in logs.servers.values()
        for event in of_kind(events, ReadyEvent)
    }
    starts = [at_s - lives.begun_s(life) for life, at_s in ready_s.items()]
    born = {event.id: lives.at(event.t) for event in of_kind(logs.robots, AskEvent)}
    first_s: dict[tuple[str, int], float] = {}
    for event in of_kind(logs.robots, ReceiveEvent):
        life = lives.at(event.t)
        if born[event.id] < life:
            first_s.setdefault((event.id, life), event.t)
    waits = [max(at_s - ready_s[life], 0.0) for (_, life), at_s in first_s.items()]
    yield "start of the process, median, s", round(median(starts), 2)
    yield "plans that went on in a later life", len(waits)
    yield "their pause beside the start, median, s", round(median(waits or [0.0]), 2)
    yield "their longest pause, s", round(max(waits, default=0.0), 2)
