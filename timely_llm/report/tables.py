"""The tables of a run's page."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from timely_llm.core.events.decisions import DecisionSpan, Waits, waits
from timely_llm.core.reason import Outcome
from timely_llm.experiments.results.document import Paper, Row, RowValue, RunDocument
from timely_llm.experiments.results.lanes import TALK_COLUMNS
from timely_llm.experiments.results.metrics import MeasuredRow as Average
from timely_llm.report.series import (
    ANSWERED,
    SHARE,
    SHARES,
    TASK,
    averages,
    meaning,
    measures,
    numeric,
    subject,
    varying,
)
from timely_llm.report.words import heading, text

CellMark = Literal["", "best", "near"]

SHARE_TOLERANCE = 0.01
MOST_TURNED = 12
"""Most rows that can become columns."""
MOST_CHARACTERS = 135
"""Widest table that fits a page, characters."""
_MORE_IS_BETTER = ("utility", SHARE, *SHARES, ANSWERED, "attainment", "_per_s")
_OF_TALKS = frozenset(TALK_COLUMNS.values())


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: the text.
        half: half the width of the 95 % interval; empty if unknown.
        value: the number, unrounded; None for other texts.
        mark: "best" of its setting, or "near": its interval overlaps that of the best.
        partial: it leaves out requests that were not served.
        is_name: it names a setting or a measure, on one line.
        about: its meaning, as a tooltip.
    """

    text: str
    half: str = ""
    value: float | None = None
    mark: CellMark = ""
    partial: bool = False
    is_name: bool = False
    about: str = ""


@dataclass(frozen=True)
class Head:
    """The head of a column: its name, its meaning, and whether its cells are numbers."""

    text: str
    about: str = ""
    is_number: bool = False


@dataclass(frozen=True)
class Table:
    """Heads, and groups of rows with a cell for each head.

    Attributes:
        title: title of the table; empty for none.
    """

    heads: tuple[Head, ...]
    groups: tuple[tuple[tuple[Cell, ...], ...], ...]
    title: str = ""

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """All rows."""
        return [row for group in self.groups for row in group]


