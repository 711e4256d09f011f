"""Timelines and charts as HTML and SVG, for any width and for both colour schemes.

Places along the time axis are percentages, so that a timeline fits phones and wide screens. Colours
are the CSS variables of `palette.style_variables`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

from markupsafe import Markup

from timely_llm.core.text import count_of
from timely_llm.report.palette import LIGHT, Tone, looks
from timely_llm.report.series import Chart, Series
from timely_llm.report.tables import number
from timely_llm.report.timeline import (
    AGENT_KINDS,
    BARS,
    MARKS,
    MODEL_KINDS,
    STAGE_KINDS,
    Bar,
    BarKind,
    EngineStep,
    Lane,
    MarkKind,
    StageSpan,
    Timeline,
    ticks,
)
from timely_llm.report.words import short, slanted

UNITS, LEAST = 10_000, 10
"""Lengths of the time axis and of the shortest bar, in the coordinates of the model's work."""
THIN, SLIM = 0.018, 0.055
"""Shares of the time axis below which a bar has no label: on a wide screen, on a phone."""
EDGE = 0.03
DENSE = 16
"""More lanes than this are drawn closer together."""
REST_S = 0.01
"""Steps that follow each other within this time are drawn without a gap."""
MOST_TICKS, FINE = 8, 5
"""Most ticks, and the number of fine ticks for each in an enlarged timeline."""

CLASSES: dict[BarKind | MarkKind, str] = {
    "waiting": "wait",
    "generating": "gen",
    "suspended": "susp",
    "blocked": "block",
    "executing": "exec",
    "listening": "exec",
    "computing": "gen",
    "sending": "exec",
    "pre-empted": "pre",
    "failed": "fail",
    "asked": "asked",
    "delivered": "out",
    "due, met": "met",
    "due, missed": "late",
    "canceled": "gone",
}


@lru_cache(maxsize=64)
def timeline_html(timeline: Timeline) -> Markup:
    """Return a timeline as an element, with its legend."""
    low, high = timeline.limits
    axis = _Axis(low, high)
    lanes = Markup("").join(_lane(lane, axis, timeline.servers) for lane in timeline.lanes)
    strips = (
        _strip(timeline, server, axis) + _stages(timeline, server, axis)
        for server in timeline.servers * bool(timeline.steps)
    )
    strip = Markup("").join(strips)
    coarse = ticks(low, high, MOST_TICKS)
    fine = [at_s for at_s in ticks(low, high, MOST_TICKS * FINE) if at_s not in coarse]
    grid = Markup("").join(Markup('<u style="left:{}"></u>').format(axis.at(t)) for t in coarse)
    numbers = Markup("").join(
        Markup('<span class="{}" style="left:{}">{}</span>').format(
            _edge(axis.share(at_s)) + (" fine" if at_s in fine else ""), axis.at(at_s), f"{at_s:g}"
        )
        for at_s in sorted((*coarse, *fine))
    )
    return Markup(
        '<div class="timeline{}" data-low="{}" data-high="{}">{}'
        '<div class="scroll" tabindex="0" role="figure" aria-label="{}">'
        '<div class="sheet"><div class="grid">{}</div>{}{}'
        '<div class="lane axis"><span class="agent"></span><div class="bars">{}</div></div>'
        '</div></div><p class="unit">seconds since the first request</p></div>'
    ).format(
        " dense" if len(timeline.lanes) > DENSE else "", f"{low:g}", f"{high:g}",
        _legend(timeline), alternative(timeline), grid, strip, lanes, numbers,
    )  # fmt: skip


def _edge(share: float) -> str:
    """Return the CSS class of a number that would leave the axis at its beginning or end."""
    return "first" if share < EDGE else "last" if share > 1 - EDGE else ""


