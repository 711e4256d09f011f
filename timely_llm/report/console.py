"""The document of an experiment on a terminal, or as Markdown in a file or pipe."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.text import Text

from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from timely_llm.experiments.results.metrics import summary
from timely_llm.report.document_timeline import document_timeline
from timely_llm.report.fitted_table import FittedTable
from timely_llm.report.terminal import LEGEND, STAGE_LEGEND, drawable, timeline_lines
from timely_llm.traces.model import printable

BY_TASK = ("utility", "response_s", "waiting_s")
WIDE = 240
"""Characters of a line in a file or pipe, where no table is folded."""

_TIMES = ("response_s", "waiting_s")
_NOTHING = 1e-5
_PAPER = "paper"
_TASK = ("task", "urgent")


def console() -> Console:
    """Return the console of tables: the terminal, or a wide page for a file or pipe."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=WIDE)


def show(run: RunDocument, page: Console) -> None:
    """Print the question, tables with the papers' numbers, timelines, definitions, set-up, notes.

    Each setting of the keys before `policy` has a table. Cells are means over the seeds with half
    the width of their 95 % interval. Times are in brackets if some requests were not served.
    """
    _line(page, run.question, "bold")
    ours, by_task = summary(run.rows, run.keys), summary(run.task_rows, (*run.keys, *_TASK))
    place = run.keys.index("policy") if "policy" in run.keys else 0
    outer, inner = run.keys[:place], run.keys[place:]
    for setting in dict.fromkeys(tuple(row[key] for key in outer) for row in ours):
        named = dict(zip(outer, setting, strict=True))
        if named:
            words = ", ".join(f"{key} {value}" for key, value in named.items())
            _line(page, f"\n{words}", "bold")
        rows = [row for row in ours if _is_of(row, named)]
        page.print(_table(page, inner, run.measures, [*_with_papers(run, rows)]))
        tasks = [row for row in by_task if _is_of(row, named)]
        for measure in BY_TASK:
            if any(measure in row for row in tasks):
                page.print(_task_table(page, inner, measure, tasks))
    _timelines(page, run)
    _facts(page, "Columns", run.definitions)
    _facts(page, "Set-up", {"profile": run.profile, **run.setup})
    papers = [f"{paper.title}: {paper.note}" for paper in run.papers if paper.note]
    for note in (*run.notes, *papers):
        _line(page, f"- {note}")


def _is_of(row: Row, setting: Mapping[str, RowValue]) -> bool:
    return all(row[key] == value for key, value in setting.items())


def _with_papers(run: RunDocument, ours: Sequence[Row]) -> Iterator[Row]:
    """Yield our rows, each followed by the papers' rows for the same setting."""
    for row in ours:
        yield row
        setting = {key: row[key] for key in run.keys}
        for theirs in (theirs for paper in run.papers for theirs in paper.rows):
            if all(theirs.get(key, value) == value for key, value in setting.items()):
                yield {**theirs, **setting, _PAPER: True}


def _table(
    page: Console, keys: Sequence[str], measures: Sequence[str], rows: Sequence[Row]
) -> FittedTable:
    known = [name for name in measures if any(row.get(name) is not None for row in rows)]
    table = _empty(page, keys, known)
    for row in rows:
        names = [_name(row[key]) for key in keys]
        if row.get(_PAPER):
            names = [Text(f"{_PAPER}: ") + names[0], *names[1:]]
        table.add_row(*names, *(_cell(row, name) for name in known))
    return table


def _task_table(
    page: Console, keys: Sequence[str], measure: str, rows: Sequence[Row]
) -> FittedTable:
    """Return a table with a column for each kind of task; `!` marks urgent kinds."""
    tasks = sorted({(str(r["task"]), bool(r["urgent"])) for r in rows}, key=_natural)
    table = _empty(page, keys, [f"{task} !" if urgent else task for task, urgent in tasks])
    table.columns[0].header = Text(f"{measure} of task")
    found = {tuple(row[key] for key in (*keys, *_TASK)): row for row in rows}
    for names in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        cells = [_cell(found.get((*names, *task), {}), measure) for task in tasks]
        table.add_row(*map(_name, names), *cells)
    return table


def _natural(task: tuple[str, bool]) -> tuple[int, str]:
    return len(task[0]), task[0]


def _empty(page: Console, names: Sequence[str], values: Sequence[str]) -> FittedTable:
    if page.is_terminal:
        table = FittedTable(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    else:
        table = FittedTable(box=box.MARKDOWN)
    for name in names:
        table.add_column(_name(name), no_wrap=True)
    for value in values:
        table.add_column(Text(_head(value)), justify="right")
    return table


def _cell(row: Mapping[str, object], name: str) -> Text:
    """Return a value with its interval; times are in brackets if some requests were not served."""
    value, half, share = (row.get(column) for column in (name, f"{name}_ci", "share_served"))
    if not isinstance(value, int | float) or not math.isfinite(value):
        return Text("")
    digits = _digits(value)
    text = f"{value:.{digits}f}"
    if isinstance(half, int | float) and math.isfinite(half):
        text += f" ±{half:.{digits}f}"
    partial = isinstance(share, int | float) and share < 1.0 and name.endswith(_TIMES)
    return Text(f"({text})" if partial else text)


def _digits(value: float) -> int:
    """Return the decimals of a number: none from 100 on, two from 0.1 on, else more."""
    if abs(value) >= 100:
        return 0
    if abs(value) >= 0.1 or abs(value) < _NOTHING:
        return 2
    return 1 - math.floor(math.log10(abs(value)))


def _head(column: str) -> str:
    """Return a column's name as words, which may wrap."""
    name = column.removesuffix("_s")
    return printable(name.replace("_", " ")) + (" (s)" if name != column else "")


def _name(value: object) -> Text:
    return Text(printable(str(value)))


def _timelines(page: Console, run: RunDocument) -> None:
    drawn = [timeline for timeline in map(document_timeline, run.timelines) if drawable(timeline)]
    for timeline in drawn:
        page.print()
        for line in timeline_lines(timeline):
            _line(page, f"    {line}")
    if drawn:
        _line(page, f"\n{LEGEND}")
        if any(timeline.has_stages for timeline in drawn):
            _line(page, STAGE_LEGEND)
        page.print()


def _facts(page: Console, title: str, facts: Mapping[str, object]) -> None:
    _line(page, f"{title}\n", "bold")
    for name, value in facts.items():
        _line(page, f"- {name}: {value}")
    page.print()


def _line(page: Console, text: str, style: str = "") -> None:
    """Print lines of untrusted text."""
    safe = "\n".join(map(printable, text.split("\n")))
    page.print(Text(safe, style=style), soft_wrap=not page.is_terminal)
