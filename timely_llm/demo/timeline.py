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

from timely_llm.demo.history import Delivered, History, Request

Span = tuple[float, float]
"""Start and end, seconds."""

WIDTH_PX, DPI = 1600, 150
FONT_PT, LABEL_PT = 8.5, 7.0
BURST_S, HAIRLINE_S = 10.0, 0.01
# Blue and vermillion of Okabe and Ito: distinct for all common kinds of colour vision.
DARK = {False: "#0072B2", True: "#D55E00"}
PALE = {False: "#BFDDF0", True: "#F8CDB0"}
WAIT_FACE, WAIT_HATCH, INK = "#F4F4F4", "#B4B4B4", "#222222"
# Within a robot's row of height 1, measured upwards from its middle.
GENERATION, EXECUTION, DUE = (0.08, 0.30), (-0.40, 0.04), 0.40


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
        left=0.065, right=0.99, top=1 - 0.62 / height_in, bottom=0.42 / height_in
    )
    window = window or (-0.2, max(history.end_s - history.origin_s, 1.0))
    _draw_batch(batch, history, window)
    _draw_robots(robots, history, window)
    figure.suptitle(
        title, x=0.065, y=1 - 0.06 / height_in, ha="left", va="top", fontsize=FONT_PT + 1.5,
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
    axes.set_ylim(-len(row) + 0.5, 0.5)
    axes.set_yticks(list(row.values()), list(row), fontsize=FONT_PT)
    axes.set_xlabel("seconds since the first request", fontsize=FONT_PT, labelpad=2)
    _plain(axes)
    axes.tick_params(axis="y", length=0)
    for request in history.asked:
        if request.agent in row:
            _draw_request(axes, request, float(row[request.agent]), history, window)


def _draw_request(axes: Axes, request: Request, y: float, history: History, window: Span) -> None:
    origin_s = history.origin_s

    def shifted(spans: Iterable[Span]) -> list[Span]:
        moved = [(start_s - origin_s, end_s - origin_s) for start_s, end_s in spans]
        return [span for span in moved if _in(span, window)]

    waits = shifted(request.waits(history.end_s))
    _band(axes, waits, y, EXECUTION, face=WAIT_FACE, edge=WAIT_HATCH, hatch="//////", zorder=1)
    slices = shifted((piece.start_s, piece.end_s) for piece in request.slices)
    _band(axes, slices, y, GENERATION, face=DARK[request.urgent], edge="none", zorder=2)
    dark, pale = DARK[request.urgent], PALE[request.urgent]
    for call in request.execution():
        for span in shifted([(call.start_s, call.end_s)]):
            _band(axes, [span], y, EXECUTION, face=pale, edge=dark, zorder=2)
            _label(axes, call.text, span, y, window)
    for delivered in request.delivered:
        _draw_delivery(axes, delivered, origin_s, y)
    if request.outcome and request.outcome.kind == "canceled":
        axes.plot(
            request.outcome.at_s - origin_s, y + sum(EXECUTION) / 2, "x", color=INK,
            markersize=5, markeredgewidth=1.3, zorder=5, clip_on=True,
        )  # fmt: skip


def _draw_delivery(axes: Axes, delivered: Delivered, origin_s: float, y: float) -> None:
    at_s, due_s = delivered.at_s - origin_s, delivered.due_s - origin_s
    axes.plot([at_s, at_s], [y + EXECUTION[1], y + GENERATION[1] + 0.05], color=INK,
              linewidth=1.1, solid_capstyle="butt", zorder=4)  # fmt: skip
    late = at_s > due_s
    axes.plot(due_s, y + DUE, marker="v", markersize=4.2, markerfacecolor=INK if late else "white",
              markeredgecolor=INK, markeredgewidth=0.7, zorder=4)  # fmt: skip


def _label(axes: Axes, text: str, span: Span, y: float, window: Span) -> None:
    """Write what is executed into its box, if there is room."""
    start_s, end_s = max(span[0], window[0]), min(span[1], window[1])
    room_pt = (end_s - start_s) / (window[1] - window[0]) * WIDTH_PX * 0.925 / DPI * 72
    if len(text) * LABEL_PT * 0.56 + 3 < room_pt:
        axes.text((start_s + end_s) / 2, y + sum(EXECUTION) / 2, text, fontsize=LABEL_PT,
                  ha="center", va="center", color=INK, zorder=3, clip_on=True)  # fmt: skip


def _band(
    axes: Axes, spans: list[Span], y: float, band: Span, *, face: str, edge: str, zorder: int,
    hatch: str | None = None,
) -> None:  # fmt: skip
    if spans:
        axes.add_collection(
            PolyCollection(
                _boxes(spans, [(y + band[0], y + band[1])] * len(spans)),
                facecolors=face,
                edgecolors=edge,
                hatch=hatch,
                zorder=zorder,
                linewidths=0.0 if hatch else 0.7,
            )
        )


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
