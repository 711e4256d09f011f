"""Tables of pages in Markdown, from run documents."""

from __future__ import annotations

import math

from timely_llm.experiments.results.document import RunDocument
from timely_llm.report.series import averages, meaning
from timely_llm.report.tables import number
from timely_llm.report.words import heading, text
from tools.results.page import PageTable, ResultsError


def markdown_table(run: RunDocument, table: PageTable) -> str:
    """Return a table of means over seeds with their intervals.

    Raises:
        ResultsError: the document lacks a column, or no row is left.
    """
    wanted = [
        row
        for row in run.rows
        if all(text(row.get(key)) == text(value) for key, value in table.where.items())
    ]
    if not wanted:
        raise ResultsError(f"{table.command}: the document has no rows for this table")
    for column in table.columns:
        if not any(column in row for row in wanted):
            raise ResultsError(f"{table.command}: the document has no column {column}")
    keys = [key for key in run.keys if key not in table.where]
    lines = [f"**{table.title}**", ""] if table.title else []
    lines += [
        f"| {' | '.join(map(heading, (*keys, *table.columns)))} |",
        f"|{'---|' * (len(keys) + len(table.columns))}",
    ]
    for row in averages(wanted, keys):
        cells = [text(row[key]) for key in keys]
        for column in table.columns:
            mean = row.get(column, math.nan)
            known = math.isfinite(mean)
            cells.append(number(mean, row[column + "_ci"]) if known else text(None))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def definitions(run: RunDocument, columns: tuple[str, ...]) -> str:
    """Return the meanings of columns as a list in Markdown."""
    return "\n".join(f"- *{heading(column)}*: {meaning(run, column)}." for column in columns)