def summary_table(run: RunDocument) -> Table:
    """Return the means over seeds with their intervals, and a mark at the best of each setting.

    Times that leave out unserved requests are in brackets.
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
    return _headed(Table(_heads(run, names, map(heading, names)), tuple(groups)))


def summary_tables(run: RunDocument) -> list[Table]:
    """Return the summary as one table, or as a turned table for each setting if it is too wide.

    A turned table has a row for each measure and a column for each compared value. With one
    compared value, a further column has the meanings of the measures.
    """
    whole = summary_table(run)
    if _width(whole) <= MOST_CHARACTERS:
        return [whole]
    compared = subject(run.keys)
    fixed = [key for key in run.keys if key != compared]
    names = varying(run.rows, fixed)
    columns = measures(run)
    first = len(run.keys) + 1
    turned = []
    for group in whole.groups:
        setting = dict(zip(run.keys, group[0], strict=False))
        title = ", ".join(f"{heading(key)} {setting[key].text}" for key in names)
        heads = [Head(""), *(Head(dict(zip(run.keys, row, strict=False))[compared].text)
                             for row in group)]  # fmt: skip
        alone = len(heads) == 2 and len(whole.groups) == 1
        rows = []
        for place, name in enumerate(columns):
            about = meaning(run, name)
            named = Cell(heading(name), is_name=True, about="" if alone else about)
            cells = [named, *(row[first + place] for row in group)]
            rows.append((*cells, Cell(about)) if alone else tuple(cells))
        if alone:
            heads.append(Head("what it means"))
        turned.append(_headed(Table(tuple(heads), (tuple(rows),), title)))
    return turned


def fitting(tables: Sequence[Table], most_cells: int) -> tuple[tuple[Table, ...], int]:
    """Return tables of at most `most_cells` cells, and the number of groups that are left out.

    A group of rows is a setting. At least one group is kept.
    """
    made: list[Table] = []
    cells = left = 0
    for table in tables:
        groups: list[tuple[tuple[Cell, ...], ...]] = []
        for group in table.groups:
            cells += sum(map(len, group))
            if cells > most_cells and (made or groups):
                left += 1
            else:
                groups.append(group)
        if groups:
            made.append(replace(table, groups=tuple(groups)))
    return tuple(made), left


def fitted(table: Table) -> Table:
    """Return a table, transposed if it is too wide and its transpose is narrower."""
    if _width(table) <= MOST_CHARACTERS or len(table.rows) > MOST_TURNED:
        return table
    heads = [Cell(head.text, is_name=True, about=head.about) for head in table.heads]
    columns = zip(heads, *table.rows, strict=True)
    (first, *others) = ([*column] for column in columns)
    turned = Table(tuple(Head(cell.text) for cell in first), (tuple(map(tuple, others)),))
    return _headed(turned) if _width(turned) < _width(table) else table


def caption(tables: Sequence[Table]) -> str:
    """Return the meanings of the signs that occur in tables."""
    cells = [cell for table in tables for row in table.rows for cell in row]
    meanings = []
    if any(cell.half for cell in cells):
        meanings.append(
            "Means over seeds ± half the width of the 95 % confidence interval (Student's t)."
        )
    if any(cell.mark for cell in cells):
        near = any(cell.mark == "near" for cell in cells)
        worse = "; ≈ is not clearly worse: the intervals overlap" if near else ""
        meanings.append(f"★ is the best of its setting{worse}.")
    if any(cell.partial for cell in cells):
        meanings.append(
            "Times in brackets leave out requests that were not served; times are compared only"
            " between rows that served the same share."
        )
    return " ".join(meanings)


def _headed(table: Table) -> Table:
    """Return a table with `is_number` set in the heads of columns of numbers."""
    numbers = [
        any(one.value is not None for one in column) for column in zip(*table.rows, strict=True)
    ]
    heads = zip(table.heads, numbers or [False] * len(table.heads), strict=True)
    return replace(table, heads=tuple(replace(head, is_number=known) for head, known in heads))


def _width(table: Table) -> int:
    """Return the width of a table in characters, with the space between its columns."""
    columns = zip(*(row for row in table.rows), strict=True)
    widths = (max(len(cell.text) + len(cell.half) + 3 * bool(cell.half) for cell in column)
              for column in columns)  # fmt: skip
    heads = (max(map(len, head.text.split()), default=0) for head in table.heads)
    return sum(3 + max(pair) for pair in zip(widths, heads, strict=True))


def paper_table(run: RunDocument, paper: Paper) -> Table:
    """Return a paper's numbers, with ours for the same settings beside them."""
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
    return fitted(_headed(Table(_heads(run, names, heads), (tuple(rows),))))


def columns_of(run: RunDocument, rows: Sequence[Row]) -> list[str]:
    """Return the columns of rows: keys first."""
    named = dict.fromkeys(name for row in rows for name in row)
    return [*(key for key in run.keys if key in named), *(n for n in named if n not in run.keys)]


def cell(value: RowValue) -> Cell:
    """Return a cell with a value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Cell(text(value))
    shown = f"{value:,}" if isinstance(value, int) else _rounded(value, value)
    return Cell(shown, value=value)


def _key(value: RowValue) -> Cell:
    """Return a cell with a value that names a setting, as short as possible."""
    return replace(cell(value), text=text(value), is_name=True)


def number(mean: float, half: float = math.inf) -> str:
    """Return a mean, and its interval if it is known, as text."""
    shown = _half(mean, half)
    return _rounded(mean, mean) + (f" ± {shown}" if shown else "")


def direction(column: str) -> int:
    """Return 1 if larger values of a column are better, -1 if smaller ones are, 0 if unknown."""
    if any(word in column for word in _MORE_IS_BETTER):
        return 1
    return -1 if column.endswith(("_s", "_ms")) else 0


def _heads(run: RunDocument, columns: Sequence[str], heads: Iterable[str]) -> tuple[Head, ...]:
    return tuple(
        Head(shown, meaning(run, name)) for name, shown in zip(columns, heads, strict=True)
    )


def _same_setting(run: RunDocument, row: Row) -> Average:
    """Return our average for the setting of a paper's row; empty if it is not exactly one."""
    of_task = row.get(TASK) is not None and TASK not in run.keys
    ours = run.task_rows if of_task else run.rows
    keys = [*run.keys, *([TASK] if of_task else [])]
    wanted = {key: text(row[key]) for key in keys if row.get(key) is not None}
    found = [one for one in ours if all(text(one.get(key)) == wanted[key] for key in wanted)]
    if not found or varying(found, keys):
        return {}
    return averages(found, ())[0]


