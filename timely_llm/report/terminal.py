"""Timelines and states in a terminal: as lines of text, as strips of cells, and as meters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from timely_llm.report.palette import TERMINAL, Tone
from timely_llm.report.timeline import MODEL_KINDS, Bar, BarKind, StageSpan, Timeline, natural

MOST_REQUESTS = 4
COLUMN_S = 0.025
COLUMNS = 64
LEGEND = (
    f"One column is {1e3 * COLUMN_S:g} ms. Model: █ works on the plan."
    " Robot: · has nothing to do, ▒ executes."
)
CELLS: dict[BarKind, str] = {
    "waiting": "·",
    "generating": "█",
    "suspended": " ",
    "blocked": "‖",
    "executing": "▒",
    "listening": "▒",
    "computing": "█",
    "sending": "▒",
    "pre-empted": "▒",
    "failed": "x",
}
"""The character of each kind of bar."""
STAGE_CELLS = {False: "█", True: "─"}
STAGE_LEGEND = "Stage of the pipeline: █ computes, ─ sends or receives, else idle."
_TICK_COLUMNS = 10


def style(tone: Tone, bold: bool = False) -> str:
    """Return the Rich style of a tone."""
    return f"bold {TERMINAL[tone]}" if bold else TERMINAL[tone]


def drawable(timeline: Timeline) -> bool:
    """Return whether a timeline is small enough for text."""
    return 0 < len(_requests(timeline)) <= MOST_REQUESTS


def timeline_lines(timeline: Timeline) -> list[str]:
    """Return the first seconds of a timeline as text: a scale, and two lines for each request.

    Below them, each stage of a pipeline has a line. The layout is that of Figure 6 of Ling et al.
    2024.
    """
    requests = _requests(timeline)
    names = {name: f"{name} {bars[0].tone}" for name, bars in requests.items()}
    width = max(map(len, names.values()), default=0)
    scale = "".join(
        f"{column * COLUMN_S:g}".ljust(_TICK_COLUMNS) for column in range(0, COLUMNS, _TICK_COLUMNS)
    )
    lines = [timeline.title, f"{'':{width}}        {scale.rstrip()} s"]
    for name, bars in requests.items():
        model = [bar for bar in bars if bar.kind in MODEL_KINDS]
        robot = [bar for bar in bars if bar.kind not in MODEL_KINDS]
        lines.append(f"{names[name]:{width}} model  {_cells(model)}")
        lines.append(f"{'':{width}} robot  {_cells(robot)}")
    for server in timeline.servers:
        for place, row in enumerate(timeline.stage_rows(server), 1):
            lines.append(f"{f'{server} stage {place}'.strip():{width + 6}}  {_stage_cells(row)}")
    return [line.rstrip() for line in lines]


def _requests(timeline: Timeline) -> dict[str, list[Bar]]:
    """Return the bars of each request, by its name."""
    found: dict[str, list[Bar]] = {}
    for bar in timeline.bars:
        found.setdefault(bar.request, []).append(bar)
    return {name: found[name] for name in sorted(found, key=natural)}


def _cells(bars: Iterable[Bar]) -> str:
    """Return one line of characters; a bar fills each column if it covers the middle."""
    cells = [" "] * COLUMNS
    for bar in bars:
        for column in _columns(bar, 0.0, COLUMN_S, COLUMNS):
            cells[column] = CELLS[bar.kind]
    return "".join(cells)


def _stage_cells(row: Iterable[StageSpan]) -> str:
    cells = [" "] * COLUMNS
    for span in sorted(row, key=lambda span: not span.sends):  # computing covers sending
        for column in _columns(span, 0.0, COLUMN_S, COLUMNS):
            cells[column] = STAGE_CELLS[span.sends]
    return "".join(cells)


def _columns(bar: Bar | StageSpan, start_s: float, column_s: float, columns: int) -> range:
    first, last = (round((at_s - start_s) / column_s) for at_s in (bar.start_s, bar.end_s))
    return range(max(first, 0), min(last, columns))


def strip(bars: Sequence[Bar], start_s: float, end_s: float, columns: int) -> Text:
    """Return an agent's bars between two times as a row of coloured cells."""
    cells, styles = [" "] * columns, [""] * columns
    for bar in bars:
        if bar.kind in MODEL_KINDS:
            continue
        for column in _columns(bar, start_s, (end_s - start_s) / columns, columns):
            cells[column] = CELLS[bar.kind]
            tone: Tone = "failed" if bar.kind == "failed" else bar.tone
            styles[column] = "dim" if bar.kind == "waiting" else style(tone)
    return Text.assemble(*zip(cells, styles, strict=True))


def meter(share: float, style: str, columns: int) -> Text:
    """Return a bar that is filled to a share of its length."""
    full = round(columns * min(max(share, 0.0), 1.0))
    return Text.assemble(("━" * full, style), ("━" * (columns - full), "grey23"))
