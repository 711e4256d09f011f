"""The page of a report: one HTML file that needs no other file and no network.

It begins with a sentence, a picture, and the points that need attention. Tables, charts and
timelines follow, then the set-up and all rows.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from timely_llm import __version__
from timely_llm.core.output_file import HTML, OutputFileError, write_text
from timely_llm.core.text import count_of
from timely_llm.experiments.results.document import DocumentError, Paper, Row, RunDocument
from timely_llm.report.headline import attention, headline, run_attention, run_headline
from timely_llm.report.html import chart_svg, hatches, timeline_html
from timely_llm.report.load import LoadedRun
from timely_llm.report.palette import style_variables
from timely_llm.report.series import RUN, Chart, charts, meaning, task_charts
from timely_llm.report.tables import (
    Table,
    caption,
    columns_of,
    fitting,
    paper_table,
    summary_tables,
    waits_table,
)
from timely_llm.report.timeline import Timeline, busier_half
from timely_llm.report.words import heading, text

FOLDER = Path(__file__).parent / "assets"
MOST_ROWS_BYTES = 150_000
"""Bytes of all rows of a page. Further rows are only in the files of the runs."""
MOST_TIMELINES_BYTES = 180_000
"""Bytes of all timelines of a page. A longer timeline shows its busiest part."""
MOST_CHARTS_BYTES = 130_000
"""Bytes of all charts of a page. Further charts are left out; the tables have their numbers."""
MOST_CELLS = 1_000
"""Cells of all result tables of a page. The page counts further settings."""
MOST_TIMELINES = 12
LEAST_TIMELINE_S = 0.1


@dataclass(frozen=True)
class Figure:
    """A drawing with its place on the page.

    Attributes:
        title: title of the drawing.
        about: meaning of its measure, or the part of the run that it shows.
        drawn: the element; None if it is not readable, or has no room in the page.
        is_wide: it needs the width of the page.
        waits: the waits of a timeline's requests; None if the policy gave no reasons.
    """

    title: str
    about: str
    drawn: Markup | None
    is_wide: bool = False
    waits: Table | None = None


@dataclass(frozen=True)
class RawRows:
    """All rows of a kind as JSON. The page's script makes a table and downloads of it.

    Attributes:
        name: name of the rows.
        count: number of rows.
        kept: number of rows in the page, from the first on.
    """

    name: str
    count: int
    kept: int
    data: Markup


@dataclass(frozen=True)
class Section:
    """A run, or a comparison of several runs, for the template.

    Attributes:
        left_out: number of settings that have no room in the summary.
    """

    id: str
    name: str
    run: RunDocument
    headline: str
    picture: Figure | None
    attention: tuple[str, ...]
    summary: tuple[Table, ...]
    left_out: int
    caption: str
    charts: tuple[Figure, ...]
    task_charts: tuple[Figure, ...] = ()
    timelines: tuple[Figure, ...] = ()
    papers: tuple[tuple[Paper, Table], ...] = ()
    rows: tuple[RawRows, ...] = ()


def write_page(
    runs: Sequence[LoadedRun], path: Path, title: str = "", names: Sequence[str] = ()
) -> None:
    """Write the page of one or several runs.

    Args:
        runs: runs with rows.
        path: path of the page.
        title: title of the page; by default the names of the experiments.
        names: names of the runs; by default those of their experiments.

    Raises:
        DocumentError: the page cannot be written.
    """
    page = render(runs, title, names)
    try:
        write_text(path, HTML, page, errors="replace")
    except OutputFileError as error:
        raise DocumentError(str(error)) from error


def render(runs: Sequence[LoadedRun], title: str = "", names: Sequence[str] = ()) -> str:
    """Return the page of `write_page` as text."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"value": text, "heading": heading}
    documents = [run.document for run in runs]
    names = unique(names or [document.experiment for document in documents])
    script = Markup((FOLDER / "page.js").read_text(encoding="utf-8"))
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    together = same_experiments(documents, names)
    limits = _Limits.of(runs, together)
    return environment.get_template("page.html.j2").render(
        title=title or ", ".join(dict.fromkeys(document.experiment for document in documents)),
        sections=[
            _section(run, name, f"run-{number}", limits)
            for number, (run, name) in enumerate(zip(runs, names, strict=True), 1)
        ],
        comparisons=[
            _comparison(run, f"comparison-{number}", limits)
            for number, run in enumerate(together, 1)
        ],
        script=script,
        hash=_hash(script),
        style=Markup(style_variables() + "\n" + style),
        hatches=hatches(),
        version=__version__,
    )


