"""Where a timeline's spans are drawn: a lane for each agent, in it one band above the other."""

from __future__ import annotations

from collections.abc import Iterator

from timely_llm.experiments.document import Span, SpanKind, Timeline

LANE_PX = ((12, 36), (40, 24), (100, 15))
CROWDED_LANE_PX, MOST_PX = 9, 12_000

ABOVE, BELOW = (0.06, 0.42), (-0.42, 0.02)
"""In a lane, from its middle: the model's work, and what the robot or the listener does."""

BANDS: dict[SpanKind, tuple[float, float]] = {
    "waiting": BELOW,
    "executing": BELOW,
    "listening": BELOW,
    "generating": ABOVE,
}
LONGEST_AGENT = 13


def lanes(timeline: Timeline) -> dict[str, int]:
    """Return the lane of each agent, from 0 downwards in order of appearance."""
    agents = dict.fromkeys(span.agent for span in timeline.spans)
    return {agent: -place for place, agent in enumerate(agents)}


def lanes_px(count: int) -> int:
    """Return the height of so many lanes together, but never more than a browser can draw."""
    each = next((px for most, px in LANE_PX if count <= most), CROWDED_LANE_PX)
    return min(each * max(count, 1), MOST_PX)


def label_px(count: int) -> float:
    """Return the height of the letters of lanes' names."""
    return min(12.0, lanes_px(count) / max(count, 1))


def lane_limits(count: int) -> tuple[float, float]:
    """Return the ends of the axis on which so many lanes stand."""
    return 0.5 - max(count, 1), 0.6


def time_limits(timeline: Timeline) -> tuple[float, float]:
    """Return the ends of the time axis, seconds."""
    starts = [span.start_s for span in timeline.spans]
    starts += [step.start_s for step in timeline.steps]
    ends = [span.end_s for span in timeline.spans]
    ends += [step.start_s + step.duration_s for step in timeline.steps]
    low, high = min(starts, default=0.0), max(ends, default=1.0)
    room = 0.01 * (high - low) or 0.5
    return low - room, high + room


def alike(timeline: Timeline) -> Iterator[tuple[SpanKind, bool, list[Span]]]:
    """Yield spans that look the same: kind, whether their requests are urgent, and the spans."""
    for kind in BANDS:
        for urgent in (False, True):
            spans = [
                span
                for span in timeline.spans
                if span.kind == kind and timeline.urgent[span.request] == urgent
            ]
            if spans:
                yield kind, urgent, spans


def urgent_marks(timeline: Timeline) -> list[tuple[float, float]]:
    """Return time and height of a mark where each urgent request begins.

    With it, colour is not all that tells that a request is urgent.
    """
    first: dict[int, Span] = {}
    for span in timeline.spans:
        if timeline.urgent[span.request]:
            before = first.setdefault(span.request, span)
            first[span.request] = min(before, span, key=lambda one: one.start_s)
    places = lanes(timeline)
    return [(span.start_s, places[span.agent] + ABOVE[1]) for span in first.values()]
