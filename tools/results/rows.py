"""Rows of run documents, chosen by their settings."""

from __future__ import annotations

from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.report.words import text
from tools.results.page import ResultsError, Where


def chosen_rows(run: RunDocument, where: Where, command: str) -> tuple[Row, ...]:
    """Return the rows with given settings.

    Args:
        run: the document.
        where: the settings.
        command: name of the document's command, for errors.

    Raises:
        ResultsError: no row is left.
    """
    rows = tuple(row for row in run.rows if is_chosen(row, where))
    if not rows:
        raise ResultsError(f"{command}: the document has no rows with {dict(where)}")
    return rows


def is_chosen(row: Row, where: Where) -> bool:
    """Return whether a row has given settings; one that it does not name is none of them."""
    return all(_has(row, key, where) for key in where)


def _has(row: Row, key: str, where: Where) -> bool:
    wanted = where[key]
    values = wanted if isinstance(wanted, tuple) else (wanted,)
    return text(row.get(key)) in {text(value) for value in values}
