"""The generated parts of docs/results.md: where a policy is not best, and the list of pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from timely_llm.report.words import heading
from tools.results.exceptions import NOT_JUDGED, Exceptions, NamedCell, read_exceptions
from tools.results.page import Page, ResultsError
from tools.results.write import page_text, replaced

INDEX = "results.md"
"""The page that links all pages, in the folder above theirs."""

EXCEPTIONS, LIST = "exceptions", "pages"
"""Names of its markers."""


def write_index(lanes: Mapping[str, Sequence[Page]], folder: Path) -> Path:
    """Write the generated parts of the index from its pages, and return its path.

    Args:
        lanes: pages by what they are about.
        folder: folder of the pages.

    Raises:
        ResultsError: a page is missing or lacks a table of its rankings, or the index its markers.
    """
    path = folder.parent / INDEX
    before = path.read_text(encoding="utf-8")
    pages = [page for lane in lanes.values() for page in lane]
    made = replaced(before, EXCEPTIONS, exceptions(pages, folder))
    path.write_text(replaced(made, LIST, listed(lanes, folder.name)), encoding="utf-8")
    return path


def exceptions(pages: Sequence[Page], folder: Path) -> str:
    """Return every cell in which the policy is not best, and what was not ranked.

    A line names the cells of one ranking. A cell that is judged in two measures counts once: it is
    behind if it is in one of them.

    Args:
        pages: the pages.
        folder: their folder.

    Raises:
        ResultsError: a page is missing or lacks a table of its rankings.
    """
    found = [one for page in pages for one in _named(page, folder)]
    runs: dict[str, list[Exceptions]] = {}
    for one in found:
        runs.setdefault(one.run, []).append(one.cells)
    behind = [
        NamedCell(
            setting,
            next((cell.first for cell in cells if cell.first), ""),
            any(cell.first and cell.beyond for cell in cells),
            any(cell.off_front for cell in cells),
        )
        for several in runs.values()
        for setting, cells in _by_setting(several).items()
    ]
    number = sum(max(one.cells for one in several) for several in runs.values())
    head = (
        f"Of {number} cells (settings of an experiment, with the gate or without),"
        f" `deadline` is not first in {_not_first(behind)}, in {_beyond(behind)} of them"
        f" beyond the interval, and not on the Pareto front in {_off_front(behind)}."
    )
    lines = [head]
    if behind:
        lines = [
            f"{head} The table names all of them, with the policy that is first, in bold beyond the"
            " interval.",
            "",
            "| page | cells | not first | beyond the interval | off the front | where |",
            "|---|---|---|---|---|---|",
            *(_line(one) for one in found if one.cells.behind),
        ]
    return "\n".join([*lines, *_left_out(pages, folder.name)])


def _left_out(pages: Sequence[Page], folder: str) -> Iterator[str]:
    """Yield which pages have no ranking, and which show less than was ranked."""
    if unranked := [_link(page, folder) for page in pages if not page.rankings]:
        yield f"\nPages without a ranking; their cells are not counted: {', '.join(unranked)}."
    if excerpts := [_link(page, folder) for page in pages if _shows_less(page)]:
        yield (
            "\nPages with tables that are excerpts, while all settings and policies of their"
            f" commands are ranked and counted: {', '.join(excerpts)}."
        )


def _link(page: Page, folder: str) -> str:
    return f"[{page.title}]({folder}/{page.name}.md)"


def _shows_less(page: Page) -> bool:
    """Return whether no table of a page has all rows of a run that is ranked."""
    whole = {table.command for table in page.tables if not table.where}
    return any(ranking.command not in whole for ranking in page.rankings)


@dataclass(frozen=True)
class _Named:
    """The cells that a page names of one ranking.

    Attributes:
        link: a link to the page, and what is ranked where the page has several rankings.
        run: the page, and its command.
        judges: whether the ranking has a front.
        cells: the cells.
    """

    link: str
    run: str
    judges: bool
    cells: Exceptions


def _by_setting(several: Sequence[Exceptions]) -> Mapping[tuple[str, ...], list[NamedCell]]:
    """Return the cells of one run by their settings."""
    found: dict[tuple[str, ...], list[NamedCell]] = {}
    for one in several:
        for cell in one.behind:
            found.setdefault(cell.setting, []).append(cell)
    return found


def _named(page: Page, folder: Path) -> Iterator[_Named]:
    """Yield the cells that a page names, for each of its rankings."""
    if not page.rankings:
        return
    found = list(read_exceptions(page_text(page, folder)))
    if len(found) != len(page.rankings):
        raise ResultsError(
            f"{page.name}: the page has {len(found)} of {len(page.rankings)} tables of exceptions:"
            " python -m tools.results write"
        )
    runs = [ranking.command for ranking in page.rankings]
    for ranking, one in zip(page.rankings, found, strict=True):
        link = _link(page, folder.name)
        if len({*runs}) > 1:
            link += f": {ranking.command.replace('-', ' ')}"
        if runs.count(ranking.command) > 1:
            link += f", in {heading(ranking.first)}"
        yield _Named(link, f"{page.name} {ranking.command}", bool(ranking.front), one)


def _line(named: _Named) -> str:
    one = named.cells
    off_front = str(_off_front(one.behind)) if named.judges else NOT_JUDGED
    counts = str(one.cells), str(_not_first(one.behind)), str(_beyond(one.behind)), off_front
    return f"| {' | '.join((named.link, *counts, _where(one)))} |"


def _where(one: Exceptions) -> str:
    """Return the cells by the policy that is first in them, then those off the front."""
    parts = []
    for first in dict.fromkeys(cell.first for cell in one.behind if cell.first):
        parts.append(f"`{first}`" + _at(one, [c for c in one.behind if c.first == first]))
    if off := [cell for cell in one.behind if cell.off_front]:
        parts.append("off the front" + _at(one, off, marked=False))
    names = "/".join(one.names)
    return f"{names}: {'; '.join(parts)}" if names else "; ".join(parts)


def _at(one: Exceptions, cells: Sequence[NamedCell], marked: bool = True) -> str:
    """Return the settings of cells; the only cell of a run needs none."""
    if not one.names:
        return ""
    settings = ["/".join(cell.setting) for cell in cells]
    bold = [marked and cell.beyond for cell in cells]
    shown = (f"**{name}**" if far else name for name, far in zip(settings, bold, strict=True))
    return f" at {', '.join(shown)}"


def _not_first(cells: Sequence[NamedCell]) -> int:
    return sum(bool(cell.first) for cell in cells)


def _beyond(cells: Sequence[NamedCell]) -> int:
    return sum(bool(cell.first) and cell.beyond for cell in cells)


def _off_front(cells: Sequence[NamedCell]) -> int:
    return sum(bool(cell.off_front) for cell in cells)


def listed(lanes: Mapping[str, Sequence[Page]], folder: str) -> str:
    """Return links to all pages, by lane."""
    return "\n".join(
        f"- {lane}: " + ", ".join(_link(page, folder) for page in pages) + "."
        for lane, pages in lanes.items()
    )
