"""A timeline of few requests as lines of text, after paper 001, Figure 6."""

from __future__ import annotations

from collections.abc import Iterable

from timely_llm.experiments.document import Span, Timeline

MOST_REQUESTS = 4
COLUMN_S = 0.025
COLUMNS = 64
LEGEND = (
    f"One column is {1e3 * COLUMN_S:g} ms. Model: █ works on the plan."
    " Robot: · has nothing to do, ▒ executes."
)

_MARKS = {"waiting": "·", "executing": "▒", "generating": "█", "listening": "▒"}
_TICK_COLUMNS = 10


def drawable(timeline: Timeline) -> bool:
    """Return whether it is small enough to be read as text."""
    return 0 < len(timeline.requests) <= MOST_REQUESTS


def draw(timeline: Timeline) -> list[str]:
    """Return the first seconds of a timeline: two lines for each request, and a scale."""
    names = [
        f"{request} {'urgent' if urgent else 'normal'}"
        for request, urgent in zip(timeline.requests, timeline.urgent, strict=True)
    ]
    width = max(map(len, names), default=0)
    scale = "".join(
        f"{column * COLUMN_S:g}".ljust(_TICK_COLUMNS) for column in range(0, COLUMNS, _TICK_COLUMNS)
    )
    lines = [f"{timeline.name}", f"{'':{width}}        {scale.rstrip()} s"]
    for place, name in enumerate(names):
        mine = [span for span in timeline.spans if span.request == place]
        model = _bar(span for span in mine if span.kind == "generating")
        robot = _bar(span for span in mine if span.kind != "generating")
        lines += [f"{name:{width}} model  {model}", f"{'':{width}} robot  {robot}"]
    return [line.rstrip() for line in lines]


def _bar(spans: Iterable[Span]) -> str:
    """Return one line: in each column the mark of what fills its middle."""
    cells = [" "] * COLUMNS
    for span in spans:
        first, last = (round(time_s / COLUMN_S) for time_s in (span.start_s, span.end_s))
        for column in range(max(first, 0), min(last, COLUMNS)):
            cells[column] = _MARKS[span.kind]
    return "".join(cells)
