"""The picture of a run: generation and execution of each robot (after paper 001, Figure 2)."""

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

from timely_llm.demo.history import Call, History, Request
from timely_llm.processes.log_reader import Event

Span = tuple[float, float]
"""Start and end, seconds."""

WIDTH_PX, DPI = 1600, 150
LEFT, RIGHT = 0.065, 0.99
MIN_PX = 2.0
FONT_PT, LABELS_PT = 8.5, (7.0, 6.0)
BURST_S, HAIRLINE_S = 10.0, 0.01
# Blue and vermillion of Okabe and Ito: distinct for all common kinds of colour vision.
DARK = {False: "#0072B2", True: "#D55E00"}
PALE = {False: "#BFDDF0", True: "#F8CDB0"}
WAIT_FACE, WAIT_HATCH, INK = "#F4F4F4", "#B4B4B4", "#222222"
# Within a robot's row of height 1, measured upwards from its middle.
GENERATION, EXECUTION, DELIVERY, DUE = (0.06, 0.23), (-0.42, 0.02), (0.25, 0.34), 0.42


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
    rows = max(len(history.robots), 1)
    height_in = 1.75 + 0.47 * rows
    figure = Figure(figsize=(WIDTH_PX / DPI, height_in), dpi=DPI)
    FigureCanvasAgg(figure)
    batch, robots = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [0.9, rows], "hspace": 0.04}
    )
    figure.subplots_adjust(
        left=LEFT, right=RIGHT, top=1 - 0.62 / height_in, bottom=0.42 / height_in
    )
    window = window or (-0.2, max(history.end_s - history.origin_s, 1.0))
    _draw_batch(batch, history, window)
    _draw_robots(robots, history, window)
    figure.suptitle(
        title, x=LEFT, y=1 - 0.06 / height_in, ha="left", va="top", fontsize=FONT_PT + 1.5,
        fontweight="bold",
    )  # fmt: skip
    _legend(figure, 1 - 0.27 / height_in)
    figure.savefig(path)


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
    boxes = _boxes(spans, [(0.0, float(height)) for height in heights])
    axes.add_collection(PolyCollection(boxes, facecolors="#777777", linewidths=0))
    top = max((h for h, s in zip(heights, spans, strict=True) if _in(s, window)), default=1)
    axes.set_ylim(0, top * 1.15)
    axes.set_yticks([0, top])
    axes.set_ylabel("batch", rotation=0, ha="right", va="center", fontsize=FONT_PT)
    _plain(axes)
    axes.tick_params(axis="x", length=0)


def _draw_robots(axes: Axes, history: History, window: Span) -> None:
    row = {agent: -index for index, agent in enumerate(history.robots)}
    for y in list(row.values())[:-1]:
        axes.axhline(y - 0.5, color="#E2E2E2", linewidth=0.6, zorder=0)
    axes.set_xlim(*window)
    axes.set_ylim(0.5 - max(len(row), 1), 0.5)
    axes.set_yticks(list(row.values()), list(row), fontsize=FONT_PT)
    axes.set_xlabel("seconds since the first request", fontsize=FONT_PT, labelpad=2)
    _plain(axes)
    axes.tick_params(axis="y", length=0)
    if not history.asked:
        axes.text(0.5, 0.5, "no requests", transform=axes.transAxes, fontsize=FONT_PT + 2,
                  ha="center", va="center", color="#777777")  # fmt: skip
    placed = [(r, float(row[r.agent])) for r in history.asked if r.agent in row]
    for urgent in (False, True):
        _draw_spans(axes, [(r, y) for r, y in placed if r.urgent == urgent], history, window)
    _draw_marks(axes, placed, history.origin_s)


