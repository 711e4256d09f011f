"""The parts of pages that are written from run documents: pictures, and what markers enclose."""

from __future__ import annotations

import re
from pathlib import Path

from timely_llm.experiments.results.document import RunDocument, read_run
from tools.results.exceptions import exception_table
from tools.results.page import Command, Page, ResultsError, shown
from tools.results.picture import draw
from tools.results.ranking import Standing, standing
from tools.results.table import comparison_table, definitions, markdown_table

BEGIN = "<!-- begin {}: written by python -m tools.results write -->"
END = "<!-- end {} -->"

Runs = dict[str, RunDocument]
"""Documents of commands, by the commands' names."""


def write_page(page: Page, data: Path, folder: Path) -> None:
    """Write the picture of a page, its line, and the page's text between the markers.

    All else stays as it is.

    Args:
        page: the page.
        data: folder of the run documents.
        folder: folder of the pages.

    Raises:
        ResultsError: a document is missing or does not fit, or the page lacks its picture's line or
            its markers.
        TimelyError: a file cannot be read or written.
    """
    before = with_picture(page_text(page, folder), page)
    replaced(before, page.name, "")
    runs = documents(page, data)
    draw(runs[page.picture.command], page.picture, page.picture_file(folder))
    text = replaced(before, page.name, body(page, runs))
    page.file(folder).write_text(text, encoding="utf-8")


def page_text(page: Page, folder: Path) -> str:
    """Return the text of a page.

    Raises:
        ResultsError: there is none.
    """
    try:
        return page.file(folder).read_text(encoding="utf-8")
    except OSError as error:
        raise ResultsError(
            f"{page.name}: cannot read {page.file(folder)}: {error.strerror}; write its title, its"
            f" first sentences, the line ![]({page.name}.png) and the markers"
            f" {BEGIN.format(page.name)} {END.format(page.name)}"
        ) from error


def with_picture(text: str, page: Page) -> str:
    """Return a page's text with the line of its picture as its definition has it.

    Raises:
        ResultsError: the line does not stand in it once.
    """
    parts = re.split(rf"^!\[[^\]]*\]\({page.name}\.png\)$", text, flags=re.M)
    if len(parts) != 2:
        raise ResultsError(f"{page.name}: the page needs the line ![]({page.name}.png), once")
    return picture_line(page).join(parts)


def picture_line(page: Page) -> str:
    """Return the line that shows the picture of a page."""
    return f"![{page.picture.text}]({page.name}.png)"


def body(page: Page, runs: Runs) -> str:
    """Return the text between the markers of a page: tables, exceptions and commands.

    Args:
        page: the page.
        runs: documents of its commands.

    Raises:
        ResultsError: a document does not fit.
    """
    parts = [markdown_table(runs[table.command], table) for table in page.tables]
    parts += [comparison_table(runs, one) for one in page.comparisons]
    defined: dict[str, None] = {}
    for table in page.tables:
        lines = definitions(runs[table.command], table.columns).splitlines()
        defined |= dict.fromkeys(lines)
    parts.append("\n".join(defined))
    parts += [exception_table(one) for one in standings(page, runs)]
    notes = dict.fromkeys(note for run in runs.values() for note in run.notes)
    parts.append("\n".join(f"- {note}" for note in notes))
    made = "\n".join(shown(run.command) for run in runs.values())
    return "\n\n".join([*filter(None, parts), f"```console\n{made}\n```"])


def standings(page: Page, runs: Runs) -> list[Standing]:
    """Return how the policy of each ranking of a page stands.

    Raises:
        ResultsError: a document lacks a column or the policy.
    """
    return [standing(runs[ranking.command], ranking) for ranking in page.rankings]


def replaced(text: str, name: str, content: str) -> str:
    """Return a text with other content between the markers of a name.

    Raises:
        ResultsError: the markers do not stand in it once each, in their order.
    """
    head, _, foot = parted(text, name)
    return f"{head}{BEGIN.format(name)}\n\n{content}\n\n{END.format(name)}{foot}"


def parted(text: str, name: str) -> tuple[str, str, str]:
    """Return what stands before, between and after the markers of a name.

    Raises:
        ResultsError: the markers do not stand in it once each, in their order.
    """
    begin, end = BEGIN.format(name), END.format(name)
    found = re.findall(f"{re.escape(begin)}|{re.escape(end)}", text)
    if found != [begin, end]:
        raise ResultsError(f"{name}: the page needs the lines {begin} and {end}, once each")
    head, rest = text.split(begin)
    between, foot = rest.split(end)
    return head, between, foot


def documents(page: Page, data: Path) -> Runs:
    """Return the documents of a page's commands.

    Raises:
        ResultsError: one is missing or has no rows.
        TimelyError: one cannot be read.
    """
    return {command.name: _document(command, data) for command in page.commands}


def _document(command: Command, data: Path) -> RunDocument:
    path = command.document(data)
    if not path.exists():
        raise ResultsError(f"{path} is missing: run python -m tools.results run first")
    run = read_run(path)
    if not run.rows:
        raise ResultsError(f"{path} has no rows")
    return run
