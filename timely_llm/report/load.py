"""Runs and recordings for a report, checked before anything is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from timely_llm.experiments.results.document import (
    DocumentError,
    Row,
    RunDocument,
    TimelineDocument,
    read_run,
)
from timely_llm.report.document_timeline import document_timeline, recorded_timeline
from timely_llm.report.timeline import Timeline

BAG_ENDINGS = (".mcap", ".db3")


@dataclass(frozen=True)
class LoadedRun:
    """A run for a report.

    Attributes:
        document: the run document.
        at: when it was run or written; None if unknown.
        timelines: timelines of the run or of parts of it.
        is_one: a single run of robots and people, reported by its timeline; else a comparison,
            reported by its rows.
        completed: number of plans of a single run that were executed to their end.
    """

    document: RunDocument
    at: datetime | None = None
    timelines: tuple[Timeline, ...] = ()
    is_one: bool = False
    completed: int = 0

    @classmethod
    def of(cls, document: RunDocument, at: datetime | None = None) -> LoadedRun:
        """Return the run of a document, with the document's timelines."""
        return cls(document, at, tuple(map(document_timeline, document.timelines)))


def load(path: Path) -> LoadedRun:
    """Return the run of a JSON file, or of a recording, which is scored first.

    Args:
        path: a JSON file, the folder of a bag, or a bag's file.

    Raises:
        TimelyError: the path cannot be read, or has nothing to report.
    """
    if path.is_dir() or path.suffix in BAG_ENDINGS:
        from timely_llm.experiments.recorded.score import read_recording, recording_document

        recording = read_recording(path)
        document = checked(recording_document(recording, path), path)
        at = datetime.fromtimestamp(recording.first_ns / 1e9, UTC)
        completed = sum(plan.finished for plan in recording.requests.plans)
        return LoadedRun(document, at, (recorded_timeline(recording),), True, completed)
    document = checked(read_run(path), path)
    return LoadedRun.of(document, datetime.fromtimestamp(path.stat().st_mtime, UTC))


def checked(run: RunDocument, path: Path) -> RunDocument:
    """Return the document if it can be drawn.

    Raises:
        DocumentError: the document has no rows or an impossible value.
    """
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


def _check_timeline(timeline: TimelineDocument, where: str) -> None:
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
