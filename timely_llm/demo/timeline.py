"""From the history of a run to its timeline: what each robot and person asked, got and did."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from timely_llm.core.events.history import History
from timely_llm.core.events.request_history import (
    PlanHistory,
    RequestHistory,
    StreamHistory,
    TimeSpan,
)
from timely_llm.demo.help_rows import source_of
from timely_llm.report.palette import Tone
from timely_llm.report.timeline import (
    Bar,
    BarKind,
    EngineStep,
    Lane,
    Mark,
    MarkKind,
    Timeline,
    due_mark,
    natural,
    suspensions,
)

BURST_S = 10.0
SUCCESSOR_S = 0.1
"""A newer request of a robot that comes this soon after a cancelation is the reason for it."""


def timeline(history: History, title: str) -> Timeline:
    """Return the timeline of a run, in seconds since its first request; robots come first."""
    origin_s, end_s = history.origin_s, history.end_s
    asked_s: dict[str, list[float]] = defaultdict(list)
    for request in history.asked:
        asked_s[request.agent].append(request.asked_s)
    bars: dict[str, list[Bar]] = {agent: [] for agent in sorted(history.robots, key=natural)}
    bars |= {agent: [] for agent in sorted(history.people, key=natural)}
    marks: dict[str, list[Mark]] = {agent: [] for agent in bars}
    for request in history.asked:
        if request.agent in bars:
            end = request_end(request, asked_s[request.agent])
            bars[request.agent] += request_bars(request, end_s, end)
            marks[request.agent] += _request_marks(request, end)
    for talk in history.questions:
        if talk.agent in bars:
            bars[talk.agent] += talk_bars(talk, end_s)
            marks[talk.agent] += _talk_marks(talk)
    lanes = (
        Lane(
            agent,
            tuple(_moved(bar, origin_s) for bar in mine),
            tuple(_moved_mark(mark, origin_s) for mark in marks[agent]),
        )
        for agent, mine in bars.items()
    )
    steps = tuple(
        EngineStep(
            step.start_s - origin_s, step.end_s - origin_s, step.sequences, step.server, step.stages
        )
        for step in history.steps
    )
    window = (-0.2, max(end_s - origin_s, 1.0))
    outages = {
        name: tuple(
            (gone_s - origin_s, min(back_s, end_s) - origin_s) for gone_s, back_s in server.outages
        )
        for name, server in sorted(history.servers.items())
    }
    return Timeline(title, tuple(lanes), steps, window, outages=outages)


def busiest(history: History, length_s: float = BURST_S) -> TimeSpan:
    """Return the window with the most work on the engine, in seconds from the first request."""
    if not history.steps or not history.asked:
        return 0.0, length_s
    starts = np.array([step.start_s for step in history.steps]) - history.origin_s
    work = np.array([step.duration_s * step.sequences for step in history.steps])
    total = np.concatenate(([0.0], np.cumsum(work)))
    asked = np.unique([r.asked_s - history.origin_s for r in history.asked])
    first = np.searchsorted(starts, asked)
    last = np.searchsorted(starts, asked + length_s)
    begin_s = float(asked[int(np.argmax(total[last] - total[first]))]) - 0.02 * length_s
    return begin_s, begin_s + length_s


def request_end(request: PlanHistory, newer_s: Iterable[float]) -> MarkKind | None:
    """Return how a request ended, if it did not run to its end.

    Args:
        request: of a robot.
        newer_s: when the same robot asked; earlier requests do not matter.
    """
    outcome = request.outcome
    if outcome is None or outcome.outcome == "finished":
        return None
    if outcome.outcome == "canceled":
        later_s = [at_s for at_s in newer_s if at_s > request.asked_s]
        replaced = any(abs(at_s - outcome.t) <= SUCCESSOR_S for at_s in later_s)
        return "pre-empted" if replaced else "canceled"
    return "failed"


def request_bars(request: PlanHistory, now_s: float, end: MarkKind | None = None) -> Iterator[Bar]:
    """Yield what went on with a robot's request until `now_s`; `end` as `request_end` says."""
    tone = tone_of(request)
    for start_s, end_s in request.waits(now_s):
        yield Bar("waiting", tone, start_s, end_s, request.id)
    yield from _model_bars(request, tone)
    for start_s, end_s in request.blocks:
        yield Bar("blocked", tone, start_s, min(end_s, now_s), request.id)
    for call in request.execution():
        kind: BarKind = "executing"
        if math.isfinite(request.failed_s(call)):
            kind = "failed"
        elif end == "pre-empted" and request.outcome and call.end_s >= request.outcome.t:
            kind = "pre-empted"
        yield Bar(kind, tone, call.start_s, call.end_s, request.id, call.text)


