"""The timeline of a run: when requests waited, and when their texts were generated and executed.

`Run` gives the spans of one request in which its robot waits or executes segments. The events of
steps give the spans of its generation (Ling et al. 2024, Figure 6
shows both for two robots). An answer is waited for until its first token; then its listener
consumes the words at a steady speed, and waits again where there is none left.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from timely_llm.core.events.history import History
from timely_llm.core.events.request_history import PlanHistory, RequestHistory, StreamHistory
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.slo import Listener
from timely_llm.experiments.results.document import (
    Decision,
    Span,
    SpanKind,
    StepStages,
    TimelineDocument,
    TimelineStep,
)
from timely_llm.experiments.results.talks import is_real_time
from timely_llm.experiments.virtual.outcome import ConversationOutcome, JobOutcome, Run


@dataclass(frozen=True)
class RequestSpan:
    """A span on the clock of the run."""

    kind: SpanKind
    start_s: float
    end_s: float
    label: str = ""


Window = tuple[float, float]
"""Start and end, seconds since the run's first request."""

_DIGITS = 6  # microseconds: more would only make documents large


def timeline(
    name: str, run: Run, events: Iterable[RunEvent], window: Window | None = None
) -> TimelineDocument:
    """Return the spans of all requests, and the requests of each step.

    Times are seconds since the first request of the run. Neighbouring steps of one request are one
    span. Requests, spans and steps outside of the window are left out, and spans are cut at its
    edges, so that the picture of a window is complete.

    Args:
        name: what it shows.
        run: what robots and people got.
        events: of the loop in this run, on the clock of the run.
        window: the part to keep; everything by default.
    """
    history = History()
    for event in events:
        history.add(event)
    origin_s = _origin_s(run)
    start_s, end_s = window or (0.0, float("inf"))
    kept: list[_Subject] = []
    spans: list[Span] = []
    for subject in _subjects(run, history):
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
        TimelineStep(
            start_s=round(step.start_s - origin_s, _DIGITS),
            duration_s=round(step.end_s - step.start_s, _DIGITS),
            requests=tuple(index[one] for one in step.ids if one in index),
            stages=StepStages(**step.stages._asdict()) if step.stages is not None else None,
        )
        for step in history.steps
        if step.end_s > start_s + origin_s and step.start_s < end_s + origin_s
    )
    return TimelineDocument(
        name=name,
        requests=tuple(index),
        urgent=tuple(subject.urgent for subject in kept),
        spans=tuple(spans),
        steps=steps,
        decisions=tuple(_decisions(history, index, origin_s, (start_s, end_s))),
    )


def _decisions(
    history: History, index: Mapping[str, int], origin_s: float, window: Window
) -> Iterator[Decision]:
    """Yield the decisions about requests that reach into a window."""
    start_s, end_s = window
    for key, spans in history.decisions.by_request.items():
        for span in spans:
            begin_s, until_s = span.start_s - origin_s, span.end_s - origin_s
            if key in index and until_s > start_s and begin_s < end_s:
                yield Decision(
                    request=index[key],
                    cause=span.cause.name.lower(),
                    start_s=round(begin_s, _DIGITS),
                    end_s=round(until_s, _DIGITS),
                    plans=span.plans,
                    least=span.least,
                    most=span.most,
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
    pieces: Iterable[RequestSpan]


def _subjects(run: Run, history: History) -> Iterator[_Subject]:
    """Yield requests of robots, then those of people."""
    for one in run.outcomes:
        pieces = _pieces(one, history.plan(one.work.id))
        yield _Subject(one.work.id, one.work.agent, one.job.urgent, pieces)
    for talk in run.conversations:
        asked = talk.conversation
        known = history.request(asked.id) or RequestHistory(asked.id)
        yield _Subject(asked.id, asked.agent, is_real_time(talk), _talk_pieces(talk, known))


def _generating(known: RequestHistory) -> Iterator[RequestSpan]:
    """Yield the unbroken runs of steps of a request."""
    for part in known.slices:
        label = f"{part.steps} steps" if part.steps > 1 else "1 step"
        yield RequestSpan("generating", part.start_s, part.end_s, label)


def _talk_pieces(talk: ConversationOutcome, known: RequestHistory) -> Iterator[RequestSpan]:
    """Yield what went on with an answer; a real-time task has no listener."""
    asked = talk.conversation
    yield from _generating(known)
    if talk.times_s and isinstance(known, StreamHistory) and not is_real_time(talk):
        yield RequestSpan("waiting", asked.arrival_s, talk.times_s[0])
        yield from _listening(talk, known)
        return
    end_s = asked.arrival_s if math.isnan(known.end_s) else known.end_s
    yield RequestSpan("waiting", asked.arrival_s, talk.times_s[-1] if talk.finished else end_s)


def _listening(talk: ConversationOutcome, known: StreamHistory) -> Iterator[RequestSpan]:
    """Yield when a listener had words, and when none was left."""
    listener = Listener(known.words_per_s)
    start_s, label = talk.times_s[0], f"{len(talk.times_s)} tokens"
    for chunk, time_s in zip(known.chunks, talk.times_s, strict=True):
        before_s = listener.stalled_s
        listener.receive(chunk.text, time_s)
        if (stalled_s := listener.stalled_s - before_s) > 0.0:
            yield RequestSpan("listening", start_s, time_s - stalled_s, label)
            yield RequestSpan("waiting", time_s - stalled_s, time_s, "no words left")
            start_s = time_s
    last_s = talk.times_s[-1]
    yield RequestSpan("listening", start_s, last_s + max(listener.credit_s(last_s), 0.0), label)


def _pieces(outcome: JobOutcome, known: PlanHistory) -> Iterator[RequestSpan]:
    """Yield what went on with a plan."""
    yield from _waiting(outcome, known.end_s)
    yield from _generating(known)
    for index, segment in enumerate(outcome.segments):
        yield RequestSpan(
            "executing", segment.start_s, segment.end_s, _label(outcome, index, known)
        )


def _waiting(outcome: JobOutcome, end_s: float) -> Iterator[RequestSpan]:
    """Yield the times in which its robot had nothing to do, also those before it was given up."""
    busy = [(segment.start_s, segment.end_s) for segment in outcome.segments]
    arrival_s = outcome.work.arrival_s
    if not outcome.finished and not math.isnan(end_s):
        busy.append((end_s, end_s))
    for (_, free_s), (start_s, _) in pairwise([(arrival_s, arrival_s), *busy]):
        yield RequestSpan("waiting", free_s, start_s)


def _label(outcome: JobOutcome, index: int, known: PlanHistory) -> str:
    """Return the skill that the trace names, as its times are dealt out, else the text."""
    skills = outcome.job.skill_times[: max(len(outcome.work.parts) - 1, 1)]
    if index < len(skills):
        return skills[index].skill
    epoch, _ = known.newest
    return known.texts.get((epoch, index), "").strip()


def _cut(pieces: Iterable[RequestSpan], start_s: float, end_s: float) -> Iterator[RequestSpan]:
    """Yield the parts of pieces inside of a window that last at all in a document."""
    for piece in pieces:
        first_s, last_s = max(piece.start_s, start_s), min(piece.end_s, end_s)
        if round(first_s, _DIGITS) < round(last_s, _DIGITS):
            yield RequestSpan(piece.kind, first_s, last_s, piece.label)


def _arrivals_s(run: Run) -> list[float]:
    robots = [outcome.work.arrival_s for outcome in run.outcomes]
    return robots + [talk.conversation.arrival_s for talk in run.conversations]


def _origin_s(run: Run) -> float:
    return min(_arrivals_s(run), default=0.0)
