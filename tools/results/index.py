"""The generated parts of docs/results.md: where a policy is not best, and the list of pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from timely_llm.report.words import heading, text
from tools.results.page import Page
from tools.results.ranking import BehindCell, Standing
from tools.results.write import documents, replaced, standings

INDEX = "results.md"
"""The page that links all pages, in the folder above theirs."""

EXCEPTIONS, LIST = "exceptions", "pages"
"""Names of its markers."""


def write_index(lanes: Mapping[str, Sequence[Page]], data: Path, folder: Path) -> Path:
    """Write the generated parts of the index, and return its path.

    Args:
        lanes: pages by what they are about.
        data: folder of the run documents.
        folder: folder of the pages.

    Raises:
        ResultsError: a document is missing or does not fit, or the index lacks its markers.
        TimelyError: a file cannot be read or written.
    """
    path = folder.parent / INDEX
    pages = [page for lane in lanes.values() for page in lane]
    found = [(page, one) for page in pages for one in standings(page, documents(page, data))]
    before = path.read_text(encoding="utf-8")
    made = replaced(before, EXCEPTIONS, exceptions(found, folder.name))
    path.write_text(replaced(made, LIST, listed(lanes, folder.name)), encoding="utf-8")
    return path


def exceptions(found: Sequence[tuple[Page, Standing]], folder: str) -> str:
    """Return the cells in which a policy is not best, as counts and the worst cell of each run.

    Args:
        found: how the policy stands, with the page that shows it.
        folder: folder of the pages, for links.
    """
    cells = sum(one.cells for _, one in found)
    behind = [(page, one) for page, one in found if one.behind]
    not_first = sum(cell.first is not None for _, one in found for cell in one.behind)
    beyond = sum(_beyond(cell) for _, one in found for cell in one.behind)
    off_front = sum(bool(cell.front) for _, one in found for cell in one.behind)
    head = (
        f"Of {cells} cells (settings of an experiment, with the gate or without), `deadline` is not"
        f" first in {not_first}, in {beyond} of them beyond the interval, and not on the Pareto"
        f" front in {off_front}."
    )
    if not behind:
        return head
    rows = [
        "| page | cells | not first | beyond the interval | off the front | farthest behind |",
        "|---|---|---|---|---|---|",
    ]
    for page, one in behind:
        counts = (
            one.cells,
            sum(cell.first is not None for cell in one.behind),
            sum(map(_beyond, one.behind)),
            sum(bool(cell.front) for cell in one.behind),
        )
        several = len({ranking.command for ranking in page.rankings}) > 1
        run = f": {one.ranking.command.replace('-', ' ')}" if several else ""
        link = f"[{page.title}]({folder}/{page.name}.md){run}"
        rows.append(f"| {' | '.join((link, *map(str, counts), _farthest(one)))} |")
    return "\n".join([head, "", *rows])


def _beyond(cell: BehindCell) -> bool:
    return cell.first is not None and cell.first[1].beyond_chance


def _farthest(one: Standing) -> str:
    """Return the cell with the largest share by which the policy is behind, in words."""
    cells = [cell for cell in one.behind if cell.first is not None]
    if not cells:
        names = dict.fromkeys(f"`{name}`" for cell in one.behind for name, _ in cell.front)
        return f"nowhere worse: {', '.join(names)}"

    def share(cell: BehindCell) -> float:
        assert cell.first is not None
        return cell.first[1].mean / max(abs(cell.first[1].own), 1e-9)

    worst = max(cells, key=share)
    assert worst.first is not None
    where = ", ".join(f"{heading(name)} {text(value)}" for name, value in worst.setting)
    measure = heading(one.ranking.first)
    more = f"`{worst.first[0]}` has {100 * share(worst):.1f} % more {measure}"
    return f"{where}: {more}" if where else more


def listed(lanes: Mapping[str, Sequence[Page]], folder: str) -> str:
    """Return links to all pages, by lane."""
    return "\n".join(
        f"- {lane}: "
        + ", ".join(f"[{page.title}]({folder}/{page.name}.md)" for page in pages)
        + "."
        for lane, pages in lanes.items()
    )