def talk_bars(talk: StreamHistory, now_s: float) -> Iterator[Bar]:
    """Yield what went on with a person's question until `now_s`."""
    first_s = talk.heard[0][0] if talk.heard else talk.outcome.t if talk.outcome else now_s
    for start_s, end_s in ((talk.asked_s, first_s), *talk.stalled):
        yield Bar("waiting", "answer", start_s, end_s, talk.id)
    yield from _model_bars(talk, "answer")
    if talk.asks_help:
        yield from _source_bars(talk)
        return
    for number, (start_s, end_s) in enumerate(talk.heard):
        label = talk.question if not number else ""
        yield Bar("listening", "answer", start_s, end_s, talk.id, label)


def _source_bars(talk: StreamHistory) -> Iterator[Bar]:
    """Yield the times with words of an answer, each with the source of its words."""
    ends = [*(at_s for at_s, _ in talk.sources[1:]), math.inf]
    for (from_s, part), until_s in zip(talk.sources, ends, strict=True):
        label = source_of(talk, part)
        for start_s, end_s in talk.heard:
            begin_s, stop_s = max(start_s, from_s), min(end_s, until_s)
            if begin_s < stop_s:
                yield Bar("listening", "answer", begin_s, stop_s, talk.id, label)


def tone_of(work: RequestHistory) -> Tone:
    """Return the class of a request, as colours say it."""
    if isinstance(work, PlanHistory):
        return "urgent" if work.urgent else "normal"
    return "answer"


def _model_bars(work: RequestHistory, tone: Tone) -> Iterator[Bar]:
    generating = [
        Bar("generating", tone, part.start_s, part.end_s, work.id, server=part.server)
        for part in work.slices
    ]
    yield from suspensions(generating)
    yield from generating


def _request_marks(request: PlanHistory, end: MarkKind | None) -> Iterator[Mark]:
    tone = tone_of(request)
    for piece in request.delivered:
        text = piece.text.strip()
        yield Mark("delivered", tone, piece.at_s, request.id, text)
        if math.isfinite(piece.due_s):
            yield due_mark(tone, piece.due_s, piece.at_s, request.id, text)
    if end is not None and request.outcome is not None:
        yield Mark(end, tone, request.outcome.t, request.id, request.outcome.error_msg)


def _talk_marks(talk: StreamHistory) -> Iterator[Mark]:
    if talk.chunks:
        at_s = talk.chunks[0].t
        yield Mark("delivered", "answer", at_s, talk.id, "the first token")
        if math.isfinite(talk.arrived_s):
            due_s = talk.arrived_s + talk.slo.ttft_s
            yield due_mark("answer", due_s, at_s, talk.id, "the first token")
    if talk.outcome is not None and talk.outcome.is_error:
        yield Mark("failed", "answer", talk.outcome.t, talk.id, talk.outcome.error_msg)


def _moved(bar: Bar, origin_s: float) -> Bar:
    return replace(bar, start_s=bar.start_s - origin_s, end_s=bar.end_s - origin_s)


def _moved_mark(mark: Mark, origin_s: float) -> Mark:
    return replace(mark, at_s=mark.at_s - origin_s)
