"""From a run to the tables of its page."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from timely_llm.experiments.document import Paper, Row, RunDocument, Value
from timely_llm.experiments.lanes import TALK_COLUMNS
from timely_llm.experiments.metrics import Row as Average
from timely_llm.report.series import (
    ANSWERED,
    SHARE,
    TASK,
    averages,
    measures,
    numeric,
    subject,
    varying,
)
from timely_llm.report.words import heading, text

Mark = Literal["", "best", "near"]

SHARE_TOLERANCE = 0.01
_MORE_IS_BETTER = ("utility", SHARE, ANSWERED, "attainment", "_per_s")
_OF_TALKS = frozenset(TALK_COLUMNS.values())


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: what it says.
        half: half the width of the 95 % interval, if that is known.
        value: the number, unrounded; None if it is none.
        mark: "best" of its setting, or "near": its interval and the best one's overlap.
        partial: it leaves out requests that were not served.
        is_name: it names the row's setting, on one line.
    """

    text: str
    half: str = ""
    value: float | None = None
    mark: Mark = ""
    partial: bool = False
    is_name: bool = False


@dataclass(frozen=True)
class Head:
    """A column's name, and what it means."""

    text: str
    about: str = ""


@dataclass(frozen=True)
class Table:
    """Heads, and groups of rows of as many cells."""

    heads: tuple[Head, ...]
    groups: tuple[tuple[tuple[Cell, ...], ...], ...]

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """All rows."""
        return [row for group in self.groups for row in group]


def summary_table(run: RunDocument) -> Table:
    """Return the means over seeds, with intervals, and with marks at the best of each setting.

    Times are in brackets where not everybody was served: they leave out requests.
    """
    columns = measures(run)
    names = [*run.keys, "seeds", *columns]
    groups = []
    for setting in _settings(averages(run.rows, run.keys), run.keys):
        marks = {name: _marks(setting, name) for name in columns}
        groups.append(
            tuple(
                (
                    *(_key(row[key]) for key in (*run.keys, "seeds")),
                    *(_average(row, name, marks[name][number]) for name in columns),
                )
                for number, row in enumerate(setting)
            )
        )
    return Table(_heads(run, names, map(heading, names)), tuple(groups))


def row_table(run: RunDocument, columns: Sequence[str], rows: Sequence[Row]) -> Table:
    """Return rows as they are."""
    return Table(
        _heads(run, columns, columns),
        (tuple(tuple(cell(row.get(name)) for name in columns) for row in rows),),
    )


def paper_table(run: RunDocument, paper: Paper) -> Table:
    """Return a paper's numbers with ours beside them, where a setting of ours is the same."""
    named = list(dict.fromkeys(name for row in paper.rows for name in row))
    settings = [key for key in (*run.keys, TASK) if key in named]
    columns = [name for name in numeric(paper.rows) if name not in settings]
    settings += [name for name in named if name not in (*settings, *columns)]
    names, heads = [*settings], [*map(heading, settings)]
    for name in columns:
        names += [name, name]
        heads += [f"{heading(name)}: paper", f"{heading(name)}: here"]
    rows = []
    for row in paper.rows:
        mine = _same_setting(run, row)
        cells = [cell(row.get(name)) for name in settings]
        for name in columns:
            cells += [cell(row.get(name)), _average(mine, name)]
        rows.append(tuple(cells))
    return Table(_heads(run, names, heads), (tuple(rows),))


def columns_of(run: RunDocument, rows: Sequence[Row]) -> list[str]:
    """Return the columns of rows: keys first."""
    named = dict.fromkeys(name for row in rows for name in row)
    return [*(key for key in run.keys if key in named), *(n for n in named if n not in run.keys)]


