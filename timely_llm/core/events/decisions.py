"""Decisions about requests: the reasons of step plans, as spans of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from timely_llm.core.errors import TimelyError
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import CompleteEvent, EndEvent, SegmentEvent, StepPlanEvent
from timely_llm.core.reason import Cause, Outcome, Reasons
from timely_llm.core.text import quoted


class DecisionsError(TimelyError):
    """An event log has no reasons, or not those that are asked for."""


@dataclass(frozen=True)
class DecisionSpan:
    """Decisions with the same cause about one request, in plans that follow each other.

    Attributes:
        cause: what decided.
        start_s, end_s: from the first of the plans to the next one that decided otherwise, on the
            clock of the event log.
        plans: how many.
        least, most: numbers of the reasons; None: none had one.
    """

    cause: Cause
    start_s: float
    end_s: float
    plans: int
    least: float | None = None
    most: float | None = None

    @property
    def length_s(self) -> float:
        """How long it lasted, seconds."""
        return self.end_s - self.start_s

    def __str__(self) -> str:
        """Return the decision in words."""
        return self.cause.describe(self.least, self.most)


class Decisions:
    """Takes the events of a run, and keeps the decisions about each request.

    Attributes:
        by_request: decisions by request id, in order.
    """

    def __init__(self) -> None:
        self.by_request: dict[str, list[DecisionSpan]] = {}
        self._open: set[str] = set()

    def add(self, event: RunEvent) -> None:
        """Take an event; events of other kinds than plans and ends change nothing."""
        match event:
            case StepPlanEvent():
                self._plan(event.t, event.why)
            case CompleteEvent() | EndEvent() | SegmentEvent(blocking=True):
                # The request leaves the pool now, and the next plan may be far away.
                if event.id in self._open:
                    self._open.discard(event.id)
                    self._end(event.id, event.t)

    def _plan(self, at_s: float, why: Reasons) -> None:
        for key in self._open:
            self._end(key, at_s)
        decided = set()
        for key, (cause, number) in why:
            decided.add(key)
            mine = self.by_request.setdefault(key, [])
            if key in self._open and mine[-1].cause is cause:
                mine[-1] = _with_plan(mine[-1], number)
            else:
                mine.append(DecisionSpan(cause, at_s, at_s, 1, number, number))
        self._open = decided

    def _end(self, key: str, at_s: float) -> None:
        mine = self.by_request[key]
        mine[-1] = replace(mine[-1], end_s=at_s)


def decisions_by_request(events: Iterable[RunEvent]) -> dict[str, list[DecisionSpan]]:
    """Return the decisions about each request, in order.

    Args:
        events: of one life of a server, or of one run in virtual time.
    """
    decisions = Decisions()
    for event in events:
        decisions.add(event)
    return decisions.by_request


def _with_plan(span: DecisionSpan, number: float | None) -> DecisionSpan:
    known = [one for one in (span.least, span.most, number) if one is not None]
    return replace(
        span, plans=span.plans + 1, least=min(known, default=None), most=max(known, default=None)
    )


def of_request(spans: Mapping[str, Sequence[DecisionSpan]], name: str) -> Sequence[DecisionSpan]:
    """Return the decisions about one request.

    Raises:
        DecisionsError: there are none.
    """
    if name not in spans:
        known = ", ".join(quoted(key) for key in list(spans)[:8])
        more = f" and {len(spans) - 8} more" if len(spans) > 8 else ""
        raise DecisionsError(f"no plan decided about {quoted(name)}, only about {known}{more}")
    return spans[name]


@dataclass(frozen=True)
class Waits:
    """Why a request took no part in steps, longest first.

    Attributes:
        joined_s, waited_s, deferred_s: seconds of the decisions by their outcome.
        causes: seconds by cause, of decisions that kept it out.
    """

    joined_s: float
    waited_s: float
    deferred_s: float
    causes: tuple[tuple[Cause, float], ...]


def waits(spans: Iterable[DecisionSpan]) -> Waits:
    """Return what kept a request out of steps, and for how long."""
    by_outcome = dict.fromkeys(Outcome, 0.0)
    by_cause: dict[Cause, float] = {}
    for span in spans:
        by_outcome[span.cause.outcome] += span.length_s
        if not span.cause.joined:
            by_cause[span.cause] = by_cause.get(span.cause, 0.0) + span.length_s
    causes = sorted(by_cause.items(), key=lambda pair: pair[1], reverse=True)
    return Waits(
        by_outcome[Outcome.JOINED],
        by_outcome[Outcome.WAITS],
        by_outcome[Outcome.DEFERRED],
        tuple(causes),
    )
