"""Averages of a run's rows over seeds, and the points of its charts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from timely_llm.core.arguments import is_number
from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from timely_llm.experiments.results.metrics import MeasuredRow as Average
from timely_llm.experiments.results.metrics import summary
from timely_llm.report.words import heading, text

RUN, POLICY, TASK = "run", "policy", "task"
SHARE, ANSWERED = "share_served", "share_answered"
SHARES = ("share_first", "share_finished")
"""Shares of plans in tables. Times are of the share `SHARE`, one of these by its former name."""
MOST_SERIES, MOST_MARKS = 24, 480
"""Most series and points of a readable chart."""
MOST_ROOM = 1.6
"""Highest value of the y axis, as a multiple of the highest mean."""
LEAST_CONNECTED = 5
INPUTS = frozenset(("requests", "conversations", "tokens", "segments", "prompt_tokens", "seeds"))
TASK_MEASURES = ("utility", "response_s", "waiting_s")
"""Measures that are charted by kind of task, if they are known."""
GROUP = 0.8
"""Width of a group of bars; 1 is the distance of two places."""


@dataclass(frozen=True)
class Point:
    """A mean over seeds.

    Attributes:
        place: place on the x axis, from 0 on.
        mean: mean of the measure, in the measure's unit.
        half: half the width of the 95 % interval; infinite with one seed.
    """

    place: int
    mean: float
    half: float

    @property
    def known_half(self) -> float:
        """Half the width of the interval; 0 if it is not known."""
        return self.half if math.isfinite(self.half) else 0.0


@dataclass(frozen=True)
class Series:
    """The points of one compared value, such as a policy."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes:
        measure: the column that it shows.
        title: title of the chart.
        x_title: title of the x axis.
        places: labels of the places, in order.
        series: series, in the order of the rows.
        connected: the places are many numbers, and lines join the points.
    """

    measure: str
    title: str
    x_title: str
    places: tuple[str, ...]
    series: tuple[Series, ...]
    connected: bool = False

    @property
    def readable(self) -> bool:
        """Whether it has few enough series and points to be read."""
        marks = sum(len(series.points) for series in self.series)
        return len(self.series) <= MOST_SERIES and marks <= MOST_MARKS

    @property
    def bar_width(self) -> float:
        """Width of a bar; 1 is the distance of two places."""
        return GROUP * 0.9 / (1 if self.named_by_place else max(len(self.series), 1))

    def shift(self, number: int) -> float:
        """Return the offset of a series from its places, which makes groups of bars."""
        if self.connected or self.named_by_place:
            return 0.0
        return GROUP * ((number + 0.5) / len(self.series) - 0.5)

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest value of the y axis, which includes 0.

        Intervals that are much wider than the means may leave the axis.
        """
        points = [point for series in self.series for point in series.points]
        means = [0.0, *(point.mean for point in points)]
        low = min([0.0, *(point.mean - point.known_half for point in points)])
        high = max([0.0, *(point.mean + point.known_half for point in points)])
        low, high = max(low, MOST_ROOM * min(means)), min(high, MOST_ROOM * max(means))
        room = 0.06 * (high - low) or 1.0
        return (low - room if low < 0 else 0.0), (high + room if high > 0 or low == 0 else 0.0)

    @property
    def named_by_place(self) -> bool:
        """Whether each series is one point with its name as place, so that no legend is needed."""
        return all(
            [self.places[point.place] for point in series.points] == [series.name]
            for series in self.series
        )


def numeric(rows: Sequence[Row]) -> list[str]:
    """Return the columns that have numbers or None only, in order of appearance."""
    columns: dict[str, bool] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                columns[name] = columns.get(name, True) and is_number(value)
    return [name for name, is_numeric in columns.items() if is_numeric]