def alternative(timeline: Timeline) -> str:
    """Return a timeline's contents in words, for readers without pictures."""
    people = sum(lane.is_person for lane in timeline.lanes)
    counts = [count_of(len(timeline.lanes) - people, "robot"), count_of(people, "person", "people")]
    marks = [mark.kind for lane in timeline.lanes for mark in lane.marks]
    kinds = [bar.kind for bar in timeline.bars]
    facts = [
        (marks.count("due, missed"), "delivery was late", "deliveries were late"),
        (marks.count("pre-empted"), "plan was pre-empted", "plans were pre-empted"),
        (kinds.count("failed"), "segment failed", "segments failed"),
    ]
    low, high = timeline.limits
    known = [f"{count} {one if count == 1 else many}" for count, one, many in facts if count]
    agents = " and ".join(word for word in counts if not word.startswith("0 "))
    words = f"Timeline of {agents or 'no requests'} over {high - low:.0f} s. {', '.join(known)}"
    return words.strip()


class _Axis:
    """Turns seconds into places."""

    def __init__(self, low_s: float, high_s: float) -> None:
        self._low_s, self._span_s = low_s, high_s - low_s

    def share(self, at_s: float) -> float:
        """Return a time as a share of the axis, clipped to it."""
        return min(max((at_s - self._low_s) / self._span_s, 0.0), 1.0)

    def at(self, at_s: float) -> str:
        """Return a time as a CSS length."""
        return percent(self.share(at_s))

    def units(self, at_s: float) -> int:
        """Return a time in the coordinates of the model's work."""
        return round(UNITS * self.share(at_s))


def percent(share: float) -> str:
    """Return a share as a short CSS percentage."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


def _lane(lane: Lane, axis: _Axis, servers: Sequence[str]) -> Markup:
    requests = lane.requests
    number = {name: place for place, name in enumerate(requests)}
    bars = Markup("").join(
        _bar(bar, number[bar.request], axis)
        for bar in sorted(lane.bars, key=lambda bar: bar.start_s)
        if bar.kind in AGENT_KINDS
    )
    marks = Markup("").join(
        Markup('<b class="{}" style="left:{}" data-r="{}"{}></b>').format(
            CLASSES[mark.kind], axis.at(mark.at_s), number[mark.request],
            Markup(' data-l="{}"').format(short(mark.label)) if mark.label else "",
        )
        for mark in lane.marks
    )  # fmt: skip
    return Markup(
        '<div class="lane" data-requests="{}"><span class="agent">{}</span>'
        '<div class="bars">{}{}{}</div></div>'
    ).format("\n".join(short(name) for name in requests), short(lane.agent, 24),
             _model(lane, axis, servers), bars, marks)  # fmt: skip


def _bar(bar: Bar, request: int, axis: _Axis) -> Markup:
    """Return a bar of an agent, with its label. CSS hides labels without room."""
    share = axis.share(bar.end_s) - axis.share(bar.start_s)
    room = " thin" if share < THIN else " slim" if share < SLIM else ""
    label = "" if bar.kind == "waiting" else short(bar.label)
    return Markup('<i class="{} {}{}" style="left:{};width:{}" data-r="{}">{}</i>').format(
        CLASSES[bar.kind], bar.tone, room, axis.at(bar.start_s), percent(share), request, label
    )


def _hue(server: str, servers: Sequence[str]) -> Markup:
    """Return an attribute with the colours of one of several servers; empty: there is one."""
    if not server or server not in servers:
        return Markup("")
    color = f"--server-{servers.index(server) % len(LIGHT.servers)}"
    return Markup(' style="--strong:var({0});--pale:var({0}-pale)"').format(color)


def _model(lane: Lane, axis: _Axis, servers: Sequence[str]) -> Markup:
    """Return the model's work on the requests of a lane, one path for each look."""
    paths: dict[tuple[BarKind, Tone, str], list[tuple[int, int]]] = {}
    for bar in sorted(lane.bars, key=lambda bar: bar.start_s):
        if bar.kind in MODEL_KINDS:
            parts = paths.setdefault((bar.kind, bar.tone, bar.server), [])
            first, last = axis.units(bar.start_s), axis.units(bar.end_s)
            if parts and first <= parts[-1][1]:
                parts[-1] = parts[-1][0], max(last, parts[-1][1])
            else:
                parts.append((first, last))
    if not paths:
        return Markup("")
    drawn = Markup("").join(
        Markup('<path class="{} {}"{} d="{}"/>').format(
            CLASSES[kind],
            tone,
            _hue(server, servers),
            "".join(f"M{first} 5h{max(last - first, LEAST)}" for first, last in at),
        )
        for (kind, tone, server), at in sorted(
            paths.items(), key=lambda one: MODEL_KINDS.index(one[0][0])
        )
    )
    return Markup(
        '<svg class="model" viewBox="0 0 {} 10" preserveAspectRatio="none" aria-hidden="true">'
        "{}</svg>"
    ).format(UNITS, drawn)


