"""A server with a recovery journal that is killed: what ends, what comes again, and the pause."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from timely_llm.benchmarks.kills.lives import Fault, Lives, Logs, name_of, of_kind
from timely_llm.core.events.probe_events import AcceptedEvent
from timely_llm.core.events.schema import AskEvent, EndEvent, ReadyEvent, ReceiveEvent, StartEvent

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