def _average(row: Average, name: str, mark: CellMark = "") -> Cell:
    mean, half = row.get(name, math.nan), row.get(name + "_ci", math.nan)
    if not math.isfinite(mean):
        return Cell(text(None))
    partial = direction(name) < 0 and _share(row, name) < 1.0
    return Cell(_rounded(mean, mean), _half(mean, half), mean, mark, partial)


def _share(row: Average, name: str) -> float:
    """Return the share of served plans, or of answered questions for columns of conversations."""
    answered: float = row.get(ANSWERED, math.nan)
    served: float = row.get(SHARE, math.nan)
    return answered if name in _OF_TALKS and math.isfinite(answered) else served


def _half(mean: float, half: float) -> str:
    """Return half the width of an interval as text; empty if it is not known."""
    if not math.isfinite(half):
        return ""
    shown, least = _rounded(half, mean), 10.0 ** -_decimals(mean)
    return f"<{_rounded(least, mean)}" if 0 < half < least / 2 else shown


def _rounded(value: float, like: float) -> str:
    """Return a number with the decimals of another number."""
    return f"{value:,.{_decimals(like)}f}"


def _decimals(value: float) -> int:
    limits = ((3, 10), (2, 100), (1, 1000))
    return next((decimals for decimals, limit in limits if abs(value) < limit), 0)


def _settings(rows: Iterable[Average], keys: Sequence[str]) -> list[list[Average]]:
    """Return groups of rows that differ only in the compared value."""
    groups: dict[tuple[RowValue, ...], list[Average]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys if key != subject(keys))].append(row)
    return list(groups.values())


def _marks(setting: Sequence[Average], name: str) -> list[CellMark]:
    """Return the mark of each row of a setting; no marks if all are equal.

    Times are compared only between rows that served the same share. Otherwise a policy that drops
    slow requests would look fast.
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


def _mark(row: Average, best: Average, name: str) -> CellMark:
    apart = abs(row[name] - best[name])
    width = row[name + "_ci"] + best[name + "_ci"]
    if apart == 0:
        return "best"
    return "near" if math.isfinite(width) and apart <= width else ""


MOST_WAITS = 12
"""Rows of a table of waits: the requests that waited longest."""
MOST_CAUSES = 2


def waits_table(decisions: Mapping[str, Sequence[DecisionSpan]]) -> Table | None:
    """Return how long requests waited and were deferred, and why; None without decisions.

    If no request waited or was deferred, the table has no rows, and its title says so.

    Args:
        decisions: the decisions about each request, by its id.
    """
    if not decisions:
        return None
    everything = ((name, waits(spans)) for name, spans in decisions.items())
    found = [(name, one) for name, one in everything if one.causes]
    found.sort(key=lambda pair: (-pair[1].waited_s, -pair[1].deferred_s))
    heads = (
        Head("request"),
        Head("in steps (s)", "time in which it took part in steps", is_number=True),
        Head("waited (s)", "time in which it needed what others had", is_number=True),
        Head("waited because"),
        Head("deferred (s)", "time in which it needed no step yet", is_number=True),
        Head("deferred because"),
    )
    if not found:
        return Table(heads, (), "No request waited or was deferred")
    title = "Requests that waited or were deferred, the longest wait first"
    if len(found) > MOST_WAITS:
        title = f"{MOST_WAITS} of {len(found)} requests that waited or were deferred"
        title += ", the longest wait first"
    rows = tuple(_waits_row(name, one) for name, one in found[:MOST_WAITS])
    return Table(heads, (rows,), title)


def _waits_row(name: str, found: Waits) -> tuple[Cell, ...]:
    return (
        Cell(name, is_name=True),
        _seconds(found.joined_s),
        _seconds(found.waited_s),
        _causes(found, Outcome.WAITS),
        _seconds(found.deferred_s),
        _causes(found, Outcome.DEFERRED),
    )


def _seconds(value: float) -> Cell:
    return Cell(f"{value:.2f}" if value else text(None), value=value)


def _causes(found: Waits, outcome: Outcome) -> Cell:
    """Return the longest causes of an outcome; each has its seconds if there are several."""
    mine = [(cause.text, s) for cause, s in found.causes if cause.outcome is outcome]
    shown = mine[:MOST_CAUSES]
    if len(mine) == 1:
        return Cell(mine[0][0])
    return Cell("; ".join(f"{words} ({s:.2f} s)" for words, s in shown) or text(None))
