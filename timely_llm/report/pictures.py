"""Plots and timelines as PNG files, in both colour schemes, without a browser."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from timely_llm.core.output_file import PICTURE, OutputFileError, write_file
from timely_llm.experiments.document import DocumentError, RunDocument, SpanKind, Timeline
from timely_llm.report.lanes import (
    BANDS,
    LONGEST_AGENT,
    alike,
    label_px,
    lane_limits,
    lanes,
    lanes_px,
    time_limits,
    urgent_marks,
)
from timely_llm.report.palette import SCHEMES, Scheme, looks
from timely_llm.report.series import Chart, charts
from timely_llm.report.words import file_name, short, slanted

DPI, CHART_IN, WIDE_IN, STRIP_IN, ROOM_IN, PX_PER_IN = 150, (5.2, 3.6), 9.0, 0.8, 1.3, 96
MARKERS = {
    "circle": "o", "square": "s", "triangle": "^", "diamond": "D", "inverted_triangle": "v",
    "star": "*",
}  # fmt: skip


def write_pictures(runs: Sequence[RunDocument], folder: Path, names: Sequence[str]) -> list[Path]:
    """Write each main measure and each timeline of runs, once for each colour scheme.

    Args:
        runs: with rows.
        folder: is made if it does not exist.
        names: of the runs: pictures' names begin with them, after a number if there are several.

    Returns:
        The pictures' paths.

    Raises:
        DocumentError: a picture cannot be written.
    """
    drawings: dict[str, Callable[[Scheme], Figure]] = {}
    for place, (run, name) in enumerate(zip(runs, names, strict=True), 1):
        words = (str(place), name) if len(runs) > 1 else (name,)
        for chart in charts(run):
            if chart.readable:
                drawings[file_name(*words, chart.title)] = partial(_chart, chart)
        for number, timeline in enumerate(run.timelines, 1):
            drawings[file_name(*words, "timeline", str(number))] = partial(_timeline, timeline)
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A text from a file is never TeX.
        with mpl.rc_context({"text.parse_math": False, "font.size": 9, "hatch.linewidth": 0.6}):
            for name, draw in drawings.items():
                for kind, scheme in SCHEMES.items():
                    paths.append(folder / f"{name}-{kind}.png")
                    write_file(paths[-1], PICTURE, draw(scheme).savefig)
    except OSError as error:
        raise DocumentError(f"cannot write pictures to {folder}: {error.strerror}") from error
    except OutputFileError as error:
        raise DocumentError(f"cannot write pictures to {folder}: {error}") from error
    return paths


def _chart(chart: Chart, scheme: Scheme) -> Figure:
    figure = _figure(CHART_IN, scheme)
    axes = figure.add_subplot()
    _style(axes, scheme)
    axes.grid(axis="y", color=scheme.grid)
    axes.set_axisbelow(True)
    axes.set_title(short(chart.title), loc="left", color=scheme.ink, fontweight="bold")
    axes.set_xlabel(short(chart.x_title), color=scheme.soft)
    labels = [short(place, 24) for place in chart.places]
    slant: dict[str, Any] = {"rotation": 40, "ha": "right"} if slanted(labels) else {}
    axes.set_xticks(range(len(labels)), labels, **slant)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_ylim(*chart.limits)
    for number, (series, look) in enumerate(
        zip(chart.series, looks(len(chart.series)), strict=True)
    ):
        x = [point.place + chart.shift(number) for point in series.points]
        y = [point.mean for point in series.points]
        color, label = scheme.series[look.color], short(series.name, 34)
        if chart.connected:
            axes.plot(x, y, color=color, marker=MARKERS[look.marker], label=label)
        else:
            axes.bar(x, y, chart.bar_width, color=color, edgecolor=scheme.page, linewidth=0,
                     hatch=2 * look.hatch, label=label)  # fmt: skip
        halves = [point.half if math.isfinite(point.half) else math.nan for point in series.points]
        axes.errorbar(x, y, halves, fmt="none", ecolor=scheme.ink, elinewidth=1, capsize=2.5)
    if len(chart.series) > 1 and not chart.told_by_place:
        _legend(figure, scheme)
    return figure


def _timeline(timeline: Timeline, scheme: Scheme) -> Figure:
    lanes_in = lanes_px(len(lanes(timeline))) / PX_PER_IN
    figure = _figure((WIDE_IN, STRIP_IN + ROOM_IN + lanes_in), scheme)
    strip, robots = figure.subplots(2, 1, sharex=True, height_ratios=[STRIP_IN, lanes_in])
    for axes in (strip, robots):
        _style(axes, scheme)
        axes.grid(axis="x", color=scheme.grid)
        axes.set_axisbelow(True)
    strip.set_title(short(timeline.name), loc="left", color=scheme.ink, fontweight="bold")
    _draw_steps(strip, timeline, scheme)
    _draw_lanes(robots, timeline, scheme)
    _legend(figure, scheme)
    return figure


def _draw_steps(axes: Axes, timeline: Timeline, scheme: Scheme) -> None:
    spans = [(step.start_s, step.start_s + step.duration_s) for step in timeline.steps]
    sizes = [(0.0, float(len(step.requests))) for step in timeline.steps]
    axes.add_collection(PolyCollection(_boxes(spans, sizes), facecolors=scheme.soft))
    axes.set_ylim(0, 1.15 * max([1.0, *(size for _, size in sizes)]))
    axes.set_ylabel("batch", color=scheme.soft)


def _draw_lanes(axes: Axes, timeline: Timeline, scheme: Scheme) -> None:
    places = lanes(timeline)
    for kind, urgent, spans in alike(timeline):
        low, high = BANDS[kind]
        boxes = _boxes(
            [(span.start_s, span.end_s) for span in spans],
            [(places[span.agent] + low, places[span.agent] + high) for span in spans],
        )
        label = f"{kind}, urgent" if urgent else kind
        axes.add_collection(PolyCollection(boxes, label=label, **_look(kind, urgent, scheme)))
    if marks := urgent_marks(timeline):
        axes.plot(
            *zip(*marks, strict=True), "v", color=scheme.urgent, markersize=5,
            markeredgecolor=scheme.ink, markeredgewidth=0.6, label="urgent request",
        )  # fmt: skip
    axes.set_xlim(*time_limits(timeline))
    axes.set_ylim(*lane_limits(len(places)))
    agents = [short(agent, LONGEST_AGENT) for agent in places]
    axes.set_yticks(list(places.values()), agents, fontsize=0.7 * label_px(len(places)))
    axes.set_xlabel("seconds since the first request", color=scheme.soft)


def _look(kind: SpanKind, urgent: bool, scheme: Scheme) -> dict[str, Any]:
    """Return what spans of a kind look like; urgent ones have a heavier outline."""
    color = scheme.urgent if urgent else scheme.normal
    width = 1.0 if urgent else 0.5
    match kind:
        case "generating":
            return {"facecolor": color, "edgecolor": scheme.ink if urgent else color,
                    "linewidth": 0.8 * width}  # fmt: skip
        case "waiting":
            edge = color if urgent else scheme.waiting
            return {"facecolor": "none", "edgecolor": edge, "hatch": "//////", "linewidth": 0}
        case "executing" | "listening":
            hatch = "..." if kind == "listening" else None
            return {"facecolor": mpl.colors.to_rgba(color, 0.3), "edgecolor": color,
                    "linewidth": width, "hatch": hatch}  # fmt: skip


def _boxes(
    across: Sequence[tuple[float, float]], up: Sequence[tuple[float, float]]
) -> list[list[tuple[float, float]]]:
    """Return the corners of rectangles."""
    return [
        [(left, low), (right, low), (right, high), (left, high)]
        for (left, right), (low, high) in zip(across, up, strict=True)
    ]


def _legend(figure: Figure, scheme: Scheme) -> None:
    figure.legend(
        loc="outside lower left", ncols=4, frameon=False, labelcolor=scheme.ink, fontsize=8
    )


def _figure(size_in: tuple[float, float], scheme: Scheme) -> Figure:
    figure = Figure(
        figsize=size_in,
        dpi=DPI,
        layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08),
        facecolor=scheme.page,
    )
    FigureCanvasAgg(figure)
    return figure


def _style(axes: Axes, scheme: Scheme) -> None:
    axes.set_facecolor(scheme.page)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(scheme.soft)
    axes.tick_params(colors=scheme.soft, labelcolor=scheme.ink)
