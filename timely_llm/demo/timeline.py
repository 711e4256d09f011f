"""The picture of a run: what was generated for each robot and person (after 001, Figure 2)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from timely_llm.core.output_file import PICTURE, write_file
from timely_llm.demo.history import History
from timely_llm.demo.talks import Span
from timely_llm.demo.timeline_rows import (
    DARK,
    DPI,
    FONT_PT,
    INK,
    LEFT,
    PALE,
    RIGHT,
    TALK_DARK,
    TALK_PALE,
    WAIT_STYLE,
    WIDTH_PX,
    Rows,
    boxes,
    within,
)
from timely_llm.processes.log_reader import Event

BURST_S, HAIRLINE_S = 10.0, 0.01


def draw_timeline(
    journal: Iterable[Event], fleet: Iterable[Event], path: Path, title: str,
    window: Span | None = None,
) -> None:  # fmt: skip
    """Write the timeline of a run; see `draw`.

    Args:
        journal: the server's events.
        fleet: the fleet's events.
        path: the file.
        title: one line.
        window: seconds from the first request; the whole run if None.
    """
    draw(_history(journal, fleet), title, path, window)


def busiest_window(journal: Iterable[Event], fleet: Iterable[Event], length_s: float) -> Span:
    """Return the window with the most work on the engine; see `busiest`."""
    return busiest(_history(journal, fleet), length_s)


def _history(journal: Iterable[Event], fleet: Iterable[Event]) -> History:
    history = History()
    for event in (*journal, *fleet):
        history.add(event)
    return history


def busiest(history: History, length_s: float = BURST_S) -> Span:
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


def draw(history: History, title: str, path: Path, window: Span | None = None) -> None:
    """Write the timeline of a run as a picture, of the kind that the path's suffix names.

    Args:
        history: what happened.
        title: one line.
        path: the file.
        window: seconds from the first request; the whole run if None.
    """
    rows = max(len(history.robots) + len(history.people), 1)
    height_in = 1.75 + 0.47 * rows
    figure = Figure(figsize=(WIDTH_PX / DPI, height_in), dpi=DPI)
    FigureCanvasAgg(figure)
    batch, agents = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [0.9, rows], "hspace": 0.04}
    )
    figure.subplots_adjust(
        left=LEFT, right=RIGHT, top=1 - 0.62 / height_in, bottom=0.42 / height_in
    )
    window = window or (-0.2, max(history.end_s - history.origin_s, 1.0))
    _draw_batch(batch, history, window)
    _draw_rows(agents, history, window)
    figure.suptitle(
        title, x=LEFT, y=1 - 0.06 / height_in, ha="left", va="top", fontsize=FONT_PT + 1.5,
        fontweight="bold",
    )  # fmt: skip
    _legend(figure, 1 - 0.27 / height_in, bool(history.people))
    kind = path.suffix[1:] or "png"
    write_file(path, PICTURE, lambda file: figure.savefig(file, format=kind))


def _draw_batch(axes: Axes, history: History, window: Span) -> None:
    """Draw how many sequences took part in each step."""
    origin_s = history.origin_s
    # The few milliseconds between two steps would be white hairlines.
    next_s = [step.start_s for step in history.steps[1:]] + [np.inf]
    spans = [
        (step.start_s - origin_s, (n if n - step.end_s < HAIRLINE_S else step.end_s) - origin_s)
        for step, n in zip(history.steps, next_s, strict=False)
    ]
    heights = [step.sequences for step in history.steps]
    made = boxes(spans, [(0.0, float(height)) for height in heights])
    axes.add_collection(PolyCollection(made, facecolors="#777777", linewidths=0))
    top = max((h for h, s in zip(heights, spans, strict=True) if within(s, window)), default=1)
    axes.set_ylim(0, top * 1.15)
    axes.set_yticks([0, top])
    axes.set_ylabel("batch", rotation=0, ha="right", va="center", fontsize=FONT_PT)
    _plain(axes)
    axes.tick_params(axis="x", length=0)


def _draw_rows(axes: Axes, history: History, window: Span) -> None:
    row = {agent: -index for index, agent in enumerate((*history.robots, *history.people))}
    for y in list(row.values())[:-1]:
        axes.axhline(y - 0.5, color="#E2E2E2", linewidth=0.6, zorder=0)
    axes.set_xlim(*window)
    axes.set_ylim(0.5 - max(len(row), 1), 0.5)
    axes.set_yticks(list(row.values()), list(row), fontsize=FONT_PT)
    axes.set_xlabel("seconds since the first request", fontsize=FONT_PT, labelpad=2)
    _plain(axes)
    axes.tick_params(axis="y", length=0)
    if not (history.asked or history.questions):
        axes.text(0.5, 0.5, "no requests", transform=axes.transAxes, fontsize=FONT_PT + 2,
                  ha="center", va="center", color="#777777")  # fmt: skip
    rows = Rows(axes, history.origin_s, window)
    rows.requests(
        [(r, float(row[r.agent])) for r in history.asked if r.agent in row], history.end_s
    )
    rows.talks(
        [(t, float(row[t.agent])) for t in history.questions if t.agent in row], history.end_s
    )


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=FONT_PT)


def _legend(figure: Figure, y: float, people: bool) -> None:
    def patches(faces: list[str], edges: list[str]) -> tuple[Patch, ...]:
        return tuple(Patch(facecolor=f, edgecolor=e) for f, e in zip(faces, edges, strict=True))

    def mark(marker: str, face: str) -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, color=INK, markerfacecolor=face,
                      markersize=5)  # fmt: skip

    kinds = "normal, urgent" + ", answer" * people
    dark = [DARK[False], DARK[True]] + [TALK_DARK] * people
    pale = [PALE[False], PALE[True]] + [TALK_PALE] * people
    entries: dict[str, Any] = {
        f"generation ({kinds})": patches(dark, dark),
        f"execution{', hearing' * people}": patches(pale, dark),
        "waits": Patch(**WAIT_STYLE),
        "delivered": mark("|", INK),
        "due, met": mark("v", "white"),
        "due, missed": mark("v", INK),
        "dropped": mark("x", INK),
    }
    figure.legend(
        list(entries.values()), list(entries), ncol=len(entries), loc="upper left",
        bbox_to_anchor=(0.06, y), frameon=False, fontsize=FONT_PT - 0.5, handlelength=2.0,
        columnspacing=1.3, borderaxespad=0.0, handletextpad=0.5,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.2)},
    )  # fmt: skip