def averages(rows: Sequence[Row], keys: Sequence[str]) -> list[Average]:
    """Return `metrics.summary` of rows that may lack values.

    A missing key is a setting of its own. A missing number is left out of the mean.
    """
    columns = [name for name in numeric(rows) if name not in keys]
    whole = [
        {key: row.get(key) for key in keys}
        | {name: math.nan if row.get(name) is None else row[name] for name in columns}
        for row in rows
    ]
    return summary(whole, keys)


def subject(keys: Sequence[str]) -> str:
    """Return the compared key: the run if there are several, else the policy."""
    wanted = [*(key for key in keys[:1] if key == RUN), *(key for key in keys if key == POLICY)]
    return [*wanted, *keys, ""][0]


def measures(run: RunDocument) -> list[str]:
    """Return the columns of the summary: the run's measures and the shares of plans."""
    known = set(numeric(run.rows)) - {*run.keys, subject(run.keys), TASK, "seed"}
    shares = SHARES if known.issuperset(SHARES) else (SHARE,)
    return [name for name in dict.fromkeys((*run.measures, *shares)) if name in known]


def results(run: RunDocument) -> list[str]:
    """Return the columns of the summary that are results, not inputs."""
    return [name for name in measures(run) if not is_input(name)]


def is_input(name: str) -> bool:
    """Return whether a column is an input of the run."""
    return name in INPUTS or "_slo_" in name


def meaning(run: RunDocument, column: str) -> str:
    """Return the meaning of a column; the definition that "the same" refers to replaces it."""
    whole = ""
    for name, defined in run.definitions.items():
        if not defined.startswith("the same"):
            whole = defined
        elif name == column and whole:
            return defined.replace("the same", re.split(r"[:;]", whole)[0], 1)
    return run.definitions.get(column, "")


def varying(rows: Sequence[Row], keys: Iterable[str]) -> list[str]:
    """Return the keys that have more than one value."""
    return [key for key in keys if len({text(row.get(key)) for row in rows}) > 1]


def charts(run: RunDocument) -> list[Chart]:
    """Return a chart for each result, with a series for each compared value and settings along x.

    A run with one setting has no chart.
    """
    compared = subject(run.keys)
    settings = varying(run.rows, run.keys)
    along = [key for key in settings if key != compared]
    if not settings:
        return []
    return _charts(run.rows, compared, along or [compared], results(run))


def task_charts(run: RunDocument) -> list[Chart]:
    """Return three charts by kind of task for each setting."""
    compared = subject(run.keys)
    fixed = [key for key in varying(run.task_rows, run.keys) if key not in (compared, TASK)]
    known = set(numeric(run.task_rows)) - {*run.keys, compared, TASK, "seed"}
    wanted = dict.fromkeys((*TASK_MEASURES, *run.measures))
    columns = [name for name in wanted if name in known and not is_input(name)]
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
    """Return the chart of a measure with all places at which it is known, in the order of rows."""
    known = [row for row in rows if math.isfinite(row.get(measure, math.nan))]
    labels = [", ".join(text(row[key]) for key in along) for row in known]
    places = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    points: dict[str, list[Point]] = {name: [] for name in names}
    for label, row in zip(labels, known, strict=True):
        point = Point(places[label], row[measure], row[measure + "_ci"])
        points[text(row[compared])].append(point)
    numbers = len(along) == 1 and all(is_number(row[along[0]]) for row in known)
    return Chart(
        measure,
        heading(measure) + (f", {about}" if about else ""),
        ", ".join(map(heading, along)),
        tuple(places),
        tuple(Series(name, tuple(mine)) for name, mine in points.items()),
        connected=numbers and len(places) >= LEAST_CONNECTED,
    )


def _order(values: Sequence[RowValue]) -> dict[str, int]:
    """Return the place of each value: numbers and numerals by size, others in order of rows."""
    named = {text(value): value for value in values}
    if all(is_number(value) or str(value).isdecimal() for value in named.values()):
        return {name: n for n, name in enumerate(sorted(named, key=lambda k: float(named[k] or 0)))}
    return {name: number for number, name in enumerate(named)}
