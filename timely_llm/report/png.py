"""Timelines and charts as PNG files, by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from timely_llm.core.output_file import PICTURE, OutputFileError, write_file
from timely_llm.experiments.results.document import DocumentError
from timely_llm.report.load import LoadedRun
from timely_llm.report.palette import LIGHT, SCHEMES, Hue, Scheme, Tone, looks
from timely_llm.report.series import Chart, charts
from timely_llm.report.timeline import (
    AGENT_KINDS,
    MODEL_KINDS,
    STAGE_KINDS,
    Bar,
    BarKind,
    EngineStep,
    MarkKind,
    StageSpan,
    Timeline,
)
from timely_llm.report.words import file_name, short, slanted

WIDTH_PX, DPI = 1600, 150
LEFT, RIGHT = 0.075, 0.99
MOST_HEIGHT_IN = 80.0
LABELLED_IN = 0.3
"""Least height of a lane with labels in its bars, inches."""
MIN_PX = 2.0
FONT_PT, LABELS_PT = 8.5, (7.0, 6.0)
HAIRLINE_S = 0.01
LONGEST_AGENT = 13
BATCH_IN, STAGE_IN = 0.45, 0.17
LEGEND_COLUMNS, LEGEND_IN = {False: 10, True: 8}, 0.19
"""Columns of legends without and with stages, and the height of a row, inches."""
CHART_IN = (5.2, 3.6)
LETTER_IN, SWATCH_IN = 0.062, 0.55
"""Width of a letter in the legend of charts, and of all else of an entry, inches."""
PANEL_IN, PANEL_DPI = (3.4, 3.0), 90
"""Size of one of several charts side by side, and the pixels of an inch there."""
MARKERS = {
    "circle": "o", "square": "s", "triangle": "^", "diamond": "D", "inverted_triangle": "v",
    "star": "*",
}  # fmt: skip

# Within a lane of height 1, measured upwards from its middle.
MODEL, KEPT, AGENT, DELIVERED, DUE = (0.06, 0.23), (0.13, 0.16), (-0.42, 0.02), (0.25, 0.34), 0.42
STAGE_HALF = {False: 0.36, True: 0.1}
"""Half of the height of what a stage computes, and of what it sends, in its row of height 1."""
Extent = tuple[float, float]


def write_pictures(runs: Sequence[LoadedRun], folder: Path, names: Sequence[str]) -> list[Path]:
    """Write each main measure and each timeline of runs, in both colour schemes.

    Args:
        runs: runs with rows.
        folder: folder of the pictures; it is made if it does not exist.
        names: names of the runs. File names begin with them, after a number if there are several.

    Returns:
        The pictures' paths.

    Raises:
        DocumentError: a picture cannot be written.
    """
    drawings: dict[str, Callable[[Scheme], Figure]] = {}
    for place, (run, name) in enumerate(zip(runs, names, strict=True), 1):
        words = (str(place), name) if len(runs) > 1 else (name,)
        for chart in charts(run.document):
            if chart.readable:
                drawings[file_name(*words, chart.title)] = partial(_chart, chart)
        for number, timeline in enumerate(run.timelines, 1):
            drawings[file_name(*words, "timeline", str(number))] = partial(draw, timeline)
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw_in in drawings.items():
            for kind, scheme in SCHEMES.items():
                paths.append(folder / f"{name}-{kind}.png")
                _save(paths[-1], draw_in, scheme)
    except OSError as error:
        raise DocumentError(f"cannot write pictures to {folder}: {error.strerror}") from error
    except OutputFileError as error:
        raise DocumentError(f"cannot write pictures to {folder}: {error}") from error
    return paths


def write_timeline(timeline: Timeline, path: Path, scheme: Scheme = LIGHT) -> None:
    """Write a timeline as a picture of the kind of the path's suffix.

    Raises:
        OutputFileError: the picture cannot be written.
    """
    _save(path, partial(draw, timeline), scheme)


def _save(path: Path, draw_in: Callable[[Scheme], Figure], scheme: Scheme) -> None:
    kind = path.suffix[1:] or "png"
    # Texts of files must not be parsed as TeX.
    with mpl.rc_context({"text.parse_math": False, "font.size": 9, "hatch.linewidth": 0.6}):
        figure = draw_in(scheme)
        write_file(path, PICTURE, lambda file: figure.savefig(file, format=kind))


def draw(timeline: Timeline, scheme: Scheme) -> Figure:
    """Return a timeline as a figure: a lane for each agent, below the batch size of each step."""
    count = max(len(timeline.lanes), 1)
    lane_in = next((height for most, height in _LANE_IN if count <= most), _CROWDED_IN)
    lane_in = min(lane_in, MOST_HEIGHT_IN / count)
    strips = timeline.servers if timeline.steps else []
    rows = {server: timeline.stage_rows(server) for server in strips}
    # Of each server: its batches, then a row for each of its stages.
    heights = [
        height
        for server in strips
        for height in (BATCH_IN, *([STAGE_IN * len(rows[server])] if rows[server] else ()))
    ]
    strip_in = sum(heights)
    entries = len(timeline.bar_legend()) + len(timeline.mark_legend()) + len(timeline.outages)
    entries += len(STAGE_KINDS) * timeline.has_stages
    legend_in = LEGEND_IN * math.ceil(entries / LEGEND_COLUMNS[timeline.has_stages])
    top_in = 0.32 + legend_in
    height_in = top_in + 0.42 + strip_in + 0.04 + lane_in * count
    figure = Figure(figsize=(WIDTH_PX / DPI, height_in), dpi=DPI, facecolor=scheme.page)
    FigureCanvasAgg(figure)
    heights.append(lane_in * count)
    parts = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False,
        gridspec_kw={"height_ratios": heights, "hspace": 0.04},
    )[:, 0]  # fmt: skip
    figure.subplots_adjust(
        left=LEFT, right=RIGHT, top=1 - top_in / height_in, bottom=0.42 / height_in
    )
    for axes in parts:
        _style(axes, scheme)
    free = iter(parts)
    for server in strips:
        _draw_batch(next(free), timeline, server, scheme)
        if rows[server]:
            hue = server_hue(timeline, server, scheme)
            _draw_stages(next(free), rows[server], hue.strong if hue else scheme.soft)
    _Lanes(parts[-1], timeline, scheme, lane_in).draw()
    figure.suptitle(
        short(timeline.title, 110), x=LEFT, y=1 - 0.06 / height_in, ha="left", va="top",
        fontsize=FONT_PT + 1.5, fontweight="bold", color=scheme.ink,
    )  # fmt: skip
    _timeline_legend(figure, timeline, scheme, 1 - 0.27 / height_in)
    return figure


_LANE_IN = ((24, 0.47), (60, 0.3), (150, 0.16))
_CROWDED_IN = 0.1


def _draw_batch(axes: Axes, timeline: Timeline, server: str, scheme: Scheme) -> None:
    """Draw the batch size of each step of a server, and the times in which it was gone."""
    steps = timeline.steps_of(server)
    heights = [float(step.sequences) for step in steps]
    made = _boxes(filled(steps), [(0.0, height) for height in heights])
    hue = server_hue(timeline, server, scheme)
    color = hue.strong if hue else scheme.soft
    axes.add_collection(PolyCollection(made, facecolors=color, linewidths=0))
    top = timeline.most_sequences
    gone = list(timeline.outages.get(server, ()))
    look = bar_look("failed", "failed", scheme)
    axes.add_collection(PolyCollection(_boxes(gone, [(0.0, top)] * len(gone)), **look))
    for gone_s, back_s in gone:
        axes.text((gone_s + back_s) / 2, top / 2, "lost", color=scheme.ink, fontsize=LABELS_PT[0],
                  ha="center", va="center", clip_on=True,
                  bbox={"facecolor": look["facecolor"], "linewidth": 0, "pad": 0.8})  # fmt: skip
    axes.set_ylim(0, top * 1.15)
    axes.set_yticks([0, top])
    axes.set_ylabel(f"batch {server}".strip(), rotation=0, ha="right", va="center",
                    fontsize=FONT_PT, color=color)  # fmt: skip
    axes.tick_params(axis="x", length=0)


def _draw_stages(axes: Axes, rows: Sequence[Sequence[StageSpan]], color: str) -> None:
    """Draw a row for each stage of a server: what it computed and sent; the rest was idle."""
    for sends, half in STAGE_HALF.items():
        spans = [
            ((span.start_s, span.end_s), (-place - half, -place + half))
            for place, row in enumerate(rows)
            for span in row
            if span.sends is sends
        ]
        if spans:
            boxes = _boxes(*zip(*spans, strict=True))
            axes.add_collection(PolyCollection(boxes, facecolors=color, linewidths=0))
    axes.set_ylim(0.5 - len(rows), 0.5)
    names = [f"stage {place}" for place in range(1, len(rows) + 1)]
    axes.set_yticks([-place for place in range(len(rows))], names)
    axes.tick_params(length=0, labelsize=FONT_PT - 1.0)


def server_hue(timeline: Timeline, server: str, scheme: Scheme) -> Hue | None:
    """Return the colours of one of several servers; None: there is one server."""
    if server not in timeline.outages:
        return None
    return scheme.servers[timeline.servers.index(server) % len(scheme.servers)]


def filled(steps: Sequence[EngineStep]) -> list[Extent]:
    """Return the times of steps, extended over short gaps between them.

    A picture would show the gaps as white hairlines.
    """
    next_s = [*(step.start_s for step in steps[1:]), math.inf][: len(steps)]
    return [
        (step.start_s, later_s if later_s - step.end_s < HAIRLINE_S else step.end_s)
        for step, later_s in zip(steps, next_s, strict=True)
    ]


class _Lanes:
    """Draws all lanes of a timeline; the height of a lane is 1 on the axes."""

    def __init__(self, axes: Axes, timeline: Timeline, scheme: Scheme, lane_in: float) -> None:
        self._axes, self._timeline, self._scheme = axes, timeline, scheme
        self._window = timeline.limits
        self._lane_in = lane_in

    def draw(self) -> None:
        axes, lanes = self._axes, self._timeline.lanes
        for place in range(len(lanes) - 1):
            axes.axhline(-place - 0.5, color=self._scheme.line, linewidth=0.6, zorder=0)
        room_s = 0.006 * (self._window[1] - self._window[0])
        axes.set_xlim(self._window[0] - room_s, self._window[1] + room_s)
        axes.set_ylim(0.5 - max(len(lanes), 1), 0.5)
        names = [short(lane.agent, LONGEST_AGENT) for lane in lanes]
        size_pt = min(FONT_PT, 0.75 * 72 * self._lane_in)
        axes.set_yticks([-place for place in range(len(lanes))], names, fontsize=size_pt)
        axes.set_xlabel("seconds since the first request", fontsize=FONT_PT, labelpad=2,
                        color=self._scheme.soft)  # fmt: skip
        axes.tick_params(axis="y", length=0)
        if not any(lane.bars or lane.marks for lane in lanes):
            axes.text(0.5, 0.5, "no requests", transform=axes.transAxes, fontsize=FONT_PT + 2,
                      ha="center", va="center", color=self._scheme.soft)  # fmt: skip
        placed = [(bar, -place) for place, lane in enumerate(lanes) for bar in lane.bars]
        self._bars(placed)
        if self._lane_in >= LABELLED_IN:
            for bar, y in placed:
                self._label(bar, y)
        self._marks()

    def _bars(self, placed: Sequence[tuple[Bar, float]]) -> None:
        """Draw the bars of each look together, each at least `MIN_PX` wide."""
        least_s = MIN_PX * (self._window[1] - self._window[0]) / (WIDTH_PX * (RIGHT - LEFT))
        groups: dict[tuple[BarKind, Tone, str], list[tuple[Bar, float]]] = {}
        for bar, y in placed:
            groups.setdefault((bar.kind, bar.tone, bar.server), []).append((bar, y))
        for (kind, tone, server), members in groups.items():
            low, high = band(kind)
            across = [(bar.start_s, max(bar.end_s, bar.start_s + least_s)) for bar, _ in members]
            up = [(y + low, y + high) for _, y in members]
            hue = server_hue(self._timeline, server, self._scheme)
            look = bar_look(kind, tone, self._scheme, hue)
            self._axes.add_collection(PolyCollection(_boxes(across, up), zorder=2, **look))

    def _marks(self) -> None:
        """Draw deliveries as ticks, due times as triangles and ends of requests as crosses."""
        places: dict[MarkKind, list[tuple[float, float]]] = {}
        for place, lane in enumerate(self._timeline.lanes):
            for mark in lane.marks:
                places.setdefault(mark.kind, []).append((mark.at_s, -place))
        for kind, at in places.items():
            x, y = np.array(at).T
            if kind in ("delivered", "asked"):
                low, high = DELIVERED if kind == "delivered" else AGENT
                self._axes.vlines(x, y + low, y + high, color=self._scheme.ink, zorder=4,
                                  linewidth=0.7 if kind == "delivered" else 1.2)  # fmt: skip
            else:
                height = DUE if kind.startswith("due") else sum(AGENT) / 2
                self._axes.plot(x, y + height, **mark_look(kind, self._scheme), zorder=5)

    def _label(self, bar: Bar, y: float) -> None:
        """Write the label of a bar, if it has room."""
        low, high = self._window
        start_s, end_s = max(bar.start_s, low), min(bar.end_s, high)
        room_pt = (end_s - start_s) / (high - low) * WIDTH_PX * (RIGHT - LEFT) / DPI * 72 - 3.5
        if not bar.label or bar.kind not in AGENT_KINDS:
            return
        behind = None
        if bar.kind == "failed":  # keeps the hatch off the letters
            behind = {"facecolor": self._scheme.tones["failed"].pale, "linewidth": 0, "pad": 0.8}
        for size_pt in LABELS_PT:
            if len(bar.label) * size_pt * 0.61 < room_pt:
                self._axes.text(
                    (start_s + end_s) / 2, y + sum(AGENT) / 2, bar.label, color=self._scheme.ink,
                    fontsize=size_pt, ha="center", va="center", zorder=3, bbox=behind,
                )  # fmt: skip
                return


def band(kind: BarKind) -> Extent:
    """Return the lower and the upper edge of the bars of a kind in a lane."""
    if kind == "suspended":
        return KEPT
    return MODEL if kind in MODEL_KINDS else AGENT


def bar_look(kind: BarKind, tone: Tone, scheme: Scheme, hue: Hue | None = None) -> dict[str, Any]:
    """Return the look of bars of a kind and a tone, as options of a collection or a patch.

    Args:
        kind: what goes on.
        tone: the class of the request.
        scheme: colours.
        hue: of one of several servers, in the place of the tone's.
    """
    pair = hue or scheme.tones[tone]
    match kind:
        case "generating" | "computing":
            return {"facecolor": pair.strong, "linewidth": 0}
        case "suspended":
            return {"facecolor": pair.pale, "linewidth": 0}
        case "blocked":
            return {"facecolor": "none", "edgecolor": pair.strong, "hatch": "||||", "linewidth": 0}
        case "waiting":
            return {"facecolor": "none", "edgecolor": scheme.idle, "hatch": "//////",
                    "linewidth": 0}  # fmt: skip
        case "pre-empted":
            return {"facecolor": pair.pale, "edgecolor": pair.strong, "linewidth": 1.1,
                    "linestyle": (0, (3, 2))}  # fmt: skip
        case "failed":
            failed = scheme.tones["failed"]
            return {"facecolor": failed.pale, "edgecolor": failed.strong, "hatch": "xx",
                    "linewidth": 0.7}  # fmt: skip
        case "executing" | "listening" | "sending":
            return {"facecolor": pair.pale, "edgecolor": pair.strong, "linewidth": 0.7}


def mark_look(kind: MarkKind, scheme: Scheme) -> dict[str, Any]:
    """Return the look of marks of a kind, as options of a matplotlib line."""
    failed = scheme.tones["failed"].strong
    marker, face, edge, size, width = {
        "asked": ("|", scheme.ink, scheme.ink, 6.0, 1.2),
        "delivered": ("|", scheme.ink, scheme.ink, 5.0, 0.8),
        "due, met": ("v", scheme.page, scheme.ink, 3.8, 0.6),
        "due, missed": ("v", scheme.ink, scheme.ink, 3.8, 0.6),
        "pre-empted": ("x", scheme.ink, scheme.ink, 5.0, 1.3),
        "canceled": ("x", scheme.soft, scheme.soft, 5.0, 1.3),
        "failed": ("X", failed, scheme.page, 7.0, 0.6),
    }[kind]
    return {"linestyle": "", "marker": marker, "markerfacecolor": face, "markeredgecolor": edge,
            "markersize": size, "markeredgewidth": width}  # fmt: skip


def _timeline_legend(figure: Figure, timeline: Timeline, scheme: Scheme, y: float) -> None:
    entries: dict[str, Any] = {}
    for kind, tones in timeline.bar_legend():
        if timeline.outages and kind in MODEL_KINDS:
            for server in timeline.servers if kind == "generating" else ():
                hue = server_hue(timeline, server, scheme)
                entries[f"generating: {server}"] = Patch(**bar_look(kind, "normal", scheme, hue))
            continue
        swatches = tuple(Patch(**bar_look(kind, tone, scheme)) for tone in tones)
        named = kind in ("generating", "executing") and "(" not in "".join(entries)
        entries[f"{kind} ({', '.join(tones)})" if named else kind] = swatches
    if timeline.has_stages:
        for sends, (name, _) in STAGE_KINDS.items():
            look: dict[str, Any] = {"color": scheme.soft, "linewidth": 0}
            entries[name] = Line2D([], [], **look | {"linewidth": 2}) if sends else Patch(**look)
    for mark in timeline.mark_legend():
        entries[mark] = Line2D([], [], **mark_look(mark, scheme))
    # Matplotlib fills a legend by column; readers read by row.
    columns = LEGEND_COLUMNS[timeline.has_stages]
    names = [name for column in range(columns) for name in [*entries][column::columns]]
    figure.legend(
        [entries[name] for name in names], names, ncol=columns, loc="upper left",
        bbox_to_anchor=(0.06, y), frameon=False, fontsize=FONT_PT - 1.0, handlelength=1.8,
        columnspacing=1.0, labelspacing=0.3, borderaxespad=0.0, handletextpad=0.5,
        labelcolor=scheme.ink, handler_map={tuple: HandlerTuple(ndivide=None, pad=0.2)},
    )  # fmt: skip


def write_charts(drawn: Sequence[Chart], path: Path, scheme: Scheme = LIGHT) -> None:
    """Write charts side by side as one picture, with one legend.

    Args:
        drawn: at least one chart; all have the same series.
        path: the picture; its suffix names its kind.
        scheme: colours.

    Raises:
        OutputFileError: the picture cannot be written.
    """
    _save(path, partial(_charts, drawn, size_in=PANEL_IN, dpi=PANEL_DPI), scheme)


def _chart(chart: Chart, scheme: Scheme) -> Figure:
    return _charts([chart], scheme, size_in=CHART_IN, dpi=DPI)


def _charts(
    drawn: Sequence[Chart], scheme: Scheme, size_in: tuple[float, float], dpi: int
) -> Figure:
    figure = Figure(
        figsize=(size_in[0] * len(drawn), size_in[1]),
        dpi=dpi,
        layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08),
        facecolor=scheme.page,
    )
    FigureCanvasAgg(figure)
    for axes, chart in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        _draw_chart(axes, chart, scheme)
    first = drawn[0]
    if len(first.series) > 1 and not first.named_by_place:
        handles, labels = figure.axes[0].get_legend_handles_labels()
        widest_in = LETTER_IN * max(map(len, labels)) + SWATCH_IN
        columns = min(4 * len(drawn), max(int(size_in[0] * len(drawn) / widest_in), 1))
        figure.legend(
            handles, labels, loc="outside lower left", ncols=columns, frameon=False,
            labelcolor=scheme.ink, fontsize=8,
        )  # fmt: skip
    return figure


def _draw_chart(axes: Axes, chart: Chart, scheme: Scheme) -> None:
    _style(axes, scheme)
    axes.grid(axis="y", color=scheme.line)
    axes.set_axisbelow(True)
    axes.set_title(short(chart.title), loc="left", color=scheme.ink, fontweight="bold")
    axes.set_xlabel(short(chart.x_title), color=scheme.soft)
    labels = [short(place, 32) for place in chart.places]
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


def _boxes(across: Iterable[Extent], up: Iterable[Extent]) -> list[list[Extent]]:
    """Return the corners of rectangles."""
    return [
        [(left, low), (right, low), (right, high), (left, high)]
        for (left, right), (low, high) in zip(across, up, strict=True)
    ]


def _style(axes: Axes, scheme: Scheme) -> None:
    axes.set_facecolor(scheme.page)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(scheme.soft)
    axes.tick_params(colors=scheme.soft, labelcolor=scheme.ink, labelsize=FONT_PT)
