"""Whether each page is complete: markers, picture, link, and commands that parse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from timely_llm.cli.experiment import experiment as command_line
from timely_llm.core.errors import TimelyError
from timely_llm.experiments.registry import experiment
from tools.results.page import Command, Page, ResultsError
from tools.results.picture import MOST_BYTES
from tools.results.write import page_text, replaced

INDEX = "results.md"
"""The page that links all pages, in the folder above theirs."""


def problems(pages: Sequence[Page], folder: Path) -> Iterator[str]:
    """Yield a sentence for each thing that pages lack.

    Args:
        pages: the pages.
        folder: folder of the pages.
    """
    index = folder.parent / INDEX
    links = index.read_text(encoding="utf-8") if index.exists() else ""
    for page in pages:
        try:
            text = page_text(page, folder)
            replaced(text, page.name, "")
            if not text.startswith(f"# {page.title}\n"):
                yield f"{page.name}: its first line is not # {page.title}"
        except ResultsError as error:
            yield str(error)
        picture = page.picture_file(folder)
        if not picture.exists():
            yield f"{page.name}: {picture} is missing: python -m tools.results write"
        elif picture.stat().st_size > MOST_BYTES:
            yield f"{page.name}: {picture} has more than {MOST_BYTES} bytes"
        link = f"({folder.name}/{page.name}.md)"
        if link not in links:
            yield f"{page.name}: {INDEX} has no link {link}"
        yield from _unknown_commands(page)
        yield from filter(None, map(problem_of, page.commands))


def problem_of(command: Command) -> str:
    """Return a sentence if the command line of an experiment does not parse; else nothing."""
    here = Path(__file__)  # a file that exists, for published ones
    try:
        words = command.words(published=here)[2:]
        words = [str(here) if word.startswith(str(here)) else word for word in words]
        given = command_line.make_context("timely-llm experiment", words).params
        unwanted = ("name", "json_file", "html_file")
        options = {k: v for k, v in given.items() if v is not None and k not in unwanted}
        experiment(command.experiment).options(**options)
    except click.ClickException as error:
        return f"{command.name}: {error.format_message()}"
    except TimelyError as error:
        return f"{command.name}: {error}"
    return ""


def _unknown_commands(page: Page) -> Iterator[str]:
    known = {command.name for command in page.commands}
    shown = [page.picture.command]
    shown += [table.command for table in page.tables]
    shown += [ranking.command for ranking in page.rankings]
    for name in dict.fromkeys(shown):
        if name not in known:
            yield f"{page.name}: no command of the page has the name {name}"
