"""A run's measures as plots for its page: bars, or lines where there are many places."""

from __future__ import annotations

import math

from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d
from bokeh.models.renderers import DataRenderer
from bokeh.plotting import figure

from timely_llm.report.palette import Look, looks
from timely_llm.report.series import Chart, Series
from timely_llm.report.tables import number
from timely_llm.report.theme import Drawn, add_legend, canvas, plain, themed
from timely_llm.report.words import slanted

HEIGHT_PX = 330


def draw_chart(chart: Chart, name: str) -> figure:
    """Return a plot; `name` is that of the picture it is saved as."""
    low, high = chart.limits
    plot = canvas(
        name,
        height=HEIGHT_PX,
        title=plain(chart.title),
        x_range=Range1d(start=-0.6, end=len(chart.places) - 0.4),
        y_range=Range1d(start=low, end=high),
        x_axis_label=plain(chart.x_title),
    )
    _label_places(plot, chart)
    hovered: list[DataRenderer] = []
    entries = {}
    for place, (series, look) in enumerate(
        zip(chart.series, looks(len(chart.series)), strict=True)
    ):
        shift = chart.shift(place)
        source = _source(chart, series, shift)
        if chart.connected:
            drawn = _line(plot, source, look)
        else:
            drawn = [_bars(plot, source, look, chart.bar_width)]
        hovered.append(drawn[-1])
        entries[series.name] = drawn
    _intervals(plot, chart)
    told = [("setting", "@name"), (plain(chart.x_title), "@place"), (plain(chart.title), "@shown")]
    plot.add_tools(HoverTool(renderers=hovered, tooltips=told, visible=False))
    if len(entries) > 1 and not chart.told_by_place:
        add_legend(plot, entries)
    return plot


def _source(chart: Chart, series: Series, shift: float) -> ColumnDataSource:
    points = series.points
    return ColumnDataSource(
        {
            "x": [point.place + shift for point in points],
            "y": [point.mean for point in points],
            "name": [plain(series.name)] * len(points),
            "place": [plain(chart.places[point.place]) for point in points],
            "shown": [number(point.mean, point.half) for point in points],
        }
    )


def _bars(plot: figure, source: ColumnDataSource, look: Look, width: float) -> Drawn:
    bars = plot.vbar(x="x", top="y", width=width, source=source, hatch_pattern=look.hatch or None)
    themed(bars.glyph, lambda scheme: {
        "fill_color": scheme.series[look.color], "line_color": scheme.series[look.color],
        "hatch_color": scheme.page,
    })  # fmt: skip
    return bars


def _line(plot: figure, source: ColumnDataSource, look: Look) -> list[Drawn]:
    line = plot.line("x", "y", source=source, line_width=2)
    themed(line.glyph, lambda scheme: {"line_color": scheme.series[look.color]})
    marks = plot.scatter("x", "y", source=source, size=9, marker=look.marker)
    themed(marks.glyph, lambda scheme: {
        "fill_color": scheme.series[look.color], "line_color": scheme.page,
    })  # fmt: skip
    return [line, marks]


def _intervals(plot: figure, chart: Chart) -> None:
    """Draw the intervals that are known, with a bar at each end."""
    known = [
        (point.place + chart.shift(number), point.mean - point.half, point.mean + point.half)
        for number, series in enumerate(chart.series)
        for point in series.points
        if math.isfinite(point.half)
    ]
    x, low, high = ([place[column] for place in known] for column in range(3))
    drawn: list[Drawn] = [
        plot.segment(x, low, x, high, line_width=1.5),
        plot.scatter(x * 2, low + high, marker="dash", size=8, line_width=1.5),
    ]
    for one in drawn:
        themed(one.glyph, lambda scheme: {"line_color": scheme.ink})


def _label_places(plot: figure, chart: Chart) -> None:
    labels = [plain(place, 24) for place in chart.places]
    plot.xaxis.ticker = FixedTicker(ticks=list(range(len(labels))))
    plot.xaxis.major_label_overrides = {n: labels[n] for n in range(len(labels))}
    plot.xgrid.visible = False
    if slanted(labels):
        plot.xaxis.major_label_orientation = 0.7
