"""Runs and recordings for a report, checked before anything is drawn."""

from __future__ import annotations

import math
from pathlib import Path

from timely_llm.experiments.document import DocumentError, Row, RunDocument, Timeline, read_run

BAG_ENDINGS = (".mcap", ".db3")


def load(path: Path) -> RunDocument:
    """Return what a file says: a run's JSON, or a recording, which is scored first.

    Args:
        path: a JSON file, the folder of a bag, or a bag's file.

    Raises:
        TimelyError: one sentence; it cannot be read, or there is nothing in it to report.
    """
    if path.is_dir() or path.suffix in BAG_ENDINGS:
        from timely_llm.experiments.recorded import score

        run = score(path)
    else:
        run = read_run(path)
    if not run.rows:
        raise DocumentError(f"{path} has no rows: there is nothing to report")
    for where, rows in [
        ("rows", run.rows),
        ("task_rows", run.task_rows),
        *((p.title, p.rows) for p in run.papers),
    ]:
        for number, row in enumerate(rows):
            _check_row(row, f"{path}: {where}: row {number}")
    for timeline in run.timelines:
        _check_timeline(timeline, f"{path}: timeline {timeline.name!r}")
    return run


def _check_row(row: Row, where: str) -> None:
    for column, value in row.items():
        if isinstance(value, int | float) and not _finite(value):
            raise DocumentError(
                f"{where}: {column} must be a finite number, or null if there is none"
            )


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def _check_timeline(timeline: Timeline, where: str) -> None:
    count = len(timeline.requests)
    if len(timeline.urgent) != count:
        raise DocumentError(f"{where}: urgent must have {count} values, as many as requests")
    named = [span.request for span in timeline.spans]
    named += [one for step in timeline.steps for one in step.requests]
    for one in named:
        if not 0 <= one < count:
            raise DocumentError(f"{where}: request {one} is none of its {count}")
    if any(span.end_s < span.start_s for span in timeline.spans):
        raise DocumentError(f"{where}: a span must not end before it starts")
    if any(step.duration_s < 0 for step in timeline.steps):
        raise DocumentError(f"{where}: a step must not take less than 0 s")
