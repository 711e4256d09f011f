"""What the logs of a run say: what became of its requests, and what must not have happened."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from timely_llm.benchmarks.kills.lives import (
    Events,
    Fault,
    Lives,
    Logs,
    name_of,
    of_kind,
    pauses,
    unended,
    unneeded,
)
from timely_llm.benchmarks.kills.schedule import DISPATCHER
from timely_llm.core.events.probe_events import (
    AcceptedEvent,
    KillEvent,
    ProbeFailedEvent,
    ServingEvent,
)
from timely_llm.core.events.schema import (
    AnsweredEvent,
    AskEvent,
    ChunkEvent,
    DoneEvent,
    EndEvent,
    FailEvent,
    HeardEvent,
    PlanRequestEvent,
    QuestionEvent,
    ReceiveEvent,
    SegmentEvent,
    StartEvent,
    StreamEvent,
)
from timely_llm.core.request import ErrorCode

SILENT_S = 90.0
"""Longest time in which nothing happens to an open request, seconds: time limits are shorter."""
KNOWN_S = 3.5
"""Longest time after the death of a dispatcher in which its clients know of it, seconds: 3 s, and
the time until it is logged. What is sent to a dead dispatcher has this time from then on.
`late_apart` excuses processes that waited for a processor."""
TAKEN_S = 8.0
"""Seconds in which a new dispatcher has found what servers have."""
DIED = re.compile(r"died or cannot be reached|has stopped|does not know th|no dispatcher knows")
"""Sentences of clients that have lost their dispatcher."""
UNREADABLE = re.compile(r"differs|cannot be read|does not begin|not a plan|expected")
"""Reasons of robots for failures that come of wrong segments."""
TROUBLE = re.compile(r"Traceback|Error: |\bfailed: |\[ERROR\].*failed|\[FATAL\]")
"""Lines of processes that show a fault of their code."""

BOUNDED = "requests end in bounded time"
KNOWN = "clients know soon that their dispatcher died"
TAKEN = "what servers have is taken over"
TIMED = frozenset({BOUNDED, KNOWN, TAKEN})
"""Rules about time: processes that wait for a processor break them too."""
UNCLAIMED = ErrorCode.CLIENT_SILENT.name.lower()
"""Code of a run for which no client speaks."""


def faults(logs: Logs) -> list[Fault]:
    """Return all that must not have happened."""
    lives = Lives(logs.kills)
    return [
        *_ends(logs.robots, AskEvent, DoneEvent),
        *_ends(logs.people, QuestionEvent, AnsweredEvent),
        *_silences(logs.robots, AskEvent, DoneEvent),
        *_silences(logs.people, QuestionEvent, AnsweredEvent),
        *_reasons([*logs.robots, *logs.people]),
        *_losses([*logs.robots, *logs.people], lives),
        *_executions(logs.robots),
        *_unreadable(logs.robots),
        *_segments(logs.listener, lives),
        *_tokens(logs.listener, lives),
        *_heard(logs.people),
        *_results(logs.listener, lives),
        *_takeovers(logs),
        *_served(logs.listener),
        *unended(logs, lives),
        *unneeded(logs, lives),
        *(
            Fault("a result has what was published", e.words)
            for e in of_kind(logs.listener, ProbeFailedEvent)
        ),
        *_processes(logs),
    ]


def late_apart(found: Sequence[Fault], starved: bool) -> tuple[Sequence[Fault], Sequence[Fault]]:
    """Return the faults, and what came late because processes waited for a processor.

    Args:
        found: all broken rules.
        starved: whether processes waited.
    """
    late = [one for one in found if starved and one.check in TIMED]
    return [one for one in found if one not in late], late


def _ends(events: Events, asked: type[Any], ended: type[Any]) -> Iterator[Fault]:
    """Each request of a client has one end."""
    ends = Counter(e.id for e in of_kind(events, ended))
    for event in of_kind(events, asked):
        if ends[event.id] != 1:
            yield Fault("each request ends once", f"{event.id} has {ends[event.id]} ends")


def _silences(events: Events, asked: type[Any], ended: type[Any]) -> Iterator[Fault]:
    """Something happens to an open request from time to time."""
    last_s: dict[str, float] = {}
    for event in events:
        key = getattr(event, "id", "")
        if isinstance(event, asked):
            last_s[key] = event.t
        elif key in last_s:
            if event.t - last_s[key] > SILENT_S:
                evidence = f"nothing happened to {key} for {event.t - last_s[key]:.0f} s"
                yield Fault(BOUNDED, evidence)
            last_s[key] = event.t
            if isinstance(event, ended):
                del last_s[key]


def _reasons(events: Events) -> Iterator[Fault]:
    """An error has a sentence."""
    for event in (*of_kind(events, DoneEvent), *of_kind(events, AnsweredEvent)):
        if event.error_code and not event.error_msg:
            evidence = f"{event.id} ended with {ErrorCode(event.error_code).name} and no sentence"
            yield Fault("an error says why", evidence)
        if event.outcome == "error" and not event.error_code:
            yield Fault("an error says why", f"{event.id} failed without a code")


def _losses(events: Events, lives: Lives) -> Iterator[Fault]:
    """A client loses its dispatcher soon after that dies, and at no other time.

    A client may send a request before it knows that its dispatcher died.
    """
    asked_s = {e.id: e.t for e in (*of_kind(events, AskEvent), *of_kind(events, QuestionEvent))}
    for event in (*of_kind(events, DoneEvent), *of_kind(events, AnsweredEvent)):
        if not is_lost(event):
            continue
        since_s = lives.since_harm_s(event.t)
        sent_s = since_s - (event.t - asked_s[event.id])  # after the death, seconds
        late_s = sent_s if 0.0 < sent_s <= KNOWN_S else 0.0
        if not since_s <= KNOWN_S + late_s + _away_s(event):
            yield Fault(KNOWN, f"{event.id}, {since_s:.1f} s later: {event.error_msg}")


def _away_s(event: Any) -> float:
    """Return the further seconds in which a robot hopes that its request is taken over."""
    return 30.0 if "no dispatcher knows" in event.error_msg else 0.0


def is_lost(event: Any) -> bool:
    """Return whether a request ended because its client lost the dispatcher."""
    return event.error_code == ErrorCode.SHUTTING_DOWN and bool(DIED.search(event.error_msg))


def _executions(events: Events) -> Iterator[Fault]:
    """No segment is executed twice, and none of an older plan after a newer one."""
    begun = Counter((e.id, e.epoch, e.index) for e in of_kind(events, StartEvent))
    for place, times in begun.items():
        if times > 1:
            yield Fault(
                "no segment is executed twice", f"{name_of(*place)} was begun {times} times"
            )
    newest: dict[str, int] = {}
    for event in of_kind(events, StartEvent):
        if event.epoch < newest.get(event.id, 0):
            evidence = f"{name_of(event.id, event.epoch, event.index)} after {newest[event.id]}"
            yield Fault("no plan is executed after a newer one", evidence)
        newest[event.id] = max(event.epoch, newest.get(event.id, 0))


def _unreadable(events: Events) -> Iterator[Fault]:
    """Segments can be read, and the whole plan is that of the segments."""
    for event in of_kind(events, FailEvent):
        if UNREADABLE.search(event.reason):
            where = name_of(event.id, event.epoch, event.index)
            yield Fault("robots can read their segments", f"{where}: {event.reason}")


def _segments(events: Events, lives: Lives) -> Iterator[Fault]:
    """The segments of an epoch are published in order, without gaps, and no older epoch's later.

    What a new dispatcher publishes first may be in the midst of an epoch: it has taken it over, or
    the probe did not hear it yet. What a server with a journal publishes first may be known.
    """
    last: dict[str, tuple[int, int, int, bool]] = {}
    for event in of_kind(events, ReceiveEvent):
        life, where = lives.at(event.t), name_of(event.id, event.epoch, event.index)
        life_before, epoch, index, final = last.get(event.id, (-1, -1, -1, False))
        last[event.id] = life, max(event.epoch, epoch), event.index, event.final
        if event.epoch < epoch:
            yield Fault("no older epoch comes after a newer one", f"{where} after epoch {epoch}")
            continue
        expected = index + 1 if event.epoch == epoch else 0
        again = event.epoch == epoch and event.index == index and event.final and not final
        if event.index == expected or again:
            continue
        if life != life_before and (lives.journal or event.index > expected):
            continue
        yield Fault("segments come in order", f"{where}, expected {expected} (life {life})")


def _tokens(events: Events, lives: Lives) -> Iterator[Fault]:
    """The tokens of an answer are published in order and without gaps."""
    last: dict[str, tuple[int, int]] = {}
    for event in of_kind(events, HeardEvent):
        life = lives.at(event.t)
        life_before, index = last.get(event.id, (-1, -1))
        last[event.id] = life, event.index
        if event.index == index + 1 or (life != life_before and event.index > index):
            continue
        evidence = f"token {event.index} of {event.id}, expected {index + 1} (life {life})"
        yield Fault("tokens come in order", evidence)


def _heard(events: Events) -> Iterator[Fault]:
    """People get tokens in order and without gaps; the result may have the rest at once."""
    last: dict[str, int] = {}
    gaps: dict[str, str] = {}
    for event in events:
        if isinstance(event, HeardEvent):
            if event.id in gaps:
                yield Fault("people get tokens in order", gaps.pop(event.id))
            expected = last.get(event.id, -1) + 1
            last[event.id] = event.index
            if event.index != expected:
                gaps[event.id] = f"token {event.index} of {event.id}, expected {expected}"
        elif isinstance(event, AnsweredEvent):
            gaps.pop(event.id, None)


def _results(events: Events, lives: Lives) -> Iterator[Fault]:
    """Each accepted request has one result of its dispatcher, unless that was killed.

    A server that was frozen meanwhile may still serve a request that has ended. A new dispatcher
    cannot know that it has: it goes on with the request, and no client speaks for it.
    """
    accepted: dict[tuple[str, int], float] = {}
    ends: defaultdict[str, list[EndEvent]] = defaultdict(list)
    for event in events:
        if isinstance(event, AcceptedEvent):
            accepted[event.id, lives.at(event.t)] = event.t
        elif isinstance(event, EndEvent):
            ends[event.id].append(event)
    for key, life in accepted:
        mine = [one for one in ends[key] if lives.at(one.t) == life]
        if not mine and not lives.ended(life):
            yield Fault("each accepted request has a result", f"{key} has none (life {life})")
    known = {key for key, _ in accepted}
    for key, results in ends.items():
        ended = [(one.code, lives.at(one.t)) for one in results]
        again = [one for one in ended[1:] if one[0] != UNCLAIMED or one[1] == ended[0][1]]
        if again and key in known:
            codes = ", ".join(f"{code} (life {life})" for code, life in ended)
            yield Fault("each request has one result", f"{key} has {codes}")


def _takeovers(logs: Logs) -> Iterator[Fault]:
    """A request is lost with its dispatcher only if no server has it or its result."""
    gone_s = _gone_s(logs.kills)
    stopped_s = [(e.process, e.t) for e in of_kind(logs.kills, KillEvent) if e.kind == "stopped"]
    had: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for life, events in logs.servers.items():
        ended = {event.id for event in of_kind(events, EndEvent) if event.code == "canceled"}
        for event in of_kind(events, PlanRequestEvent):
            if event.id not in ended:  # else its robot executes it, and no server has it
                had[event.id].append((life, event.t))
    for lost in of_kind(logs.robots, DoneEvent):
        if not is_lost(lost) or not _away_s(lost):
            continue
        for life, begun_s in had[lost.id]:
            name, begins_s = life.partition("-")[0], lost.t - TAKEN_S
            stopped = any(one == name and begins_s < t < lost.t for one, t in stopped_s)
            if begun_s < begins_s and gone_s.get(life, lost.t) >= lost.t and not stopped:
                yield Fault(TAKEN, f"{lost.id}, which {life} had")


def _gone_s(kills: Events) -> dict[str, float]:
    """Return when each life of a process ended."""
    lives: Counter[str] = Counter()
    gone: dict[str, float] = {}
    for event in of_kind(kills, KillEvent):
        if event.kind == "started":
            lives[event.process] += 1
        elif event.kind in ("killed", "died"):
            gone[f"{event.process}-{lives[event.process]}"] = event.t
    return gone


def _served(events: Events) -> Iterator[Fault]:
    """At the end, nothing is served."""
    for event in of_kind(events, ServingEvent):
        if event.ids:
            yield Fault("nothing is served at the end", f"{event.server}: {', '.join(event.ids)}")


def _processes(logs: Logs) -> Iterator[Fault]:
    """No process dies by itself or logs a fault."""
    for event in of_kind(logs.kills, KillEvent):
        if event.kind == "died":
            yield Fault("no process dies by itself", event.words)
    for name, lines in logs.said.items():
        troubles = [line.strip() for line in lines if TROUBLE.search(line)]
        if troubles:
            words = f"{name}, {len(troubles)} lines, the last one: {troubles[-1][:300]}"
            yield Fault("no process logs a fault", words)


# What became of the requests.


def table(logs: Logs) -> list[dict[str, Any]]:
    """Return rows of what happened and how often."""
    rows = [*_kills(logs.kills), *_outcomes("plan", logs.robots, DoneEvent, logs)]
    rows += _outcomes("answer", logs.people, AnsweredEvent, logs)
    lives = Lives(logs.kills)
    accepted = {e.id: lives.at(e.t) for e in of_kind(logs.listener, AcceptedEvent)}
    ends = [(e.id, lives.at(e.t)) for e in of_kind(logs.listener, EndEvent)]
    taken = {key for key, life in ends if key in accepted and life > accepted[key]}
    lost = [e for e in (*logs.robots, *logs.people)
            if isinstance(e, (DoneEvent, AnsweredEvent)) and is_lost(e)]  # fmt: skip
    fast = [lives.since_harm_s(e.t) for e in lost if not _away_s(e)]
    begun = [e for e in logs.robots if isinstance(e, StartEvent)]
    turns = [e for e in logs.people if isinstance(e, QuestionEvent) and e.turn]
    numbers: list[tuple[str, Any]] = [
        ("requests that went on in the next life and ended", len(taken)),
        ("longest time from a death to its clients' knowledge, s",
         round(max(fast, default=0.0), 1)),
        *pauses(logs, lives),
        ("segments executed", len(begun)),
        ("epochs executed beyond the first", len({(e.id, e.epoch) for e in begun if e.epoch})),
        ("tokens heard", sum(isinstance(e, HeardEvent) for e in logs.people)),
        ("later turns of conversations", len(turns)),
    ]  # fmt: skip
    rows += [_row(what, number) for what, number in numbers]
    return rows + [_row(words, number) for words, number in codes(logs)]


def _row(what: str, number: Any) -> dict[str, Any]:
    return {"what": what, "number": number}


def _kills(kills: Events) -> list[dict[str, Any]]:
    harm = ("killed", "stopped", "deactivated", "died")
    counts = Counter(
        (e.process if e.process == DISPATCHER else "servers", e.kind)
        for e in of_kind(kills, KillEvent)
        if e.kind in harm
    )
    return [_row(f"{who} {kind}", number) for (who, kind), number in sorted(counts.items())]


def _outcomes(what: str, events: Events, ended: type[Any], logs: Logs) -> list[dict[str, Any]]:
    """Return what became of plans or answers, as rows."""
    asked, made = _livesof_kind(logs.servers)
    counts: Counter[str] = Counter()
    for event in of_kind(events, ended):
        counts[_outcome(event, asked[event.id], made[event.id])] += 1
    return [_row(f"{what}s {outcome}", number) for outcome, number in counts.most_common()]


def _outcome(event: Any, asked: set[str], made: set[str]) -> str:
    """Return in a few words what became of a request."""
    if is_lost(event):
        return "lost with the process that was asked"
    if event.outcome in ("finished", "answered"):
        if len(made) > 1:
            return "continued at another server or in its next life"
        return "served whole" if len(asked) < 2 else "served whole, after another server had it"
    if event.outcome == "failed":
        return "that failed after their request had ended"
    return f"ended with {ErrorCode(event.error_code).name}" if event.error_code else event.outcome


def _livesof_kind(
    servers: Mapping[str, Events],
) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
    """Return by request the lives of servers that had it, and those that made a part of it."""
    asked: defaultdict[str, set[str]] = defaultdict(set)
    made: defaultdict[str, set[str]] = defaultdict(set)
    for life, events in servers.items():
        for event in events:
            if isinstance(event, (PlanRequestEvent, StreamEvent)):
                asked[event.id].add(life)
            elif isinstance(event, (SegmentEvent, ChunkEvent)):
                made[event.id].add(life)
    return asked, made


def codes(logs: Logs) -> Sequence[tuple[str, int]]:
    """Return the sentences with which requests were refused or ended, and how often each came."""
    counts: Counter[str] = Counter()
    for event in (*of_kind(logs.robots, DoneEvent), *of_kind(logs.people, AnsweredEvent)):
        if event.error_code and not is_lost(event) and event.outcome != "canceled":
            name = ErrorCode(event.error_code).name
            words = re.sub(r"'[^']*'|\d+(\.\d+)?", "*", event.error_msg)
            counts[f"{name}: {words}"] += 1
    return counts.most_common()
