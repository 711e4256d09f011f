"""The pictures of pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PIL import Image

from timely_llm.experiments.results.document import RunDocument
from timely_llm.report.png import write_charts
from timely_llm.report.series import charts
from tools.results.page import Picture, ResultsError
from tools.results.rows import chosen_rows

MOST_BYTES = 60_000
"""Size of a picture that the repository takes."""

COLOURS = 64
"""Colours of a picture: enough for its lines and the smooth edges of its letters."""

FIRST = "deadline"
"""The policy that is drawn first, so that it has the same look in all pictures."""


def draw(run: RunDocument, picture: Picture, path: Path) -> None:
    """Write a picture.

    Raises:
        ResultsError: the document lacks a column, or the picture is too large.
        OutputFileError: the file cannot be written.
    """
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
    with Image.open(path) as picture_file:
        few = picture_file.convert("RGB").quantize(COLOURS)
    few.save(path, optimize=True)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ResultsError(f"{path.name} has {size} bytes: at most {MOST_BYTES}")
