"""Tables of pages in Markdown, from run documents."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from timely_llm.report.series import averages, meaning
from timely_llm.report.tables import number
from timely_llm.report.words import heading, text
from tools.results.page import Comparison, PageTable, ResultsError
from tools.results.rows import chosen_rows, is_chosen

PAPER = "paper: "
"""Before the policy, or the first key, of a row with a paper's own numbers."""


def markdown_table(run: RunDocument, table: PageTable) -> str:
    """Return a table of means over seeds with their intervals, and papers' numbers below theirs.

    A key with one value is no column. Papers' numbers of settings without a row stand last, if the
    columns can name these settings.

    Raises:
        ResultsError: the document lacks a column, or no row is left.
    """
    wanted = chosen_rows(run, table.where, table.command)
    for column in table.columns:
        if not any(column in row for row in wanted):
            raise ResultsError(f"{table.command}: the document has no column {column}")
    keys = [key for key in run.keys if len({text(row.get(key)) for row in wanted}) > 1] or [
        *run.keys[-1:]
    ]
    lines = [f"**{table.title}**", ""] if table.title else []
    lines += [
        _line(map(heading, (*keys, *table.columns))),
        f"|{'---|' * (len(keys) + len(table.columns))}",
    ]
    papers = [said for paper in run.papers for said in paper.rows if table.papers]
    for row in averages(wanted, list(run.keys)):
        cells = []
        for column in table.columns:
            mean = row.get(column, math.nan)
            known = math.isfinite(mean)
            cells.append(number(mean, row[column + "_ci"]) if known else text(None))
        lines.append(_line((*(text(row[key]) for key in keys), *cells)))
        same = [said for said in papers if _is_about(said, row, run.keys)]
        papers = [said for said in papers if said not in same]
        lines += _of_papers(same, row, keys, table.columns)
    fixed = [key for key in run.keys if key not in keys]
    for said in papers:
        if is_chosen(said, table.where) and _is_about(said, wanted[0], fixed):
            lines += _of_papers([said], said, keys, table.columns)
    return "\n".join(lines)


def comparison_table(runs: Mapping[str, RunDocument], wanted: Comparison) -> str:
    """Return a table of a policy's measure over that of the best other policy of each cell.

    Where another one is better, it is named; with `by`, the best one's value stands in each cell.
    The sentence below counts the cells in which another one is better.

    Raises:
        ResultsError: a cell lacks the policy or all others, or a document a column.
    """
    own: dict[tuple[str, ...], float] = {}
    others: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    columns: dict[str, None] = {}
    documents = [runs[command] for command in wanted.commands]
    every = [row for run in documents for row in run.rows]
    keys = [
        key
        for key in documents[0].keys
        if key not in ("policy", wanted.across, wanted.by)
        and len({text(row.get(key)) for row in every}) > 1
    ]
    for row in every:
        value, policy = row.get(wanted.measure), row.get("policy")
        if not isinstance(value, float) or wanted.across not in row:
            names = f"{wanted.measure} or no {wanted.across}"
            raise ResultsError(f"{', '.join(wanted.commands)}: a row has no {names}")
        columns[text(row[wanted.across])] = None
        cell = *(text(row[key]) for key in keys), text(row[wanted.across])
        if policy == wanted.policy:
            own[cell] = value
        elif policy in wanted.others:
            variant = text(row[wanted.by]) if wanted.by else ""
            others[cell][f"{wanted.others[str(policy)]} {variant}".strip()] = value
    lines = [
        f"**{wanted.title}**",
        "",
        _line((*map(heading, keys), *columns)),
        f"|{'---|' * (len(keys) + len(columns))}",
    ]
    ratios = []
    for setting in dict.fromkeys(cell[:-1] for cell in (*own, *others)):
        shown = list(setting)
        for column in columns:
            cell = (*setting, column)
            if cell not in own or cell not in others:
                raise ResultsError(f"{', '.join(wanted.commands)}: no pair in {setting} {column}")
            best = min(others[cell], key=others[cell].__getitem__)
            ratios.append(own[cell] / others[cell][best])
            word = f"{ratios[-1]:.3f}"
            if float(word) > 1.0:
                shown.append(f"**{word}** {best}")
            else:
                shown.append(f"{word} {best}" if wanted.by else word)
        lines.append(_line(shown))
    above = sum(float(f"{ratio:.3f}") > 1.0 for ratio in ratios)
    beside = f"; the best {heading(wanted.by)} stands beside it" if wanted.by else ""
    named = "" if wanted.by else ", where the best one is named"
    lines += [
        "",
        f"A number is {heading(wanted.measure)} of `{wanted.policy}` over that of the best other"
        f" rule here{beside}. It is above 1 in {above} of {len(ratios)} cells{named}"
        f", at most {max(ratios):.3f}. The smallest is {min(ratios):.3f}.",
    ]
    return "\n".join(lines)


def _of_papers(
    papers: Sequence[Row], row: Row, keys: Sequence[str], columns: Sequence[str]
) -> Iterator[str]:
    """Yield a line for each row of a paper with one of the columns; `row` has its settings."""
    named = "policy" if "policy" in keys else keys[0]
    for said in papers:
        if any(said.get(column) is not None for column in columns):
            names = (PAPER * (key == named) + text(row.get(key)) for key in keys)
            yield _line((*names, *(_said(said.get(column)) for column in columns)))


def _said(value: RowValue) -> str:
    if not isinstance(value, float):
        return text(value)
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _is_about(said: Row, row: Row, keys: Sequence[str]) -> bool:
    """Return whether a row of a paper has the settings of a row, as far as it names them."""
    return all(text(row[key]) == text(said[key]) for key in keys if key in said)


def _line(cells: Iterator[str] | Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def definitions(run: RunDocument, columns: tuple[str, ...]) -> str:
    """Return the meanings of columns as a list in Markdown."""
    return "\n".join(f"- *{heading(column)}*: {meaning(run, column)}." for column in columns)
