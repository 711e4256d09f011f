"""A timeline for the page: a lane for each agent, and above them the batch of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bokeh.layouts import gridplot
from bokeh.models import (
    BasicTicker,
    BoxZoomTool,
    ColumnDataSource,
    FixedTicker,
    GridPlot,
    HoverTool,
    PanTool,
    Range1d,
    ResetTool,
    WheelZoomTool,
    ZoomInTool,
    ZoomOutTool,
)
from bokeh.models.renderers import DataRenderer
from bokeh.plotting import figure

from timely_llm.experiments.document import Span, SpanKind, Timeline
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
from timely_llm.report.palette import Scheme
from timely_llm.report.theme import Drawn, Style, add_legend, canvas, plain, themed

STRIP_PX, LANES_PX, LEFT_PX = 120, 60, 90

STEP = """<div style="max-width: 17rem; overflow-wrap: anywhere">
<b>@left{0.000} s, @ms ms, a batch of @top</b><br>@who</div>"""
"""What is said of a step; BokehJS escapes what it puts in."""


def draw_timeline(timeline: Timeline, name: str) -> GridPlot:
    """Return a plot of all spans and steps; `name` is that of the picture it is saved as.

    Both parts share a time axis, and only that can be zoomed. The steps' source is called `steps`:
    its column `who` has indices of requests, which the page's script turns into names, because as
    text they would be most of the page.
    """
    low, high = time_limits(timeline)
    time = Range1d(start=low, end=high, bounds=(low, high))
    parts: list[list[figure | None]] = [[_agents(timeline, time, name)]]
    if timeline.steps:
        parts.insert(0, [_strip(timeline, time, name)])
    grid: GridPlot = gridplot(parts, sizing_mode="stretch_width", toolbar_location="above")
    grid.toolbar.logo = None
    return grid


def _part(name: str, height: int, time: Range1d, y_range: Range1d) -> figure:
    plot = canvas(
        name, height=height, x_range=time, y_range=y_range, min_border_left=LEFT_PX,
        min_border_right=8, min_border_top=2,
    )  # fmt: skip
    drag = PanTool(dimensions="width")
    plot.add_tools(
        drag,
        BoxZoomTool(dimensions="width"),
        WheelZoomTool(dimensions="width", modifiers={"ctrl": True}),
        ZoomInTool(dimensions="width"),
        ZoomOutTool(dimensions="width"),
        ResetTool(),
    )
    plot.toolbar.active_drag = drag
    plot.ygrid.visible = False
    return plot


def _strip(timeline: Timeline, time: Range1d, name: str) -> figure:
    sizes = [len(step.requests) for step in timeline.steps]
    plot = _part(name, STRIP_PX, time, Range1d(start=0.0, end=1.15 * max(1, *sizes)))
    plot.yaxis.axis_label = "batch"
    plot.yaxis.ticker = BasicTicker(desired_num_ticks=3, min_interval=1, num_minor_ticks=0)
    plot.xaxis.visible = False
    source = ColumnDataSource(
        {
            "left": [step.start_s for step in timeline.steps],
            "right": [step.start_s + step.duration_s for step in timeline.steps],
            "top": sizes,
            "ms": [f"{1e3 * step.duration_s:.1f}" for step in timeline.steps],
            "who": [list(step.requests) for step in timeline.steps],
        },
        name="steps",
    )
    bars = plot.quad("left", "right", "top", 0, source=source, fill_alpha=0.7, line_width=0.5)
    themed(bars.glyph, lambda scheme: {"fill_color": scheme.soft, "line_color": scheme.soft})
    plot.add_tools(HoverTool(renderers=[bars], tooltips=STEP))
    return plot


def _agents(timeline: Timeline, time: Range1d, name: str) -> figure:
    places = lanes(timeline)
    low, high = lane_limits(len(places))
    y_range = Range1d(start=low, end=high)
    plot = _part(name, LANES_PX + lanes_px(len(places)), time, y_range)
    plot.xaxis.axis_label = "seconds since the first request"
    plot.yaxis.ticker = FixedTicker(ticks=sorted(places.values()))
    plot.yaxis.major_label_overrides = {
        place: plain(agent, LONGEST_AGENT) for agent, place in places.items()
    }
    plot.yaxis.major_label_text_font_size = f"{label_px(len(places)):g}px"
    plot.yaxis.major_tick_in = plot.yaxis.major_tick_out = 0
    entries: dict[str, list[Drawn]] = {}
    for kind, urgent, spans in alike(timeline):
        quads = _quads(plot, timeline, spans, places)
        themed(quads.glyph, _STYLES[kind](urgent))
        entries[f"{kind}, urgent" if urgent else kind] = [quads]
    told = [
        ("agent", "@agent"), ("request", "@request"), ("doing", "@kind"), ("what", "@label"),
        ("from", "@left{0.000} to @right{0.000} s"), ("for", "@long s"),
    ]  # fmt: skip
    hovered: list[DataRenderer] = [renderer for drawn in entries.values() for renderer in drawn]
    plot.add_tools(HoverTool(renderers=hovered, tooltips=told))
    if marks := urgent_marks(timeline):
        entries["urgent request"] = [_marks(plot, marks)]
    if entries:
        add_legend(plot, entries).click_policy = "hide"
    return plot


def _quads(
    plot: figure, timeline: Timeline, spans: Sequence[Span], places: dict[str, int]
) -> Drawn:
    low, high = BANDS[spans[0].kind]
    source = ColumnDataSource(
        {
            "left": [span.start_s for span in spans],
            "right": [span.end_s for span in spans],
            "bottom": [places[span.agent] + low for span in spans],
            "top": [places[span.agent] + high for span in spans],
            "agent": [plain(span.agent) for span in spans],
            "request": [plain(timeline.requests[span.request]) for span in spans],
            "kind": [spans[0].kind] * len(spans),
            "label": [plain(span.label, 200) for span in spans],
            "long": [f"{span.end_s - span.start_s:.3f}" for span in spans],
        }
    )
    return plot.quad("left", "right", "top", "bottom", source=source)


def _marks(plot: figure, marks: Sequence[tuple[float, float]]) -> Drawn:
    x, y = ([mark[column] for mark in marks] for column in range(2))
    drawn = plot.scatter(x, y, marker="inverted_triangle", size=9)
    themed(drawn.glyph, lambda scheme: {"fill_color": scheme.urgent, "line_color": scheme.ink})
    return drawn


Styled = Callable[[bool], Callable[[Scheme], Style]]


def _hue(scheme: Scheme, urgent: bool) -> str:
    return scheme.urgent if urgent else scheme.normal


def _solid(urgent: bool) -> Callable[[Scheme], Style]:
    return lambda scheme: {
        "fill_color": _hue(scheme, urgent),
        "line_color": scheme.ink if urgent else scheme.normal,
        "line_width": 1.0 if urgent else 0.5,
    }


def _pale(hatch: str | None) -> Styled:
    return lambda urgent: (
        lambda scheme: {
            "fill_color": _hue(scheme, urgent),
            "fill_alpha": 0.3,
            "line_color": _hue(scheme, urgent),
            "line_width": 1.6 if urgent else 0.8,
            "hatch_pattern": hatch,
            "hatch_color": _hue(scheme, urgent),
        }
    )


def _hatched(urgent: bool) -> Callable[[Scheme], Style]:
    return lambda scheme: {
        "fill_color": None,
        "line_color": scheme.urgent if urgent else None,
        "line_width": 1.0,
        "hatch_pattern": "/",
        "hatch_color": scheme.urgent if urgent else scheme.waiting,
        "hatch_scale": 7.0,
        "hatch_weight": 0.8,
    }


_STYLES: dict[SpanKind, Styled] = {
    "waiting": _hatched,
    "executing": _pale(None),
    "listening": _pale("."),
    "generating": _solid,
}
