"""What a page of results is made of."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from timely_llm.experiments.results.document import RowValue

PUBLISHED = "{published}"
"""In the line of a command: the folder of published data."""

Where = Mapping[str, RowValue | tuple[RowValue, ...]]
"""Values that key columns of shown rows have: one, or one of several."""


class ResultsError(Exception):
    """A page cannot be made; one sentence."""


@dataclass(frozen=True)
class Command:
    """An experiment with a run document that a page shows.

    Attributes:
        name: name of the document's file, without its ending; unique among all pages.
        line: what stands after `timely-llm experiment`, but for the seeds; the folder of published
            data is `PUBLISHED`.
        seeds: number of seeds; 0 if the experiment has none.
        minutes: what it takes one core of the machine that made the pages, minutes; long commands
            begin first.
    """

    name: str
    line: str
    seeds: int = 2
    minutes: float = 1.0

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return shlex.split(self.line)[0]

    def words(self, seeds: int | None = None, published: Path | None = None) -> list[str]:
        """Return the command line, from `timely-llm` on, as far as it decides the results.

        Args:
            seeds: number of seeds in place of the command's.
            published: folder of published data.

        Raises:
            ResultsError: it needs published data, and no folder is given.
        """
        if PUBLISHED in self.line and published is None:
            raise ResultsError(f"{self.name} reads published data: name its folder by --published")
        words = [word.replace(PUBLISHED, str(published)) for word in shlex.split(self.line)]
        counted = ["--seeds", str(seeds or self.seeds)] if self.seeds else []
        return ["timely-llm", "experiment", *words, *counted]

    @property
    def shown(self) -> str:
        """The command line as a page shows it: published data without their folder."""
        return shown(shlex.join(self.words(published=Path("/"))))

    def document(self, folder: Path) -> Path:
        """Return the path of its run document."""
        return folder / f"{self.name}.json"


WITHOUT_EFFECT = ("--jobs", "--json", "--html")
"""Options of a command that do not change its results; each has a value."""


def deciding(command: str) -> list[str]:
    """Return the words of a command line that decide its results.

    Raises:
        ResultsError: its quotes do not end.
    """
    try:
        words, kept = iter(shlex.split(command)), []
    except ValueError as error:
        raise ResultsError(f"a document has an impossible command: {error}") from error
    for word in words:
        if word in WITHOUT_EFFECT:
            next(words, None)
        else:
            kept.append(word)
    return kept


def shown(command: str) -> str:
    """Return a command line for readers: what decides its results, and files without folders."""
    words = (Path(word).name if Path(word).is_absolute() else word for word in deciding(command))
    return shlex.join(words)


@dataclass(frozen=True)
class Picture:
    """Charts side by side.

    Attributes:
        command: name of the command that made its document.
        measures: columns, a chart each.
        text: what it shows, for people who cannot see it.
        where: rows that it shows.
        lines: lines join the points, however few there are.
    """

    command: str
    measures: tuple[str, ...]
    text: str
    where: Where = field(default_factory=dict)
    lines: bool = False


@dataclass(frozen=True)
class Timelines:
    """Timelines of a document, one below the other.

    Attributes:
        command: name of the command that made the document.
        policies: what their names begin with.
        text: what they show, for people who cannot see it.
    """

    command: str
    policies: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class PageTable:
    """A table with a row for each setting.

    Attributes:
        command: name of the command that made its document.
        columns: measures, after the document's keys.
        title: line above the table; empty for none.
        where: rows that it shows; a column with one value is left out.
        papers: rows with papers' numbers stand below those of the same settings.
    """

    command: str
    columns: tuple[str, ...]
    title: str = ""
    where: Where = field(default_factory=dict)
    papers: bool = True


@dataclass(frozen=True)
class Comparison:
    """A table of a policy's measure over that of the best of all others, cell by cell.

    Attributes:
        commands: names of the commands that made its documents; the rows of all are compared.
        policy: the policy.
        measure: the column; smaller is better.
        across: key with a column of the table for each of its values.
        others: the policies that it is compared with, and their names in cells.
        title: line above the table.
        named: the page names each cell in which another policy is better in a list at its top.
        by: further key; each of its values is another rule of the others, and cells name the best
            one's value. Empty for none.
    """

    commands: tuple[str, ...]
    policy: str
    measure: str
    across: str
    others: Mapping[str, str]
    title: str
    named: bool = False
    by: str = ""


@dataclass(frozen=True)
class Ranking:
    """What a policy is expected to be best in.

    Attributes:
        command: name of the command that made the searched document.
        front: measures of the Pareto front: 1 if larger is better, -1 if smaller is; may be empty.
        first: the measure, larger is better, in which the policy is expected to be first.
        policy: the policy; variants of it (`deadline:...`) are not compared with it.
        without: further policies that are not compared.
    """

    command: str
    front: Mapping[str, int]
    first: str = "worth"
    policy: str = "deadline"
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """A page of docs/results.

    Attributes:
        name: name of its file, without its ending, and of its markers.
        title: what it is about.
        commands: they make its data.
        picture: its one picture.
        tables: its tables, in order.
        rankings: searched for cells in which the policy is not best.
        comparisons: tables of a policy and the best other one, below the other tables.
    """

    name: str
    title: str
    commands: tuple[Command, ...]
    picture: Picture | Timelines
    tables: tuple[PageTable, ...]
    rankings: tuple[Ranking, ...] = ()
    comparisons: tuple[Comparison, ...] = ()

    def file(self, folder: Path) -> Path:
        """Return the path of its text in the folder of all pages."""
        return folder / f"{self.name}.md"

    def picture_file(self, folder: Path) -> Path:
        """Return the path of its picture in the folder of all pages."""
        return folder / f"{self.name}.png"