@dataclass(frozen=True)
class _Limits:
    """The largest parts of a page, so that all of them have room.

    Attributes:
        timeline: bytes of one timeline.
        rows: bytes of one kind of rows.
        charts: bytes of the charts of one section.
        cells: cells of the summary of one section.
    """

    timeline: int
    rows: int
    charts: int
    cells: int

    @classmethod
    def of(cls, runs: Sequence[LoadedRun], together: Sequence[RunDocument]) -> _Limits:
        """Return the limits of a page with these runs and comparisons."""
        documents = [run.document for run in runs]
        lanes = [one for run in runs for one in run.timelines[:MOST_TIMELINES]]
        kinds = [rows for run in documents for rows in (run.rows, run.task_rows)]
        drawn = [
            *(charts(run) for run in together),
            *([*charts(run), *task_charts(run)] for run in documents),
        ]
        tables = [summary_tables(run) for run in (*together, *documents)]
        return cls(
            level([len(timeline_html(one)) for one in lanes], MOST_TIMELINES_BYTES),
            level([sum(len(_values(row)) for row in rows) for rows in kinds], MOST_ROWS_BYTES),
            level([sum(map(_chart_bytes, some)) for some in drawn], MOST_CHARTS_BYTES),
            level([sum(len(row) for t in some for row in t.rows) for some in tables], MOST_CELLS),
        )


def level(sizes: Sequence[int], most: int) -> int:
    """Return the largest limit of each size with which their sum is at most `most`."""
    left = most
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return share
        left -= size
    return most


def _chart_bytes(chart: Chart) -> int:
    return len(chart_svg(chart)) if chart.readable else 0


def _values(row: Row) -> str:
    return json.dumps(list(row.values()), separators=(",", ":"))


