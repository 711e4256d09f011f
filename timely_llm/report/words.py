"""The words of a report: values, columns and names for people."""

from __future__ import annotations

import re
from collections.abc import Sequence

from timely_llm.experiments.results.document import RowValue
from timely_llm.traces.model import printable

LEVEL_CHARACTERS = 48


def text(value: RowValue) -> str:
    """Return a value as text."""
    if value is None:
        return "–"  # noqa: RUF001
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def heading(column: str) -> str:
    """Return a column's name as words: `response_s` becomes "response (s)"."""
    for ending, unit in (("_per_s", " per s"), ("_ms", " (ms)"), ("_s", " (s)")):
        if column.endswith(ending) and column != ending:
            column = column.removesuffix(ending) + unit
            break
    return column.replace("_", " ")


def short(words: str, most: int = 60) -> str:
    """Return words on one line, of at most `most` printable characters."""
    line = " ".join(printable(words).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def slanted(labels: Sequence[str]) -> bool:
    """Return whether labels along an axis are too long to be horizontal."""
    return len(labels) * max(map(len, labels), default=0) > LEVEL_CHARACTERS


def file_name(*words: str) -> str:
    """Return words as a file name without special characters of shells."""
    return "-".join(re.findall(r"[a-z0-9]+", " ".join(words).lower()))[:80] or "plot"
