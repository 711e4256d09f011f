"""The parts of pages that are written from run documents, between their markers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from timely_llm.experiments.results.document import RunDocument, read_run
from tools.results.page import Command, Page, ResultsError, deciding
from tools.results.picture import draw
from tools.results.ranking import exception_table, exceptions
from tools.results.table import definitions, markdown_table

BEGIN = "<!-- begin {}: written by python -m tools.results write -->"
END = "<!-- end {} -->"


def write_page(page: Page, data: Path, folder: Path) -> None:
    """Write the picture of a page, and its text between the markers.

    What stands before and after the markers stays as it is.

    Args:
        page: the page.
        data: folder of the run documents.
        folder: folder of the pages.

    Raises:
        ResultsError: a document is missing or does not fit, or the page lacks its markers.
        TimelyError: a file cannot be read or written.
    """
    path = page.file(folder)
    before = page_text(page, folder)
    replaced(before, page.name, "")
    runs = {command.name: _document(command, data) for command in page.commands}
    draw(runs[page.picture.command], page.picture, page.picture_file(folder))
    path.write_text(replaced(before, page.name, body(page, runs, folder)), encoding="utf-8")


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
            f" first sentences and the markers {BEGIN.format(page.name)} {END.format(page.name)}"
        ) from error


def body(page: Page, runs: dict[str, RunDocument], folder: Path) -> str:
    """Return the text between the markers of a page: picture, exceptions, tables and commands.

    Args:
        page: the page.
        runs: documents of its commands, by name.
        folder: folder of the pages.

    Raises:
        ResultsError: a document does not fit.
    """
    parts = [f"![{page.picture.text}]({page.picture_file(folder).name})"]
    for ranking in page.rankings:
        parts.append(exception_table(exceptions(runs[ranking.command], ranking), ranking))
    for table in page.tables:
        parts.append(markdown_table(runs[table.command], table))
        parts.append(definitions(runs[table.command], table.columns))
    for run in runs.values():
        parts += [f"- {note}" for note in run.notes]
    made = "\n".join(shlex.join(deciding(run.command)) for run in runs.values())
    return "\n\n".join([*parts, "Made by:", f"```console\n{made}\n```"])


def replaced(text: str, name: str, content: str) -> str:
    """Return a text with other content between the markers of a name.

    Raises:
        ResultsError: the markers do not stand in it once each, in their order.
    """
    begin, end = BEGIN.format(name), END.format(name)
    found = re.findall(f"{re.escape(begin)}|{re.escape(end)}", text)
    if found != [begin, end]:
        raise ResultsError(f"{name}: the page needs the lines {begin} and {end}, once each")
    head, rest = text.split(begin)
    return f"{head}{begin}\n\n{content}\n\n{end}{rest.split(end)[1]}"


def _document(command: Command, data: Path) -> RunDocument:
    path = command.document(data)
    if not path.exists():
        raise ResultsError(f"{path} is missing: run python -m tools.results run first")
    run = read_run(path)
    if not run.rows:
        raise ResultsError(f"{path} has no rows")
    return run
