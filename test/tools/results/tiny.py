"""A page of two robots, its real run document, and rows of documents by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from tools.results.page import Command, Page, PageTable, Picture, Ranking
from tools.results.write import BEGIN, END

COMMAND = Command("tiny", "fleet --robots 1,2 --duration 15 --policies stream,deadline", seeds=1)
RANKING = Ranking(
    "tiny",
    {"utility": 1, "starvation_frequency": -1},
    first="utility",
    without=("dedicated",),
)
PICTURE = Picture("tiny", ("utility", "starvation_frequency"), "two charts")
PAGE = Page(
    "tiny",
    "Two robots",
    (COMMAND,),
    PICTURE,
    (PageTable("tiny", ("utility", "useful_actions"), "Robots"),),
    (RANKING,),
)
LANES = {"Robots": (PAGE,)}
HEAD = "# Two robots\n\nOne sentence. Another one. A third one by hand.\n\n![](tiny.png)\n"
FOOT = "\nMore by hand.\n"
STORY = "\n[![one](results/tiny.png)](results/tiny.md)\n" * 5


@cache
def run() -> RunDocument:
    """Return what the page's command measures."""
    found = experiment("fleet")
    options = found.options(
        robots=(1, 2), seconds=15.0, policies=("stream", "deadline"), seeds=1, jobs=1
    )
    made = found.run(options, lambda done, total: None)
    command = " ".join([*COMMAND.words(), "--jobs", "1", "--json", "tiny.json"])
    return made.model_copy(update={"command": command})


def folder_of_pages(root: Path) -> Path:
    """Make docs/results with the page's text, and the index above it; return the folder."""
    folder = root / "docs/results"
    folder.mkdir(parents=True)
    text = f"{HEAD}\n{BEGIN.format('tiny')}\nold\n{END.format('tiny')}\n{FOOT}"
    (folder / "tiny.md").write_text(text)
    parts = (marked("exceptions"), STORY, marked("pages"))
    (root / "docs/results.md").write_text("\n".join(parts))
    return folder


def marked(name: str) -> str:
    """Return the empty lines between the markers of a name."""
    return f"{BEGIN.format(name)}\n{END.format(name)}\n"


def rows(policy: str, seeds: list[tuple[float, float]], **setting: RowValue) -> list[Row]:
    """Return rows of a policy: its utility and its starvation frequency with each seed."""
    return [
        {"policy": policy, "seed": seed, "utility": utility, "starvation_frequency": starved,
         **setting}
        for seed, (utility, starved) in enumerate(seeds)
    ]  # fmt: skip


def document(*made: list[Row]) -> RunDocument:
    """Return a run document of rows with the keys robots and policy."""
    every = tuple(row for part in made for row in part)
    return RunDocument(experiment="fleet", keys=("robots", "policy"), rows=every)
