"""Whether each page is complete: sentences, markers, picture, link, commands of its data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from timely_llm.cli.experiment import experiment as command_line
from timely_llm.core.errors import TimelyError
from timely_llm.experiments.registry import experiment
from tools.results.index import EXCEPTIONS, INDEX, LIST
from tools.results.index import exceptions as named
from tools.results.page import Command, Comparison, Page, ResultsError
from tools.results.picture import MOST_BYTES
from tools.results.write import page_text, parted, picture_line

PLACE = "<!-- sentences -->"
"""Stands where sentences about a run are to be written by hand."""

LEAST_SENTENCES, MOST_SENTENCES = 3, 7
"""Sentences before a page's picture."""
MOST_LINES = 145
PICTURES = 5
"""Pictures of the index: its story has one for each."""


def problems(lanes: Mapping[str, Sequence[Page]], folder: Path) -> Iterator[str]:
    """Yield a sentence for each thing that pages and the index lack.

    Args:
        lanes: pages by what they are about.
        folder: folder of the pages.
    """
    pages = [page for lane in lanes.values() for page in lane]
    texts = []
    for page in pages:
        try:
            texts.append(page_text(page, folder))
            yield from (f"{page.name}: {one}" for one in _text_problems(page, texts[-1]))
        except ResultsError as error:
            yield str(error)
        picture = page.picture_file(folder)
        if not picture.exists():
            yield f"{page.name}: {picture} is missing: python -m tools.results write"
        elif picture.stat().st_size > MOST_BYTES:
            yield f"{page.name}: {picture} has more than {MOST_BYTES} bytes"
        yield from _unknown_commands(page)
        yield from filter(None, map(problem_of, page.commands))
    for path in {*folder.glob("*.md")} - {page.file(folder) for page in pages}:
        if PLACE in path.read_text(encoding="utf-8"):
            yield f"{path.stem}: sentences are missing where {PLACE} stands"
    yield from (f"{INDEX}: {one}" for one in _index_problems(pages, folder, texts))


def _text_problems(page: Page, text: str) -> Iterator[str]:
    head, between, foot = parted(text, page.name)
    if not text.startswith(f"# {page.title}\n"):
        yield f"its first line is not # {page.title}"
    first, picture, _ = head.partition(picture_line(page))
    count = len(re.findall(r"[.!?](?:\s|$)", first))
    if PLACE in text:
        yield f"sentences are missing where {PLACE} stands"
    elif picture and not LEAST_SENTENCES <= count <= MOST_SENTENCES:
        allowed = f"{LEAST_SENTENCES} to {MOST_SENTENCES}"
        yield f"{count} sentences stand before its picture, not {allowed}"
    if not picture:
        yield "it does not show its picture before its tables: python -m tools.results write"
    made = re.search(r"```console\n(.*?)\n```", between, re.S)
    if made is None or made[1].split("\n") != [command.shown for command in page.commands]:
        yield "its tables were made by other commands than those of its definition"
    for number in _unfounded(head, between + foot):
        yield f"its sentences have {number}, which stands nowhere below"
    for comparison in page.comparisons:
        if comparison.named:
            yield from _unnamed_cells(comparison, head, between)
    if (lines := text.count("\n")) > MOST_LINES:
        yield f"it has {lines} lines: at most {MOST_LINES}"


def _unnamed_cells(comparison: Comparison, head: str, between: str) -> Iterator[str]:
    """Yield each cell with a better other policy that no item of the first list names.

    An item is `- **words of the setting**: columns of the table`.
    """
    named = [
        ({*re.findall(r"\w+", setting)}, {*re.findall(r"[\w/]+", columns)})
        for setting, columns in re.findall(r"^- \*\*(.+?)\*\*:(.+(?:\n .+)*)", head, re.M)
    ]
    table = between.partition(f"**{comparison.title}**\n\n")[2].partition("\n\n")[0]
    columns, *rows = [line.strip("| ").split(" | ") for line in table.splitlines()] or [[]]
    for row in rows[1:]:
        keys = [cell for cell in row if not re.match(r"(\*\*)?\d+\.\d{3}", cell)]
        for column, cell in zip(columns, row, strict=True):
            if cell.startswith("**") and not any(
                words.issuperset(keys) and column in across for words, across in named
            ):
                yield f"its first list does not name {' '.join(keys)} {column}: {cell}"


def _index_problems(pages: Sequence[Page], folder: Path, texts: Sequence[str]) -> Iterator[str]:
    path = folder.parent / INDEX
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for page in pages:
        link = f"({folder.name}/{page.name}.md)"
        if link not in text:
            yield f"it has no link {link}: python -m tools.results write"
    try:
        _, exceptions, story = parted(text, EXCEPTIONS)
        if exceptions.strip() != named(pages, folder):
            yield "its exceptions are not those of the pages: python -m tools.results write"
        story = parted(story, LIST)[0]
    except ResultsError as error:
        yield str(error)
        return
    if PLACE in text:
        yield f"sentences are missing where {PLACE} stands"
    if len(re.findall(rf"!\[[^\]]+\]\({folder.name}/\w+\.png\)", story)) != PICTURES:
        yield f"its story does not have {PICTURES} pictures"
    for number in _unfounded(story, "\n".join(texts)):
        yield f"its story has {number}, which stands on no page"


def _unfounded(sentences: str, source: str) -> Iterator[str]:
    """Yield each number with decimals that no number of the source rounds to."""
    known = [one.replace(",", "") for one in re.findall(r"\d[\d,]*(?:\.\d+)?", source)]
    for number in dict.fromkeys(re.findall(r"(?<![\w.§])\d+\.\d+", sentences)):
        decimals = len(number.split(".")[1])
        if not any(f"{float(one):.{decimals}f}" == number for one in known):
            yield number


def problem_of(command: Command) -> str:
    """Return a sentence if the command line of an experiment does not parse; else nothing."""
    try:
        options_of(command)
    except click.ClickException as error:
        return f"{command.name}: {error.format_message()}"
    except TimelyError as error:
        return f"{command.name}: {error}"
    return ""


def options_of(command: Command) -> Any:
    """Return the options of an experiment as its command line gives them.

    Raises:
        click.ClickException: the command line does not parse.
        TimelyError: an option has an impossible value.
    """
    here = Path(__file__)  # a file that exists, for published ones
    words = command.words(published=here)[2:]
    words = [str(here) if word.startswith(str(here)) else word for word in words]
    given = command_line.make_context("timely-llm experiment", words).params
    unwanted = ("name", "json_file", "html_file")
    options = {k: v for k, v in given.items() if v is not None and k not in unwanted}
    return experiment(command.experiment).options(**options)


def _unknown_commands(page: Page) -> Iterator[str]:
    known = {command.name for command in page.commands}
    used = [page.picture.command]
    used += [table.command for table in page.tables]
    used += [ranking.command for ranking in page.rankings]
    used += [name for one in page.comparisons for name in one.commands]
    for name in dict.fromkeys(used):
        if name not in known:
            yield f"{page.name}: no command of the page has the name {name}"
