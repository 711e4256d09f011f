"""From what robots got and what the journal says to a timeline: who waited, generated, executed.

Spans of one request follow from `Run`: it waits while its robot has nothing to do, and executes its
segments. When the model worked on it follows from the journal's steps (paper 001, Figure 6 shows
both for two robots).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from timely_llm.experiments.document import Span, SpanKind, Step, Timeline
from timely_llm.experiments.outcome import Outcome, Run

Window = tuple[float, float]
"""Start and end, seconds since the run's first request."""

Events = Iterable[Mapping[str, Any]]
"""Of a journal: the kinds "step", "segment" and "end" are read."""

REST_S = 0.05
"""An engine that makes no step for this long rests: what it does then is a new span."""

_DIGITS = 6  # microseconds: more would only make documents large


def timeline(name: str, run: Run, events: Events, window: Window | None = None) -> Timeline:
    """Return what happened to every request, and who was in which step.

    Times are seconds since the first request of the run. Neighbouring steps of one request are one
    span. Requests, spans and steps outside of the window are left out, and spans are cut at its
    edges, so that the picture of a window is complete.

    Args:
        name: what it shows.
        run: what robots got.
        events: what the loop told its journal in this run, on the clock of the run.
        window: the part to keep; everything by default.
    """
    told = _Told.of(events)
    origin_s = _origin_s(run)
    start_s, end_s = window or (0.0, float("inf"))
    kept: list[Outcome] = []
    spans: list[Span] = []
    for outcome in run.outcomes:
        pieces = _cut(_pieces(outcome, told), start_s + origin_s, end_s + origin_s)
        mine = [
            Span(
                agent=outcome.work.agent,
                request=len(kept),
                kind=piece.kind,
                start_s=round(piece.start_s - origin_s, _DIGITS),
                end_s=round(piece.end_s - origin_s, _DIGITS),
                label=piece.label,
            )
            for piece in pieces
        ]
        if mine:
            kept.append(outcome)
            spans += mine
    index = {outcome.work.id: number for number, outcome in enumerate(kept)}
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
        urgent=tuple(outcome.job.urgent for outcome in kept),
        spans=tuple(spans),
        steps=steps,
    )


def busiest_window(run: Run, length_s: float) -> Window:
    """Return the window in which most requests arrive; the earliest of several.

    It depends on the trace alone, so that timelines of several policies show the same requests.

    Args:
        run: what robots got.
        length_s: of the window, > 0.
    """
    arrivals_s = sorted(outcome.work.arrival_s for outcome in run.outcomes)
    counts = [
        bisect_right(arrivals_s, at_s + length_s) - place for place, at_s in enumerate(arrivals_s)
    ]
    if not counts:
        return 0.0, length_s
    start_s = arrivals_s[counts.index(max(counts))] - arrivals_s[0]
    return start_s, start_s + length_s


@dataclass(frozen=True)
class _Piece:
    """A span on the clock of the run."""

    kind: SpanKind
    start_s: float
    end_s: float
    label: str = ""


@dataclass(frozen=True)
class _Pass:
    """A step on the clock of the run, and who took part."""

    start_s: float
    end_s: float
    ids: tuple[str, ...]


@dataclass(frozen=True)
class _Told:
    """What the journal says: steps in order, when requests ended, texts by request and index."""

    steps: list[_Pass]
    generating: Mapping[str, list[_Piece]]
    ends_s: Mapping[str, float]
    texts: Mapping[tuple[str, int], str]

    @classmethod
    def of(cls, events: Events) -> _Told:
        steps: list[_Pass] = []
        ends_s: dict[str, float] = {}
        texts: dict[tuple[str, int], str] = {}
        for event in events:
            match event["event"]:
                case "step":
                    end_s = event["t"] + event["s"]
                    steps.append(_Pass(event["t"], end_s, tuple(event["ids"])))
                case "segment":
                    texts[event["id"], event["index"]] = event["text"].strip()
                case "end":
                    ends_s[event["id"]] = event["t"]
        return cls(steps, _generating(steps), ends_s, texts)


def _generating(steps: Iterable[_Pass]) -> Mapping[str, list[_Piece]]:
    """Return the unbroken runs of steps of each request."""
    runs: dict[str, list[list[_Pass]]] = defaultdict(list)
    before: _Pass | None = None
    for step in steps:
        goes_on = before is not None and step.start_s - before.end_s < REST_S
        for one in step.ids:
            if goes_on and runs[one] and runs[one][-1][-1] is before:
                runs[one][-1].append(step)
            else:
                runs[one].append([step])
        before = step
    return {
        one: [_Piece("generating", part[0].start_s, part[-1].end_s, _steps(part)) for part in parts]
        for one, parts in runs.items()
    }


def _steps(part: list[_Pass]) -> str:
    return f"{len(part)} steps" if len(part) > 1 else "1 step"


def _pieces(outcome: Outcome, told: _Told) -> Iterator[_Piece]:
    """Yield what went on with a request."""
    yield from _waiting(outcome, told.ends_s)
    yield from told.generating.get(outcome.work.id, ())
    for index, segment in enumerate(outcome.segments):
        yield _Piece("executing", segment.start_s, segment.end_s, _label(outcome, index, told))


def _waiting(outcome: Outcome, ends_s: Mapping[str, float]) -> Iterator[_Piece]:
    """Yield the times in which its robot had nothing to do, also those before it was given up."""
    busy = [(segment.start_s, segment.end_s) for segment in outcome.segments]
    arrival_s = outcome.work.arrival_s
    if not outcome.finished and outcome.work.id in ends_s:
        busy.append((ends_s[outcome.work.id], ends_s[outcome.work.id]))
    for (_, free_s), (start_s, _) in pairwise([(arrival_s, arrival_s), *busy]):
        yield _Piece("waiting", free_s, start_s)


def _label(outcome: Outcome, index: int, told: _Told) -> str:
    """Return the skill that the trace names, as its times are dealt out, else the text."""
    skills = outcome.job.skill_times[: max(len(outcome.work.parts) - 1, 1)]
    if index < len(skills):
        return skills[index].skill
    return told.texts.get((outcome.work.id, index), "")


def _cut(pieces: Iterable[_Piece], start_s: float, end_s: float) -> Iterator[_Piece]:
    """Yield the parts of pieces inside of a window that last at all."""
    for piece in pieces:
        first_s, last_s = max(piece.start_s, start_s), min(piece.end_s, end_s)
        if first_s < last_s:
            yield _Piece(piece.kind, first_s, last_s, piece.label)


def _origin_s(run: Run) -> float:
    return min((outcome.work.arrival_s for outcome in run.outcomes), default=0.0)
