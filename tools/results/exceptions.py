"""The cells in which a policy is not best, as a page has them: written, and read again.

Pages are what is kept of a run. The index names the cells that stand on them, so that it is written
without the run documents of all pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from timely_llm.report.words import heading, text
from tools.results.page import ResultsError
from tools.results.ranking import Standing

_CELLS = r"(one cell|\d+ cells)"
_NONE_BEHIND = re.compile(rf"`\S+` is first in .+, in all of {_CELLS}\.")
_SOME_BEHIND = re.compile(rf"Of {_CELLS}, those in which `\S+` is not first in .+:")
_AT_THE_END = ("first", "by", "nowhere worse")
"""Columns after the keys."""
NOT_JUDGED = "\N{EN DASH}"
"""Stands for the policies on the front where a ranking has none."""


@dataclass(frozen=True)
class NamedCell:
    """A cell that a page names.

    Attributes:
        setting: the values of its keys.
        first: the policy that is ahead; empty if none is.
        beyond: whether it is ahead beyond the interval; with one seed it is.
        off_front: whether another policy is worse in nothing and better in something; None if no
            front was judged.
    """

    setting: tuple[str, ...]
    first: str
    beyond: bool
    off_front: bool | None


@dataclass(frozen=True)
class Exceptions:
    """The cells that a page names of one ranking.

    Attributes:
        cells: number of cells.
        names: the keys of their settings.
        behind: the cells in which the policy is not best.
    """

    cells: int
    names: tuple[str, ...] = ()
    behind: tuple[NamedCell, ...] = ()


def exception_table(found: Standing) -> str:
    """Return the cells as a table in Markdown, or a sentence if there are none."""
    ranking = found.ranking
    about = f"first in {heading(ranking.first)}"
    if ranking.front:
        about += f", and on the Pareto front of {', '.join(map(heading, ranking.front))}"
    cells = f"{found.cells} cells" if found.cells > 1 else "one cell"
    if not found.behind:
        return f"`{ranking.policy}` is {about}, in all of {cells}."
    names = list(dict.fromkeys(name for one in found.behind for name, _ in one.setting))
    lines = [
        f"Of {cells}, those in which `{ranking.policy}` is not {about}:",
        "",
        f"| {' | '.join([*map(heading, names), *_AT_THE_END])} |",
        f"|{'---|' * (len(names) + len(_AT_THE_END))}",
    ]
    for one in found.behind:
        named = dict(one.setting)
        first, by = (f"`{one.first[0]}`", str(one.first[1])) if one.first else ("", "")
        front = "; ".join(
            f"`{name}`: " + ", ".join(str(lead) for lead in leads if lead.shows)
            for name, leads in one.front
        )
        front = front if ranking.front else NOT_JUDGED
        cells_of = (text(named.get(name)) for name in names)
        lines.append(f"| {' | '.join((*cells_of, first, by, front))} |")
    lines += ["", "Differences are means over paired seeds ± half of the 95 % interval."]
    return "\n".join(lines)


def read_exceptions(page: str) -> Iterator[Exceptions]:
    """Yield what `exception_table` wrote into the text of a page, in the order of its rankings.

    Raises:
        ResultsError: a table has other columns.
    """
    lines = page.splitlines()
    for place, line in enumerate(lines):
        if match := _NONE_BEHIND.fullmatch(line):
            yield Exceptions(_count(match[1]))
        elif match := _SOME_BEHIND.fullmatch(line):
            heads, *cells = _table(lines[place + 2 :])
            if tuple(heads[-len(_AT_THE_END) :]) != _AT_THE_END:
                raise ResultsError(f"a table of exceptions ends in {', '.join(heads)}")
            names = tuple(heads[: -len(_AT_THE_END)])
            yield Exceptions(_count(match[1]), names, tuple(map(_cell, cells)))


def _count(words: str) -> int:
    return 1 if words == "one cell" else int(words.split()[0])


def _table(lines: list[str]) -> Iterator[list[str]]:
    """Yield the cells of each line of a table but those of its rule."""
    for line in lines:
        if not line.startswith("|"):
            return
        if not line.startswith("|---"):
            yield line.removeprefix("| ").removesuffix(" |").split(" | ")


def _cell(cells: list[str]) -> NamedCell:
    *setting, first, by, front = cells
    off_front = None if front == NOT_JUDGED else bool(front)
    return NamedCell(tuple(setting), first.strip("`"), bool(by) and _beyond(by), off_front)


def _beyond(difference: str) -> bool:
    """Return whether a difference, such as `worth 24.50 ± 628.96`, is larger than its half."""
    numbers = difference.replace(",", "").rsplit(" ± ", 1)
    mean = float(numbers[0].rsplit(" ", 1)[1])
    # One seed has no interval, and `<0.001` is narrower than any difference that is shown.
    return len(numbers) == 1 or numbers[1].startswith("<") or mean > float(numbers[1])
