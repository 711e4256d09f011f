"""The pictures of pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from timely_llm.experiments.results.document import RunDocument
from timely_llm.report.document_timeline import document_timeline
from timely_llm.report.png import write_charts, write_timeline
from timely_llm.report.series import charts
from tools.results.page import Picture, ResultsError, Timelines
from tools.results.rows import chosen_rows

MOST_BYTES = 60_000
"""Size of a picture that the repository takes."""

COLOURS = 256
"""Colours of a picture: enough for its lines and the smooth edges of its letters."""

FIRST = "deadline"
"""The policy that is drawn first, so that it has the same look in all pictures."""


def draw(run: RunDocument, picture: Picture | Timelines, path: Path) -> None:
    """Write a picture.

    Raises:
        ResultsError: the document lacks a column or a timeline, or the picture is too large.
        OutputFileError: the file cannot be written.
    """
    with TemporaryDirectory() as folder:
        drawn = Path(folder) / "drawn.png"
        if isinstance(picture, Timelines):
            _draw_timelines(run, picture, drawn)
        else:
            _draw_charts(run, picture, drawn)
        with Image.open(drawn) as whole:
            whole.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
                path, optimize=True
            )
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ResultsError(f"{path.name} has {size} bytes: at most {MOST_BYTES}")


def _draw_charts(run: RunDocument, picture: Picture, path: Path) -> None:
    rows = chosen_rows(run, picture.where, picture.command)
    rows = tuple(sorted(rows, key=lambda row: row.get("policy") != FIRST))
    shown = run.model_copy(update={"rows": rows, "measures": picture.measures})
    by_measure = {chart.measure: chart for chart in charts(shown)}
    for measure in picture.measures:
        if measure not in by_measure:
            raise ResultsError(f"{picture.command}: the document has no chart of {measure}")
    drawn = [by_measure[measure] for measure in picture.measures]
    if picture.lines:
        drawn = [replace(chart, connected=True) for chart in drawn]
    write_charts(drawn, path)


def _draw_timelines(run: RunDocument, picture: Timelines, path: Path) -> None:
    named = {timeline.name.split(",")[0]: timeline for timeline in run.timelines}
    parts = []
    for policy in picture.policies:
        if policy not in named:
            raise ResultsError(f"{picture.command}: the document has no timeline of {policy}")
        write_timeline(document_timeline(named[policy]), path)
        with Image.open(path) as drawn:
            parts.append(drawn.convert("RGB"))
    whole = Image.new("RGB", (parts[0].width, sum(part.height for part in parts)))
    top = 0
    for part in parts:
        whole.paste(part, (0, top))
        top += part.height
    whole.save(path)