def data(value: Any) -> Markup:
    """Return a value as JSON for an element `script`; the value cannot end the element."""
    dumped = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(dumped.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def same_experiments(runs: Sequence[RunDocument], names: Sequence[str]) -> list[RunDocument]:
    """Return a document for each experiment with several runs; it has the rows of all of them.

    Its first key is the run, unless the runs have no common setting. Runs with other keys or
    measures are left out.
    """
    groups: dict[tuple[Any, ...], list[tuple[RunDocument, str]]] = {}
    for run, name in zip(runs, names, strict=True):
        groups.setdefault((run.experiment, run.keys, run.measures), []).append((run, name))
    return [_together(members) for members in groups.values() if len(members) > 1]


def _together(members: Sequence[tuple[RunDocument, str]]) -> RunDocument:
    first, _ = members[0]
    settings = [{tuple(row.get(key) for key in run.keys) for row in run.rows} for run, _ in members]
    apart = sum(map(len, settings)) == len(set[Any]().union(*settings))
    rows = tuple({**row, RUN: name} for run, name in members for row in run.rows)
    keys = first.keys if apart else (RUN, *(key for key in first.keys if key != RUN))
    return first.model_copy(update={"keys": keys, "rows": rows})


def _section(loaded: LoadedRun, name: str, id_: str, limits: _Limits) -> Section:
    run = loaded.document
    drawn, tasks = _figures(run, (charts(run), task_charts(run)), limits.charts)
    timelines = tuple(_timeline(one, limits.timeline) for one in loaded.timelines[:MOST_TIMELINES])
    readable = [figure for figure in drawn if figure.drawn]
    first = [*timelines, *readable][:1] if loaded.is_one else [*readable, *timelines][:1]
    summary, left_out = fitting(summary_tables(run), limits.cells)
    begin, notes = headline(run, loaded.at), attention(run)
    if loaded.is_one:
        begin = run_headline(run, loaded.timelines[0], loaded.at, loaded.completed)
        notes = run_attention(loaded.timelines[0])
    return Section(
        id=id_,
        name=name,
        run=run,
        headline=begin,
        picture=next(iter(first), None),
        attention=tuple(notes),
        summary=summary,
        left_out=left_out,
        caption=caption(summary),
        charts=tuple(figure for figure in drawn if figure not in first),
        task_charts=tasks,
        timelines=tuple(figure for figure in timelines if figure not in first),
        papers=tuple((paper, paper_table(run, paper)) for paper in run.papers),
        rows=tuple(
            _rows(run, name, rows, limits.rows)
            for name, rows in (("rows", run.rows), ("rows by kind of task", run.task_rows))
            if rows
        ),
    )


def _rows(run: RunDocument, name: str, rows: Sequence[Row], most_bytes: int) -> RawRows:
    """Return rows as lists of values; an empty list stands for a missing value."""
    columns = columns_of(run, rows)
    kept: list[list[Any]] = []
    left = most_bytes
    for row in rows:
        values: list[Any] = [row.get(column, []) for column in columns]
        left -= len(json.dumps(values, separators=(",", ":")))
        if left < 0 and kept:
            break
        kept.append(values)
    return RawRows(name, len(rows), len(kept), data({"columns": columns, "rows": kept}))


def _comparison(run: RunDocument, id_: str, limits: _Limits) -> Section:
    (drawn,) = _figures(run, (charts(run),), limits.charts)
    summary, left_out = fitting(summary_tables(run), limits.cells)
    return Section(
        id=id_,
        name=run.experiment,
        run=run,
        headline=headline(run, None),
        picture=next(iter(drawn), None),
        attention=tuple(attention(run)),
        summary=summary,
        left_out=left_out,
        caption=caption(summary),
        charts=drawn[1:],
    )


def _figures(
    run: RunDocument, kinds: Sequence[Sequence[Chart]], most_bytes: int
) -> list[tuple[Figure, ...]]:
    """Return the figures of each kind of charts; those beyond `most_bytes` are not drawn."""
    left = most_bytes
    made: list[tuple[Figure, ...]] = []
    for kind in kinds:
        figures = []
        for chart in kind:
            drawn = chart_svg(chart) if chart.readable else None
            left -= len(drawn or "")
            shown = drawn if left >= 0 else None
            figures.append(Figure(chart.title, meaning(run, chart.measure), shown))
        made.append(tuple(figures))
    return made


def _timeline(timeline: Timeline, most_bytes: int) -> Figure:
    """Return the figure of a timeline, or of its busiest part if the whole has no room."""
    shown, drawn = timeline, timeline_html(timeline)
    while len(drawn) > most_bytes:
        low, high = shown.limits
        if high - low < 2 * LEAST_TIMELINE_S:
            break
        shown = busier_half(shown)
        drawn = timeline_html(shown)
    about = ""
    if shown is not timeline:
        (low, high), (first, last) = shown.limits, timeline.limits
        about = (
            f"The busiest part, {low:.1f} to {high:.1f} s, of a timeline from {first:.1f} to"
            f" {last:.1f} s with {count_of(len(timeline.bars), 'bar')}."
        )
    return Figure(timeline.title, about, drawn, True, waits_table(timeline.decisions))


def unique(names: Iterable[str]) -> list[str]:
    """Return unique names: a number follows the second of two equal names."""
    seen: Counter[str] = Counter()
    made = []
    for name in names:
        seen[name] += 1
        made.append(f"{name} ({seen[name]})" if seen[name] > 1 else name)
    return made


def _hash(script: str) -> str:
    """Return the hash by which a content security policy allows a script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
