"""The generated parts of docs/results.md: where a policy is not best, and the list of pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.results.exceptions import Exceptions, NamedCell, read_exceptions
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
    """Return every cell in which the policy is not best, a line for each run of a page.

    Args:
        pages: the pages.
        folder: their folder.

    Raises:
        ResultsError: a page is missing or lacks a table of its rankings.
    """
    found = [one for page in pages for one in _named(page, folder)]
    cells = [cell for _, one in found for cell in one.behind]
    head = (
        f"Of {sum(one.cells for _, one in found)} cells (settings of an experiment, with the gate"
        f" or without), `deadline` is not first in {_not_first(cells)}, in {_beyond(cells)} of them"
        f" beyond the interval, and not on the Pareto front in {_off_front(cells)}."
    )
    if not cells:
        return head
    return "\n".join(
        [
            f"{head} The table names all of them, with the policy that is first, in bold beyond the"
            " interval.",
            "",
            "| page | cells | not first | beyond the interval | off the front | where |",
            "|---|---|---|---|---|---|",
            *(_line(link, one) for link, one in found if one.behind),
        ]
    )


def _named(page: Page, folder: Path) -> Iterator[tuple[str, Exceptions]]:
    """Yield a link, and the cells that a page names, for each of its rankings."""
    if not page.rankings:
        return
    found = list(read_exceptions(page_text(page, folder)))
    if len(found) != len(page.rankings):
        raise ResultsError(
            f"{page.name}: the page has {len(found)} of {len(page.rankings)} tables of exceptions:"
            " python -m tools.results write"
        )
    several = len({ranking.command for ranking in page.rankings}) > 1
    for ranking, one in zip(page.rankings, found, strict=True):
        run = f": {ranking.command.replace('-', ' ')}" if several else ""
        yield f"[{page.title}]({folder.name}/{page.name}.md){run}", one


def _line(link: str, one: Exceptions) -> str:
    counts = one.cells, _not_first(one.behind), _beyond(one.behind), _off_front(one.behind)
    return f"| {' | '.join((link, *map(str, counts), _where(one)))} |"


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
    return sum(cell.off_front for cell in cells)


def listed(lanes: Mapping[str, Sequence[Page]], folder: str) -> str:
    """Return links to all pages, by lane."""
    return "\n".join(
        f"- {lane}: "
        + ", ".join(f"[{page.title}]({folder}/{page.name}.md)" for page in pages)
        + "."
        for lane, pages in lanes.items()
    )