def _draw_spans(
    axes: Axes, placed: list[tuple[Request, float]], history: History, window: Span
) -> None:
    """Draw generation, execution and waiting of requests of one class, each with its row."""
    waits: list[tuple[Span, float]] = []
    slices: list[tuple[Span, float]] = []
    calls: list[tuple[Span, float]] = []

    def enter(spans: list[tuple[Span, float]], start_s: float, end_s: float, y: float) -> bool:
        span = start_s - history.origin_s, end_s - history.origin_s
        spans += [(span, y)] if _in(span, window) else []
        return _in(span, window)

    for request, y in placed:
        for start_s, end_s in request.waits(history.end_s):
            enter(waits, start_s, end_s, y)
        for piece in request.slices:
            enter(slices, piece.start_s, piece.end_s, y)
        for call in request.execution():
            if enter(calls, call.start_s, call.end_s, y):
                _label(axes, call, calls[-1][0], y, window)
    dark, pale = (colors[bool(placed and placed[0][0].urgent)] for colors in (DARK, PALE))
    least_s = MIN_PX * (window[1] - window[0]) / (WIDTH_PX * (RIGHT - LEFT))
    styled: list[tuple[list[tuple[Span, float]], Span, dict[str, Any]]] = [
        (waits, EXECUTION, {"fc": WAIT_FACE, "ec": WAIT_HATCH, "hatch": "//////", "lw": 0}),
        (slices, GENERATION, {"fc": dark, "lw": 0, "zorder": 2}),
        (calls, EXECUTION, {"fc": pale, "ec": dark, "lw": 0.7, "zorder": 2}),
    ]
    for spans, band, style in styled:
        across = [(start, max(end, start + least_s)) for (start, end), _ in spans]
        up = [(y + band[0], y + band[1]) for _, y in spans]
        axes.add_collection(PolyCollection(_boxes(across, up), **style))


def _draw_marks(axes: Axes, placed: list[tuple[Request, float]], origin_s: float) -> None:
    """Mark when segments were delivered and due, and where requests were dropped."""
    delivered = [(piece, y) for request, y in placed for piece in request.delivered]
    at_s = np.array([piece.at_s - origin_s for piece, _ in delivered])
    due_s = np.array([piece.due_s - origin_s for piece, _ in delivered])
    ys = np.array([y for _, y in delivered])
    axes.vlines(at_s, ys + DELIVERY[0], ys + DELIVERY[1], color=INK, linewidth=0.7, zorder=4)
    for late, face in ((at_s <= due_s, "white"), (at_s > due_s, INK)):
        axes.plot(due_s[late], ys[late] + DUE, "v", markersize=3.8, markerfacecolor=face,
                  markeredgecolor=INK, markeredgewidth=0.6, zorder=4)  # fmt: skip
    for request, y in placed:
        if request.outcome and request.outcome.kind == "canceled":
            axes.plot(request.outcome.at_s - origin_s, y + sum(EXECUTION) / 2, "x", color=INK,
                      markersize=5, markeredgewidth=1.3, zorder=5)  # fmt: skip


def _label(axes: Axes, call: Call, span: Span, y: float, window: Span) -> None:
    """Write what is executed into its box, if there is room."""
    start_s, end_s = max(span[0], window[0]), min(span[1], window[1])
    share = (end_s - start_s) / (window[1] - window[0])
    room_pt = share * WIDTH_PX * (RIGHT - LEFT) / DPI * 72 - 3.5
    for size_pt in LABELS_PT:
        if len(call.text) * size_pt * 0.61 < room_pt:
            axes.text((start_s + end_s) / 2, y + sum(EXECUTION) / 2, call.text, color=INK,
                      fontsize=size_pt, ha="center", va="center", zorder=3)  # fmt: skip
            return


def _boxes(across: list[Span], up: list[Span]) -> list[list[Span]]:
    return [
        [(left, low), (right, low), (right, high), (left, high)]
        for (left, right), (low, high) in zip(across, up, strict=True)
    ]


def _in(span: Span, window: Span) -> bool:
    return span[1] > window[0] and span[0] < window[1]


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=FONT_PT)


def _legend(figure: Figure, y: float) -> None:
    def pair(colors: dict[bool, str], edges: dict[bool, str]) -> tuple[Patch, Patch]:
        first, second = (Patch(facecolor=colors[u], edgecolor=edges[u]) for u in (False, True))
        return first, second

    def mark(marker: str, face: str) -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, color=INK, markerfacecolor=face,
                      markersize=5)  # fmt: skip

    entries: dict[str, Any] = {
        "generation (normal, urgent)": pair(DARK, DARK),
        "execution (normal, urgent)": pair(PALE, DARK),
        "robot waits": Patch(facecolor=WAIT_FACE, edgecolor=WAIT_HATCH, hatch="//////", lw=0),
        "segment delivered": mark("|", INK),
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
