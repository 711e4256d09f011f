"""From a run's rows to averages over seeds, and to the points of its plots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from timely_llm.experiments.document import Row, RunDocument, Value
from timely_llm.experiments.metrics import Row as Average
from timely_llm.experiments.metrics import summary
from timely_llm.report.words import heading, text

RUN, POLICY, TASK = "run", "policy", "task"
SHARE, ANSWERED = "share_served", "share_answered"
MOST_SERIES, MOST_MARKS = 24, 480
"""A plot with more than that cannot be read."""
MOST_ROOM = 1.6
"""The y axis ends at so many times the highest mean at the latest."""
LEAST_CONNECTED = 5
TASK_MEASURES = ("utility", "response_s", "waiting_s")
"""What is shown by kind of task, where it is known."""
GROUP = 0.8
"""Of the room between two places, the share that bars take."""


@dataclass(frozen=True)
class Point:
    """A mean over seeds.

    Attributes:
        place: where on the plot's x axis, from 0 on.
        mean: of the measure, in its own unit.
        half: half the width of the 95 % interval; infinite if one seed alone tells nothing of it.
    """

    place: int
    mean: float
    half: float

    @property
    def known_half(self) -> float:
        """The same, 0 if it is not known."""
        return self.half if math.isfinite(self.half) else 0.0


@dataclass(frozen=True)
class Series:
    """Points that belong together: one policy's, for example."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Chart:
    """One plot.

    Attributes:
        measure: the column that it shows.
        title: of the plot.
        x_title: what the places are.
        places: their labels, in order.
        series: in the order of the rows.
        connected: the places are many numbers: points are joined by lines.
    """

    measure: str
    title: str
    x_title: str
    places: tuple[str, ...]
    series: tuple[Series, ...]
    connected: bool = False

    @property
    def readable(self) -> bool:
        """Whether there is not too much in it."""
        marks = sum(len(series.points) for series in self.series)
        return len(self.series) <= MOST_SERIES and marks <= MOST_MARKS

    @property
    def bar_width(self) -> float:
        """Width of a bar; 1 is the distance of two places."""
        return GROUP * 0.9 / (1 if self.told_by_place else max(len(self.series), 1))

    def shift(self, number: int) -> float:
        """Return how far right of its place a series is drawn, so that bars stand in groups."""
        if self.connected or self.told_by_place:
            return 0.0
        return GROUP * ((number + 0.5) / len(self.series) - 0.5)

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest value of the y axis; 0 is always on it.

        Intervals may leave it where they are much wider than the means are high.
        """
        points = [point for series in self.series for point in series.points]
        means = [0.0, *(point.mean for point in points)]
        low = min([0.0, *(point.mean - point.known_half for point in points)])
        high = max([0.0, *(point.mean + point.known_half for point in points)])
        low, high = max(low, MOST_ROOM * min(means)), min(high, MOST_ROOM * max(means))
        room = 0.06 * (high - low) or 1.0
        return (low - room if low < 0 else 0.0), (high + room if high > 0 or low == 0 else 0.0)

    @property
    def told_by_place(self) -> bool:
        """Whether each series is one point that its place names: no legend is needed."""
        return all(
            [self.places[point.place] for point in series.points] == [series.name]
            for series in self.series
        )


def numeric(rows: Sequence[Row]) -> list[str]:
    """Return the columns that hold numbers, in order of appearance; where some are missing too."""
    columns: dict[str, bool] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                columns[name] = columns.get(name, True) and _is_number(value)
    return [name for name, is_numeric in columns.items() if is_numeric]


def averages(rows: Sequence[Row], keys: Sequence[str]) -> list[Average]:
    """Return `metrics.summary` of rows of which any may lack any value.

    A missing key is a setting of its own; a missing number is left out of the mean.
    """
    columns = [name for name in numeric(rows) if name not in keys]
    whole = [
        {key: row.get(key) for key in keys}
        | {name: math.nan if row.get(name) is None else row[name] for name in columns}
        for row in rows
    ]
    return summary(whole, keys)


def subject(keys: Sequence[str]) -> str:
    """Return the key whose values are compared: runs if there are several, else policies."""
    wanted = [*(key for key in keys[:1] if key == RUN), *(key for key in keys if key == POLICY)]
    return [*wanted, *keys, ""][0]


def measures(run: RunDocument) -> list[str]:
    """Return the columns to show: those that the run names, and always the share served."""
    known = set(numeric(run.rows)) - {*run.keys, subject(run.keys), TASK, "seed"}
    return [name for name in dict.fromkeys((*run.measures, SHARE)) if name in known]


def varying(rows: Sequence[Row], keys: Iterable[str]) -> list[str]:
    """Return the keys that have more than one value."""
    return [key for key in keys if len({text(row.get(key)) for row in rows}) > 1]


def charts(run: RunDocument) -> list[Chart]:
    """Return a plot for each measure: a series for each value of its subject, settings along x.

    One setting alone needs no plot.
    """
    compared = subject(run.keys)
    settings = varying(run.rows, run.keys)
    along = [key for key in settings if key != compared]
    if not settings:
        return []
    return _charts(run.rows, compared, along or [compared], measures(run))


def task_charts(run: RunDocument) -> list[Chart]:
    """Return three plots by kind of task for each setting."""
    compared = subject(run.keys)
    fixed = [key for key in varying(run.task_rows, run.keys) if key not in (compared, TASK)]
    known = set(numeric(run.task_rows)) - {*run.keys, compared, TASK, "seed"}
    columns = [name for name in dict.fromkeys((*TASK_MEASURES, *run.measures)) if name in known]
    parts: dict[str, list[Row]] = {}
    for row in run.task_rows:
        about = ", ".join(f"{heading(key)} {text(row.get(key))}" for key in fixed)
        parts.setdefault(about, []).append(row)
    return [
        chart
        for about, part in parts.items()
        for chart in _charts(part, compared, [TASK], columns[: len(TASK_MEASURES)], about)
    ]


def _charts(
    rows: Sequence[Row],
    compared: str,
    along: Sequence[str],
    columns: Sequence[str],
    about: str = "",
) -> list[Chart]:
    made = averages(rows, list(dict.fromkeys((compared, *along))))
    names = list(dict.fromkeys(text(row[compared]) for row in made))
    orders = {key: _order([row[key] for row in made]) for key in along}
    made.sort(key=lambda row: [orders[key][text(row[key])] for key in along])
    return [_chart(made, compared, names, along, measure, about) for measure in columns]


def _chart(
    rows: Sequence[Average],
    compared: str,
    names: Sequence[str],
    along: Sequence[str],
    measure: str,
    about: str,
) -> Chart:
    """Return the plot of a measure, with the places where it is known, in the order of the rows."""
    known = [row for row in rows if math.isfinite(row.get(measure, math.nan))]
    labels = [", ".join(text(row[key]) for key in along) for row in known]
    places = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    points: dict[str, list[Point]] = {name: [] for name in names}
    for label, row in zip(labels, known, strict=True):
        point = Point(places[label], row[measure], row[measure + "_ci"])
        points[text(row[compared])].append(point)
    numbers = len(along) == 1 and all(_is_number(row[along[0]]) for row in known)
    return Chart(
        measure,
        heading(measure) + (f", {about}" if about else ""),
        ", ".join(map(heading, along)),
        tuple(places),
        tuple(Series(name, tuple(mine)) for name, mine in points.items()),
        connected=numbers and len(places) >= LEAST_CONNECTED,
    )


def _order(values: Sequence[Value]) -> dict[str, int]:
    """Return the place of each value: numbers by size, also those in words, others as they come."""
    named = {text(value): value for value in values}
    if all(_is_number(value) or str(value).isdecimal() for value in named.values()):
        return {name: n for n, name in enumerate(sorted(named, key=lambda k: float(named[k] or 0)))}
    return {name: number for number, name in enumerate(named)}


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