def cell(value: Value) -> Cell:
    """Return a cell with a value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Cell(text(value))
    shown = f"{value:,}" if isinstance(value, int) else _rounded(value, value)
    return Cell(shown, value=value)


def _key(value: Value) -> Cell:
    """Return a cell with a value that names a setting, as short as it can be."""
    return replace(cell(value), text=text(value), is_name=True)


def number(mean: float, half: float) -> str:
    """Return a mean with its interval, if that is known."""
    shown = _half(mean, half)
    return _rounded(mean, mean) + (f" ± {shown}" if shown else "")


def direction(column: str) -> int:
    """Return 1 if more of a column is better, -1 if less is, 0 if that is not known."""
    if any(word in column for word in _MORE_IS_BETTER):
        return 1
    return -1 if column.endswith(("_s", "_ms")) else 0


def _heads(run: RunDocument, columns: Sequence[str], heads: Iterable[str]) -> tuple[Head, ...]:
    return tuple(
        Head(shown, run.definitions.get(name, ""))
        for name, shown in zip(columns, heads, strict=True)
    )


def _same_setting(run: RunDocument, row: Row) -> Average:
    """Return our average of the one setting that a paper's row names, empty if there is none."""
    of_task = row.get(TASK) is not None and TASK not in run.keys
    ours = run.task_rows if of_task else run.rows
    keys = [*run.keys, *([TASK] if of_task else [])]
    wanted = {key: text(row[key]) for key in keys if row.get(key) is not None}
    found = [one for one in ours if all(text(one.get(key)) == wanted[key] for key in wanted)]
    if not found or varying(found, keys):
        return {}
    return averages(found, ())[0]


def _average(row: Average, name: str, mark: Mark = "") -> Cell:
    mean, half = row.get(name, math.nan), row.get(name + "_ci", math.nan)
    if not math.isfinite(mean):
        return Cell(text(None))
    partial = direction(name) < 0 and _share(row, name) < 1.0
    return Cell(_rounded(mean, mean), _half(mean, half), mean, mark, partial)


def _share(row: Average, name: str) -> float:
    """Return the share of those who were served, of the plans or the conversations of a column."""
    answered: float = row.get(ANSWERED, math.nan)
    served: float = row.get(SHARE, math.nan)
    return answered if name in _OF_TALKS and math.isfinite(answered) else served


def _half(mean: float, half: float) -> str:
    """Return half the width of an interval as text, empty if it is not known."""
    if not math.isfinite(half):
        return ""
    shown, least = _rounded(half, mean), 10.0 ** -_decimals(mean)
    return f"<{_rounded(least, mean)}" if 0 < half < least / 2 else shown


def _rounded(value: float, like: float) -> str:
    """Return a number with as many decimals as another of its size needs."""
    return f"{value:,.{_decimals(like)}f}"


def _decimals(value: float) -> int:
    limits = ((3, 10), (2, 100), (1, 1000))
    return next((decimals for decimals, limit in limits if abs(value) < limit), 0)


def _settings(rows: Iterable[Average], keys: Sequence[str]) -> list[list[Average]]:
    """Return groups of rows that differ in what is compared alone."""
    groups: dict[tuple[Value, ...], list[Average]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys if key != subject(keys))].append(row)
    return list(groups.values())


def _marks(setting: Sequence[Average], name: str) -> list[Mark]:
    """Return a mark for each row of a setting; none if all are equal.

    Times are compared only of those who served as many: who drops the slow ones looks fast.
    """
    sign = direction(name)
    known = {place: row for place, row in enumerate(setting) if math.isfinite(row[name])}
    if sign < 0:
        shares = {place: _share(row, name) for place, row in known.items()}
        most = max((share for share in shares.values() if math.isfinite(share)), default=math.nan)
        known = {p: row for p, row in known.items() if not shares[p] < most - SHARE_TOLERANCE}
    if not sign or len({row[name] for row in known.values()}) < 2:
        return [""] * len(setting)
    best = max(known.values(), key=lambda row: sign * row[name])
    return [_mark(known[p], best, name) if p in known else "" for p in range(len(setting))]


def _mark(row: Average, best: Average, name: str) -> Mark:
    apart = abs(row[name] - best[name])
    width = row[name + "_ci"] + best[name + "_ci"]
    if apart == 0:
        return "best"
    return "near" if math.isfinite(width) and apart <= width else ""