def _strip(timeline: Timeline, server: str, axis: _Axis) -> Markup:
    """Return the batch sizes of a server's steps, and the times in which it was gone."""
    most = timeline.most_sequences
    path = "".join(f"M{left} {most}V{most - size}H{right}V{most}" for left, right, size in _batches(
        timeline.steps_of(server), axis))  # fmt: skip
    gone = "".join(
        f"M{axis.units(gone_s)} {most}V0H{axis.units(back_s)}V{most}"
        for gone_s, back_s in timeline.outages.get(server, ())
    )
    hue = _hue(server, timeline.servers)
    lost = Markup('<path class="lost" d="{}"><title>lost</title></path>').format(gone)
    return Markup(
        '<div class="lane strip{}"{}><span class="agent">{}, 0 to {}</span><div class="bars">'
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true"><path d="{}"/>'
        "{}</svg></div></div>"
    ).format(" named" if hue else "", hue, server or "batch", most, UNITS, most, path,
             lost if gone else "")  # fmt: skip


def _stages(timeline: Timeline, server: str, axis: _Axis) -> Markup:
    """Return a row for each stage of a server: what it computed and sent; the rest was idle."""
    hue = _hue(server, timeline.servers)
    return Markup("").join(
        Markup(
            '<div class="lane stage{}"{}><span class="agent">stage {}</span><div class="bars">'
            '<svg viewBox="0 0 {} 10" preserveAspectRatio="none" aria-hidden="true">'
            '<path class="sends" d="{}"/><path d="{}"/></svg></div></div>'
        ).format(" named" if hue else "", hue, place, UNITS, *(
            "".join(f"M{first} 5h{last - first}" for first, last in _merged(row, axis, sends))
            for sends in (True, False)
        ))
        for place, row in enumerate(timeline.stage_rows(server), 1)
    )  # fmt: skip


def _merged(row: Sequence[StageSpan], axis: _Axis, sends: bool) -> list[tuple[int, int]]:
    """Return left and right of the spans of one kind; spans at one place are merged."""
    made: list[tuple[int, int]] = []
    for span in row:
        first, last = axis.units(span.start_s), axis.units(span.end_s)
        if span.sends is not sends or first == last:
            continue
        if made and first <= made[-1][1]:
            made[-1] = made[-1][0], max(last, made[-1][1])
        else:
            made.append((first, last))
    return made


def _batches(steps: Sequence[EngineStep], axis: _Axis) -> Iterator[tuple[int, int, int]]:
    """Yield left, right and height of batches; steps at one place are merged."""
    left = right = size = -1
    later_s = [*(step.start_s for step in steps[1:]), math.inf][: len(steps)]
    for step, next_s in zip(steps, later_s, strict=True):
        end_s = next_s if next_s - step.end_s < REST_S else step.end_s
        first, last = axis.units(step.start_s), axis.units(end_s)
        if first <= right and (step.sequences == size or last - left <= 2):
            right, size = max(last, right), max(size, step.sequences)
            continue
        if size > 0:
            yield left, right, size
        left, right, size = first, max(last, first + 1), step.sequences
    if size > 0:
        yield left, right, size


def _legend(timeline: Timeline) -> Markup:
    entries, explained = [], False
    for kind, tones in timeline.bar_legend():
        if timeline.outages and kind == "generating":
            for server in timeline.servers:
                entries.append(
                    Markup('<li title="{}"><i class="{}"{}></i>{}</li>').format(
                        BARS[kind], CLASSES[kind], _hue(server, timeline.servers),
                        f"{kind}: {server}",
                    )
                )  # fmt: skip
            continue
        named = ""
        if kind in ("generating", "executing") and not explained:
            named, explained = f" ({', '.join(tones)})", True
        swatches = Markup("").join(
            Markup('<i class="{} {}"></i>').format(CLASSES[kind], tone) for tone in tones
        )
        entries.append(
            Markup('<li title="{}">{}{}{}</li>').format(BARS[kind], swatches, kind, named)
        )
    for sends, (name, about) in STAGE_KINDS.items() if timeline.has_stages else ():
        entries.append(
            Markup('<li title="{}"><i class="stage{}"></i>{}</li>').format(
                about, " sends" if sends else "", name
            )
        )
    for mark in timeline.mark_legend():
        entries.append(
            Markup('<li title="{}"><b class="{}"></b>{}</li>').format(
                MARKS[mark], CLASSES[mark], mark
            )
        )
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(entries))


