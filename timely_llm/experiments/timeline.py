"""From what robots and people got to a timeline: who waited, generated, executed, listened.

Spans of one request follow from `Run`: it waits while its robot has nothing to do, and executes its
segments. When the model worked on it follows from the journal's steps (paper 001, Figure 6 shows
both for two robots). An answer is waited for until its first token; then its listener consumes the
words at a steady speed, and waits again where there is none left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from timely_llm.core.listener import READING_WORDS_PER_S, Listener
from timely_llm.experiments.document import Span, Step, Timeline
from timely_llm.experiments.outcome import Outcome, Run, Talk
from timely_llm.experiments.talks import is_real_time
from timely_llm.experiments.told import Events, Piece, Told

Window = tuple[float, float]
"""Start and end, seconds since the run's first request."""

_DIGITS = 6  # microseconds: more would only make documents large


def timeline(name: str, run: Run, events: Events, window: Window | None = None) -> Timeline:
    """Return what happened to every request, and who was in which step.

    Times are seconds since the first request of the run. Neighbouring steps of one request are one
    span. Requests, spans and steps outside of the window are left out, and spans are cut at its
    edges, so that the picture of a window is complete.

    Args:
        name: what it shows.
        run: what robots and people got.
        events: what the loop told its journal in this run, on the clock of the run.
        window: the part to keep; everything by default.
    """
    told = Told.of(events)
    origin_s = _origin_s(run)
    start_s, end_s = window or (0.0, float("inf"))
    kept: list[_Subject] = []
    spans: list[Span] = []
    for subject in _subjects(run, told):
        pieces = _cut(subject.pieces, start_s + origin_s, end_s + origin_s)
        mine = [
            Span(
                agent=subject.agent,
                request=len(kept),
                kind=piece.kind,
                start_s=round(piece.start_s - origin_s, _DIGITS),
                end_s=round(piece.end_s - origin_s, _DIGITS),
                label=piece.label,
            )
            for piece in pieces
        ]
        if mine:
            kept.append(subject)
            spans += mine
    index = {subject.id: number for number, subject in enumerate(kept)}
    steps = tuple(
        Step(
            start_s=round(step.start_s - origin_s, _DIGITS),
            duration_s=round(step.end_s - step.start_s, _DIGITS),
            requests=tuple(index[one] for one in step.ids if one in index),
        )
        for step in told.steps
        if step.end_s > start_s + origin_s and step.start_s < end_s + origin_s
    )
    return Timeline(
        name=name,
        requests=tuple(index),
        urgent=tuple(subject.urgent for subject in kept),
        spans=tuple(spans),
        steps=steps,
    )


def busiest_window(run: Run, length_s: float) -> Window:
    """Return the window in which most requests arrive; the earliest of several.

    It depends on the trace alone, so that timelines of several policies show the same requests.

    Args:
        run: what robots and people got.
        length_s: of the window, > 0.
    """
    arrivals_s = sorted(_arrivals_s(run))
    counts = [
        bisect_right(arrivals_s, at_s + length_s) - place for place, at_s in enumerate(arrivals_s)
    ]
    if not counts:
        return 0.0, length_s
    start_s = arrivals_s[counts.index(max(counts))] - arrivals_s[0]
    return start_s, start_s + length_s


@dataclass(frozen=True)
class _Subject:
    """A request, and what went on with it."""

    id: str
    agent: str
    urgent: bool
    pieces: Iterable[Piece]


def _subjects(run: Run, told: Told) -> Iterator[_Subject]:
    """Yield requests of robots, then those of people."""
    for one in run.outcomes:
        yield _Subject(one.work.id, one.work.agent, one.job.urgent, _pieces(one, told))
    for talk in run.talks:
        asked = talk.conversation
        yield _Subject(asked.id, asked.agent, is_real_time(talk), _talk_pieces(talk, told))


def _talk_pieces(talk: Talk, told: Told) -> Iterator[Piece]:
    """Yield what went on with an answer; nobody listens to that of a real-time task."""
    asked = talk.conversation
    yield from told.generating.get(asked.id, ())
    if talk.times_s and not is_real_time(talk):
        yield Piece("waiting", asked.arrival_s, talk.times_s[0])
        yield from _listening(talk, told)
        return
    end_s = told.ends_s.get(asked.id, asked.arrival_s)
    yield Piece("waiting", asked.arrival_s, talk.times_s[-1] if talk.finished else end_s)


def _listening(talk: Talk, told: Told) -> Iterator[Piece]:
    """Yield when a listener had words, and when none was left."""
    name = talk.conversation.id
    listener = Listener(told.words_per_s.get(name, READING_WORDS_PER_S))
    start_s, label = talk.times_s[0], f"{len(talk.times_s)} tokens"
    for index, time_s in enumerate(talk.times_s):
        before_s = listener.stalled_s
        listener.hear(told.texts.get((name, index), ""), time_s)
        if (stalled_s := listener.stalled_s - before_s) > 0.0:
            yield Piece("listening", start_s, time_s - stalled_s, label)
            yield Piece("waiting", time_s - stalled_s, time_s, "no words left")
            start_s = time_s
    last_s = talk.times_s[-1]
    yield Piece("listening", start_s, last_s + max(listener.credit_s(last_s), 0.0), label)


def _pieces(outcome: Outcome, told: Told) -> Iterator[Piece]:
    """Yield what went on with a plan."""
    yield from _waiting(outcome, told.ends_s)
    yield from told.generating.get(outcome.work.id, ())
    for index, segment in enumerate(outcome.segments):
        yield Piece("executing", segment.start_s, segment.end_s, _label(outcome, index, told))


def _waiting(outcome: Outcome, ends_s: Mapping[str, float]) -> Iterator[Piece]:
    """Yield the times in which its robot had nothing to do, also those before it was given up."""
    busy = [(segment.start_s, segment.end_s) for segment in outcome.segments]
    arrival_s = outcome.work.arrival_s
    if not outcome.finished and outcome.work.id in ends_s:
        busy.append((ends_s[outcome.work.id], ends_s[outcome.work.id]))
    for (_, free_s), (start_s, _) in pairwise([(arrival_s, arrival_s), *busy]):
        yield Piece("waiting", free_s, start_s)


def _label(outcome: Outcome, index: int, told: Told) -> str:
    """Return the skill that the trace names, as its times are dealt out, else the text."""
    skills = outcome.job.skill_times[: max(len(outcome.work.parts) - 1, 1)]
    if index < len(skills):
        return skills[index].skill
    return told.texts.get((outcome.work.id, index), "")


def _cut(pieces: Iterable[Piece], start_s: float, end_s: float) -> Iterator[Piece]:
    """Yield the parts of pieces inside of a window that last at all."""
    for piece in pieces:
        first_s, last_s = max(piece.start_s, start_s), min(piece.end_s, end_s)
        if first_s < last_s:
            yield Piece(piece.kind, first_s, last_s, piece.label)


def _arrivals_s(run: Run) -> list[float]:
    robots = [outcome.work.arrival_s for outcome in run.outcomes]
    return robots + [talk.conversation.arrival_s for talk in run.talks]


def _origin_s(run: Run) -> float:
    return min(_arrivals_s(run), default=0.0)
