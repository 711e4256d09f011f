"""The page of a report: one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.output_file import HTML, OutputFileError, write_text

try:
    from bokeh.embed import json_item
    from bokeh.models import Model
    from bokeh.resources import Resources
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
except ImportError as error:
    raise ConfigurationError(
        "a report needs the Python packages bokeh and jinja2: pip install bokeh jinja2"
    ) from error

from timely_llm import __version__
from timely_llm.experiments.document import DocumentError, Paper, Row, RunDocument, Timeline
from timely_llm.report.plots import draw_chart
from timely_llm.report.series import RUN, Chart, charts, task_charts
from timely_llm.report.tables import (
    Table,
    columns_of,
    paper_table,
    row_table,
    summary_table,
)
from timely_llm.report.theme import plain
from timely_llm.report.timeline_plot import draw_timeline
from timely_llm.report.words import file_name, heading, text

FOLDER = Path(__file__).parent
MOST_ROWS = 1000
"""Of a table; downloads have all."""


@dataclass(frozen=True)
class Plot:
    """A plot's place on the page.

    Attributes:
        id: of its element.
        title: what it shows.
        about: what its measure means.
        data: what the script needs to draw it; None if there is too much in it to be read.
    """

    id: str
    title: str
    about: str
    data: Markup | None


@dataclass(frozen=True)
class Rows:
    """Rows as they are: a table of the first ones, and data with all of them.

    Attributes:
        name: what they are called.
        count: how many there are.
    """

    name: str
    count: int
    table: Table
    data: Markup


@dataclass(frozen=True)
class Section:
    """A run, or a comparison of several, as the template wants it."""

    id: str
    name: str
    run: RunDocument
    summary: Table
    charts: tuple[Plot, ...]
    task_charts: tuple[Plot, ...] = ()
    timelines: tuple[Plot, ...] = ()
    papers: tuple[tuple[Paper, Table], ...] = ()
    rows: tuple[Rows, ...] = ()


def write_page(
    runs: Sequence[RunDocument], path: Path, title: str = "", names: Sequence[str] = ()
) -> None:
    """Write the page of one or several runs.

    Args:
        runs: with rows.
        path: of the page.
        title: of the page; by default the experiments' names.
        names: of the runs, to tell them apart; by default their experiments'.

    Raises:
        DocumentError: the page cannot be written.
    """
    page = render(runs, title, names)
    try:
        write_text(path, HTML, page, errors="replace")
    except OutputFileError as error:
        raise DocumentError(str(error)) from error


def render(runs: Sequence[RunDocument], title: str = "", names: Sequence[str] = ()) -> str:
    """Return the page as `write_page` writes it."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"value": text, "heading": heading, "data": data}
    names = unique(names or [run.experiment for run in runs])
    scripts = [
        Markup(script)
        for script in (
            "\n".join(Resources("inline", components=["bokeh"], log_level="warn").js_raw),
            (FOLDER / "page.js").read_text(encoding="utf-8"),
        )
    ]
    return environment.get_template("page.html.j2").render(
        title=title or ", ".join(dict.fromkeys(run.experiment for run in runs)),
        sections=[
            _section(run, name, f"run-{number}")
            for number, (run, name) in enumerate(zip(runs, names, strict=True), 1)
        ],
        comparisons=[
            _comparison(run, f"comparison-{number}")
            for number, run in enumerate(same_experiments(runs, names), 1)
        ],
        scripts=scripts,
        hashes=[_hash(script) for script in scripts],
        style=Markup((FOLDER / "style.css").read_text(encoding="utf-8")),
        most_rows=MOST_ROWS,
        version=__version__,
    )


def data(value: Any) -> Markup:
    """Return a value as JSON for an element `script`, which nothing in it can end."""
    dumped = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(dumped.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def same_experiments(runs: Sequence[RunDocument], names: Sequence[str]) -> list[RunDocument]:
    """Return a document for each experiment of which there are several runs, with all their rows.

    Its first key is the run, unless the runs have no setting in common. Runs with other keys or
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


def _section(run: RunDocument, name: str, id_: str) -> Section:
    return Section(
        id=id_,
        name=name,
        run=run,
        summary=summary_table(run),
        charts=_plots(run, charts(run), f"{id_}-chart"),
        task_charts=_plots(run, task_charts(run), f"{id_}-task"),
        timelines=tuple(
            _timeline(timeline, f"{id_}-timeline-{number}")
            for number, timeline in enumerate(run.timelines, 1)
        ),
        papers=tuple((paper, paper_table(run, paper)) for paper in run.papers),
        rows=tuple(
            _rows(run, name, rows)
            for name, rows in (("rows", run.rows), ("rows by kind of task", run.task_rows))
            if rows
        ),
    )


def _rows(run: RunDocument, name: str, rows: Sequence[Row]) -> Rows:
    columns = columns_of(run, rows)
    table = row_table(run, columns, rows[:MOST_ROWS])
    return Rows(name, len(rows), table, data({"columns": columns, "rows": rows}))


def _comparison(run: RunDocument, id_: str) -> Section:
    return Section(id_, run.experiment, run, summary_table(run), _plots(run, charts(run), id_))


def _plots(run: RunDocument, drawn: Sequence[Chart], id_: str) -> tuple[Plot, ...]:
    made = []
    for number, chart in enumerate(drawn, 1):
        plot_id = f"{id_}-{number}"
        name = file_name(run.experiment, chart.title)
        shown = draw_chart(chart, name) if chart.readable else None
        about = run.definitions.get(chart.measure, "")
        made.append(Plot(plot_id, chart.title, about, _plot_data(shown)))
    return tuple(made)


def _timeline(timeline: Timeline, id_: str) -> Plot:
    shown = draw_timeline(timeline, file_name("timeline", timeline.name))
    return Plot(id_, timeline.name, "", _plot_data(shown, timeline.requests))


def _plot_data(shown: Model | None, requests: Sequence[str] = ()) -> Markup | None:
    if shown is None:
        return None
    return data({"item": json_item(shown), "requests": [plain(name) for name in requests]})


def unique(names: Iterable[str]) -> list[str]:
    """Return names that differ: the second of two equal ones has its number behind it."""
    seen: Counter[str] = Counter()
    made = []
    for name in names:
        seen[name] += 1
        made.append(f"{name} ({seen[name]})" if seen[name] > 1 else name)
    return made


def _hash(script: str) -> str:
    """Return what a content security policy allows a script by."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