# Charts ------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TITLE, ROW = 440, 230, 52, 24, 18
MOST_LEVELS, HATCHES = 5, 4
LETTER = 7.0
"""Approximate width of a letter of 13 px."""
SHAPES = {
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "square": "M-3.6-3.6h7.2v7.2h-7.2z",
    "triangle": "M0-4.6L4.4 3.4H-4.4z",
    "diamond": "M0-5L5 0L0 5L-5 0z",
    "inverted_triangle": "M0 4.6L4.4-3.4H-4.4z",
    "star": "M0-5L1.5-1.6L5-1.4L2.3 1L3.2 4.6L0 2.6L-3.2 4.6L-2.3 1L-5-1.4L-1.5-1.6z",
}


@lru_cache(maxsize=256)
def chart_svg(chart: Chart) -> Markup:
    """Return a chart with its title, axes, intervals, legend, and a tooltip for each point."""
    return _Drawing(chart).svg()


class _Drawing:
    """The parts of one chart."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._labels = [short(place, 20) for place in chart.places]
        self._slanted = slanted(self._labels)
        longest = max(map(len, self._labels), default=0)
        self._below = 22.0 + (min(longest, 20) * LETTER * 0.66 if self._slanted else 14.0)
        self._low, self._high = chart.limits
        named = len(chart.series) > 1 and not chart.named_by_place
        self._names = [short(series.name, 30) for series in chart.series] if named else []
        self._legend, rows = self._named()
        self._top = TITLE + ROW * rows + 8
        self._bottom = self._top + HEIGHT

    def svg(self) -> Markup:
        chart = self._chart
        parts = [
            self._legend,
            self._levels(),
            *(self._series(number, series) for number, series in enumerate(chart.series)),
            self._places(),
        ]
        words = f"{chart.title} by {chart.x_title}; the numbers are in the table"
        return Markup(
            '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">'
            '<text class="title" x="0" y="15">{}</text>{}</svg>'
        ).format(WIDTH, round(self._bottom + self._below + 10), words, short(chart.title),
                 Markup("").join(parts))  # fmt: skip

    def _x(self, place: float) -> float:
        return LEFT + (WIDTH - LEFT - 6) * (place + 0.6) / (len(self._labels) + 0.2)

    def _y(self, value: float) -> float:
        share = (min(max(value, self._low), self._high) - self._low) / (self._high - self._low)
        return self._top + HEIGHT * (1 - share)

    def _levels(self) -> Markup:
        lines = []
        for level in ticks(self._low, self._high, MOST_LEVELS):
            y = f"{self._y(level):.1f}"
            lines.append(
                Markup('<path class="level" d="M{} {}H{}"/><text x="{}" y="{}" dy="4"'
                       ' text-anchor="end">{}</text>').format(
                    LEFT, y, WIDTH, LEFT - 6, y, f"{level:g}")
            )  # fmt: skip
        return Markup("").join(lines)

    def _series(self, number_: int, series: Series) -> Markup:
        look = looks(number_ + 1)[-1]
        shift = self._chart.shift(number_)
        parts = []
        if self._chart.connected:
            line = "L".join(
                f"{self._x(p.place + shift):.1f} {self._y(p.mean):.1f}" for p in series.points
            )
            parts.append(Markup('<path class="line s{}" d="M{}"/>').format(look.color, line))
        for point in series.points:
            x, y = f"{self._x(point.place + shift):.1f}", f"{self._y(point.mean):.1f}"
            words = f"{short(series.name)}, {self._labels[point.place]}: "
            words += number(point.mean, point.half)
            if self._chart.connected:
                shape = Markup('class="s{}" transform="translate({} {})" d="{}"').format(
                    look.color, x, y, SHAPES[look.marker]
                )
            else:
                width = self._x(self._chart.bar_width) - self._x(0.0)
                left, zero = self._x(point.place + shift) - width / 2, self._y(0.0)
                shape = Markup('{} d="M{} {}V{}h{}V{}z"').format(
                    _face(number_), f"{left:.1f}", f"{zero:.1f}", y, f"{width:.1f}", f"{zero:.1f}"
                )
            parts.append(Markup("<path {}><title>{}</title></path>").format(shape, words))
        parts.append(self._intervals(series, shift))
        return Markup("").join(parts)

    def _intervals(self, series: Series, shift: float) -> Markup:
        """Return the known intervals, with a bar at each end."""
        path = ""
        for point in series.points:
            if math.isfinite(point.half):
                x = self._x(point.place + shift)
                high, low = (self._y(point.mean + sign * point.half) for sign in (1, -1))
                path += (
                    f"M{x:.1f} {high:.1f}V{low:.1f}M{x - 3:.1f} {high:.1f}h6m-6 {low - high:.1f}h6"
                )
        return Markup('<path class="half" d="{}"/>').format(path) if path else Markup("")

    def _places(self) -> Markup:
        bottom = self._bottom
        texts = []
        for place, label in enumerate(self._labels):
            x = f"{self._x(place):.1f}"
            turned = (
                Markup('text-anchor="end" transform="rotate(-40 {} {})"').format(x, bottom + 12)
                if self._slanted
                else Markup('text-anchor="middle"')
            )
            texts.append(
                Markup('<text x="{}" y="{}" {}>{}</text>').format(x, bottom + 16, turned, label)
            )
        axis = Markup('<path class="axis" d="M{} {}H{}"/>').format(LEFT, bottom, WIDTH)
        name = Markup('<text class="soft" x="{}" y="{}" text-anchor="end">{}</text>').format(
            WIDTH, f"{bottom + self._below + 6:.0f}", short(self._chart.x_title)
        )
        return axis + Markup("").join(texts) + name

    def _named(self) -> tuple[Markup, int]:
        """Return the legend and the number of its rows."""
        x, row, entries = 0.0, 1, []
        for number_, name in enumerate(self._names):
            width = 20 + LETTER * len(name)
            if x and x + width > WIDTH:
                x, row = 0.0, row + 1
            if self._chart.connected:
                look = looks(number_ + 1)[-1]
                drawn = Markup('class="s{}" d="{}"').format(look.color, SHAPES[look.marker])
            else:
                drawn = Markup('{} d="M-6-5h12v10h-12z"').format(_face(number_))
            entries.append(
                Markup(
                    '<g transform="translate({} {})"><path {}/><text x="11" y="4">{}</text></g>'
                ).format(f"{x + 6:.0f}", TITLE + ROW * row - 8, drawn, name)
            )
            x += width + 12
        return Markup("").join(entries), row if self._names else 0


def _face(number_: int) -> Markup:
    """Return the fill of a series' bars: its colour, or a hatch over its colour."""
    look, hatch = looks(number_ + 1)[-1], number_ % HATCHES
    if hatch:
        return Markup('fill="url(#h{}-{})"').format(hatch, look.color)
    return Markup('class="s{}"').format(look.color)


def hatches() -> Markup:
    """Return the SVG definitions of hatched fills."""
    lines = ("M0 7L7 0", "M3.5 0v7", "M0 0L7 7M0 7L7 0")
    count = math.lcm(len(LIGHT.series), HATCHES)
    used = sorted({(n % HATCHES, looks(n + 1)[-1].color) for n in range(count)} - {(0, 0)})
    patterns = Markup("").join(
        Markup(
            '<pattern id="h{}-{}" width="7" height="7" patternUnits="userSpaceOnUse">'
            '<path class="s{}" d="M0 0h7v7H0z"/><path class="hatch" d="{}"/></pattern>'
        ).format(hatch, color, color, lines[hatch - 1])
        for hatch, color in used
        if hatch
    )
    return Markup('<svg width="0" height="0" aria-hidden="true"><defs>{}</defs></svg>').format(
        patterns
    )
