"""Timelines of run documents and of recorded bags, as the model that is drawn.

A run document keeps four kinds of spans. Suspensions follow from them. Due times do not, so that a
timeline from a run document has no marks. The messages of a bag add the marks: when segments were
delivered and due, which of them failed, and why a request ended. A segment is due when its robot
has executed all earlier ones; the first segment, when the time utility of its request begins to
fall.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from timely_llm.core.request import ErrorCode
from timely_llm.experiments.results.document import TimelineDocument
from timely_llm.report.palette import Tone
from timely_llm.report.timeline import (
    Bar,
    EngineStep,
    Lane,
    Mark,
    MarkKind,
    Timeline,
    due_mark,
    in_order,
    suspensions,
)

if TYPE_CHECKING:
    from timely_llm.experiments.recorded.requests import (
        RecordedConversation,
        RecordedPlan,
        RecordedRequests,
    )
    from timely_llm.experiments.recorded.score import RecordedRun

SUCCESSOR_NS = 500_000_000
"""A newer request of a robot that comes this soon around a cancelation is the reason for it."""
ROUNDING_S = 2e-6
"""Run documents have times to the microsecond."""


def document_timeline(saved: TimelineDocument) -> Timeline:
    """Return the timeline of a run document, with its lanes in order."""
    tones = _tones(saved)
    bars: dict[str, list[Bar]] = defaultdict(list)
    agents: dict[int, str] = {}
    generating: dict[int, list[Bar]] = defaultdict(list)
    for span in saved.spans:
        name = saved.requests[span.request]
        label = "" if span.kind in ("generating", "waiting") else span.label
        bar = Bar(span.kind, tones[span.request], span.start_s, span.end_s, name, label)
        bars[span.agent].append(bar)
        agents[span.request] = span.agent
        if span.kind == "generating":
            generating[span.request].append(bar)
    for request, mine in generating.items():
        bars[agents[request]] += suspensions(sorted(mine, key=lambda bar: bar.start_s))
    lanes = (Lane(agent, tuple(mine)) for agent, mine in bars.items())
    steps = (
        EngineStep(
            step.start_s, step.start_s + step.duration_s, len(step.requests),
            stages=step.stages.times if step.stages is not None else None,
        )
        for step in saved.steps
    )  # fmt: skip
    return Timeline(saved.name, in_order(lanes), tuple(steps), decisions=saved.decisions_by_request)


def _tones(saved: TimelineDocument) -> list[Tone]:
    """Return the tone of each request: one with a listener is an answer."""
    heard = {span.request for span in saved.spans if span.kind == "listening"}
    return [
        "answer" if number in heard else "urgent" if urgent else "normal"
        for number, urgent in enumerate(saved.urgent)
    ]


def recorded_timeline(recorded: RecordedRun) -> Timeline:
    """Return the timeline of a recording, or of the part of it that its run document shows."""
    requests = recorded.requests
    timeline = document_timeline(recorded.timeline)
    marks: dict[str, list[Mark]] = defaultdict(list)
    ends: dict[str, Mark] = {}
    failed: dict[str, list[float]] = {}
    for plan in requests.plans:
        end = _end(plan, _newer_ns(plan, requests), requests.begin_ns)
        marks[plan.job.agent] += _plan_marks(plan, requests.begin_ns)
        failed[plan.id] = _failures(plan, requests.begin_ns)
        if end is not None:
            marks[plan.job.agent].append(end)
            ends[plan.id] = end
    for conversation in requests.conversations:
        marks[conversation.conversation.agent] += _answer_marks(conversation, requests.begin_ns)
    low, high = timeline.limits
    lanes = (
        Lane(
            lane.agent,
            tuple(_bar(bar, ends, failed) for bar in lane.bars),
            tuple(mark for mark in marks[lane.agent] if low <= mark.at_s <= high),
        )
        for lane in timeline.lanes
    )
    return replace(timeline, lanes=tuple(lanes))


def _bar(bar: Bar, ends: Mapping[str, Mark], failed: Mapping[str, list[float]]) -> Bar:
    """Return a bar that says whether its segment failed or was cut short."""
    if bar.kind != "executing":
        return bar
    label = bar.label.strip().removesuffix(";")
    end = ends.get(bar.request)
    if any(abs(at_s - bar.end_s) < ROUNDING_S for at_s in failed.get(bar.request, ())):
        return replace(bar, kind="failed", label=label)
    if end and end.kind == "pre-empted" and abs(end.at_s - bar.end_s) < ROUNDING_S:
        return replace(bar, kind="pre-empted", label=label)
    return replace(bar, label=label)


def _tone(plan: RecordedPlan) -> Tone:
    return "urgent" if plan.job.urgent else "normal"


def _plan_marks(plan: RecordedPlan, begin_ns: int) -> Iterator[Mark]:
    tone = _tone(plan)
    executed = {one.place: one for one in plan.spells}
    due_s = (plan.asked_ns - begin_ns) / 1e9 + plan.job.time_utility.ert_s
    seen = set()
    for piece in plan.delivered:
        place = (piece.epoch, piece.index)
        if place in seen:
            continue  # the last segment may come again, only to say that it is the last
        seen.add(place)
        at_s = (piece.time_ns - begin_ns) / 1e9
        yield Mark("delivered", tone, at_s, plan.id, piece.text)
        # After a failure, the robot is idle until the new plan's first segment comes.
        if math.isfinite(due_s) and not (piece.epoch and not piece.index):
            yield due_mark(tone, due_s, at_s, plan.id, piece.text)
        spell = executed.get(place)
        idle_ns = spell.end_ns if spell is not None else None
        due_s = (idle_ns - begin_ns) / 1e9 if idle_ns is not None else math.inf


def _failures(plan: RecordedPlan, begin_ns: int) -> list[float]:
    """Return when segments ended of which their robot reported that they failed."""
    return [
        (spell.end_ns - begin_ns) / 1e9
        for spell in plan.spells
        if spell.end_ns is not None and spell.failed
    ]


def _newer_ns(plan: RecordedPlan, requests: RecordedRequests) -> list[int]:
    """Return when the same robot asked its later requests."""
    mine = (other for other in requests.plans if other.job.agent == plan.job.agent)
    return [other.asked_ns for other in mine if other.asked_ns > plan.asked_ns]


def _end(plan: RecordedPlan, newer_ns: list[int], begin_ns: int) -> Mark | None:
    """Return the mark of the end of a plan that did not run to its end."""
    ended = plan.ended
    if ended is None or ended.error_code == ErrorCode.NONE:
        return None
    kind: MarkKind = "failed"
    if ended.error_code == ErrorCode.CANCELED:
        replaced = any(abs(at_ns - ended.time_ns) <= SUCCESSOR_NS for at_ns in newer_ns)
        kind = "pre-empted" if replaced else "canceled"
    name = _name(ended.error_code)
    return Mark(kind, _tone(plan), (ended.time_ns - begin_ns) / 1e9, plan.id, name)


def _name(code: int) -> str:
    known = code in list(ErrorCode)
    return ErrorCode(code).name if known else f"error {code}"


def _answer_marks(answer: RecordedConversation, begin_ns: int) -> Iterator[Mark]:
    if answer.tokens:
        at_s = (answer.tokens[0].time_ns - begin_ns) / 1e9
        yield Mark("delivered", "answer", at_s, answer.id, "the first token")
        due_s = (answer.asked_ns - begin_ns) / 1e9 + answer.conversation.ttft_s
        if math.isfinite(due_s):
            yield due_mark("answer", due_s, at_s, answer.id, "the first token")
    ended = answer.ended
    if ended is not None and ended.error_code not in (ErrorCode.NONE, ErrorCode.CANCELED):
        at_s = (ended.time_ns - begin_ns) / 1e9
        yield Mark("failed", "answer", at_s, answer.id, _name(ended.error_code))
