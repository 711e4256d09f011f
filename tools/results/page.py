"""What a page of results is made of."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PUBLISHED = "{published}"
"""In the words of a command: the folder of published data."""


class ResultsError(Exception):
    """A page cannot be made; one sentence."""


@dataclass(frozen=True)
class Command:
    """An experiment with a run document that a page shows.

    Attributes:
        name: name of the document's file, without its ending; unique among all pages.
        experiment: name of the experiment.
        options: further words of its command line; `PUBLISHED` in them is replaced.
        has_seeds: the experiment has the option `--seeds`.
    """

    name: str
    experiment: str
    options: tuple[str, ...] = ()
    has_seeds: bool = True

    @property
    def needs_published(self) -> bool:
        """Whether it reads published data."""
        return any(PUBLISHED in word for word in self.options)

    def words(self, seeds: int | None = None, published: Path | None = None) -> list[str]:
        """Return the command line, from `timely-llm` on, as far as it decides the results.

        Args:
            seeds: number of seeds; None for the page's, or the experiment's own.
            published: folder of published data.

        Raises:
            ResultsError: it needs published data, and no folder is given.
        """
        if self.needs_published and published is None:
            raise ResultsError(f"{self.name} reads published data: name its folder by --published")
        options = [word.replace(PUBLISHED, str(published)) for word in self.options]
        counted = ["--seeds", str(seeds)] if self.has_seeds and seeds is not None else []
        return ["timely-llm", "experiment", self.experiment, *options, *counted]

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


@dataclass(frozen=True)
class Picture:
    """Charts side by side.

    Attributes:
        command: name of the command that made its document.
        measures: columns, a chart each.
        text: what it shows, for people who cannot see it.
        without: values of the compared column that are left out.
    """

    command: str
    measures: tuple[str, ...]
    text: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class PageTable:
    """A table with a row for each setting.

    Attributes:
        command: name of the command that made its document.
        columns: measures, after the document's keys.
        title: line above the table; empty for none.
        where: values that the key columns of its rows must have.
    """

    command: str
    columns: tuple[str, ...]
    title: str = ""
    where: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ranking:
    """What a policy is expected to be first in.

    Attributes:
        command: name of the command that made the searched document.
        first: measures, larger is better, in which the policy is expected to be first.
        front: measures of the Pareto front: 1 if larger is better, -1 if smaller is.
        policy: the policy.
        without: values of the column `policy` that are not compared.
    """

    command: str
    first: tuple[str, ...]
    front: Mapping[str, int]
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
        rankings: searched for cells in which the policy is not first.
    """

    name: str
    title: str
    commands: tuple[Command, ...]
    picture: Picture
    tables: tuple[PageTable, ...]
    rankings: tuple[Ranking, ...] = ()

    def file(self, folder: Path) -> Path:
        """Return the path of its text in the folder of all pages."""
        return folder / f"{self.name}.md"

    def picture_file(self, folder: Path) -> Path:
        """Return the path of its picture in the folder of all pages."""
        return folder / f"{self.name}.png"
