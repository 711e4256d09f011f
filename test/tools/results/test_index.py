"""What is generated into the index of all pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from test.tools.results.tiny import LANES, PAGE, RANKING, document, folder_of_pages, rows, run
from timely_llm.experiments.results.document import RunDocument, write_run
from tools.results.exceptions import NOT_JUDGED, exception_table
from tools.results.index import exceptions, write_index
from tools.results.page import Page, PageTable, Ranking, ResultsError
from tools.results.ranking import standing
from tools.results.write import write_page


def page_of(folder: Path, *made: RunDocument) -> Page:
    """Write the exceptions of runs into a page of their rankings, and return the page."""
    folder.mkdir(parents=True)
    rankings = [replace(RANKING, command=f"run-{number}") for number in range(len(made))]
    tables = [exception_table(standing(*one)) for one in zip(made, rankings, strict=True)]
    PAGE.file(folder).write_text("\n\n".join(["# Two robots", *tables, "The end."]))
    shown = [replace(PAGE.tables[0], command=ranking.command) for ranking in rankings]
    return replace(PAGE, tables=tuple(shown), rankings=tuple(rankings))


def lines_of(folder: Path, *made: RunDocument) -> list[str]:
    return exceptions([page_of(folder, *made)], folder).splitlines()


def test_the_index_lists_exceptions_and_pages(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    write_run(run(), tmp_path / "tiny.json")
    write_page(PAGE, tmp_path, folder)
    path = write_index(LANES, folder)
    text = path.read_text()
    assert path == tmp_path / "docs/results.md"
    assert "Of 2 cells (settings of an experiment" in text
    assert "- Robots: [Two robots](results/tiny.md)." in text
    write_index(LANES, folder)
    assert path.read_text() == text


def test_every_cell_is_named_with_the_policy_that_is_first(tmp_path: Path) -> None:
    made = document(
        rows("deadline", [(1.0, 0.1)], robots=5),
        rows("fcfs", [(1.1, 0.2)], robots=5),
        rows("deadline", [(1.0, 0.3), (1.0, 0.3)], robots=6),
        rows("fcfs", [(1.2, 0.1), (0.9, 0.1)], robots=6),
        rows("deadline", [(1.0, 0.1), (1.0, 0.1)], robots=7),
        rows("edf", [(1.2, 0.4), (1.2, 0.4)], robots=7),
        rows("deadline", [(1.0, 0.3)], robots=8),
        rows("edf", [(1.0, 0.1)], robots=8),
        rows("deadline", [(1.0, 0.1)], robots=9),
    )
    lines = lines_of(tmp_path / "results", made)
    assert lines[0] == (
        "Of 5 cells (settings of an experiment, with the gate or without), `deadline` is not first"
        " in 3, in 2 of them beyond the interval, and not on the Pareto front in 2. The table names"
        " all of them, with the policy that is first, in bold beyond the interval."
    )
    assert lines[-1] == (
        "| [Two robots](results/tiny.md) | 5 | 3 | 2 | 2 |"
        " robots: `fcfs` at **5**, 6; `edf` at **7**; off the front at 6, 8 |"
    )


def test_runs_of_one_page_are_named(tmp_path: Path) -> None:
    made = document(rows("deadline", [(1.0, 0.3)], robots=5), rows("a", [(1.0, 0.1)], robots=5))
    lines = lines_of(tmp_path / "results", made, made)
    assert [line.split(" | ")[0] for line in lines[-2:]] == [
        "| [Two robots](results/tiny.md): run 0",
        "| [Two robots](results/tiny.md): run 1",
    ]


def test_the_only_cell_of_a_run_needs_no_setting(tmp_path: Path) -> None:
    made = document(rows("deadline", [(1.0, 0.1)], robots=5), rows("a", [(1.1, 0.2)], robots=5))
    assert lines_of(tmp_path / "results", made)[-1].endswith("| 1 | 1 | 1 | 0 | `a` |")


def test_a_run_without_exceptions_has_no_line(tmp_path: Path) -> None:
    (line,) = lines_of(tmp_path / "results", document(rows("deadline", [(1.0, 0.1)], robots=5)))
    assert line.startswith("Of 1 cells")


def test_only_the_front_may_be_missed(tmp_path: Path) -> None:
    made = document(rows("deadline", [(1.0, 0.3)], robots=5), rows("a", [(1.0, 0.1)], robots=5))
    assert lines_of(tmp_path / "results", made)[-1].endswith("| 1 | 0 | 0 | 1 | off the front |")


def test_a_cell_that_is_judged_twice_counts_once(tmp_path: Path) -> None:
    made = document(
        rows("deadline", [(1.0, 0.1)], robots=5),
        rows("fcfs", [(1.1, 0.2)], robots=5),
        rows("deadline", [(1.0, 0.1)], robots=6),
        rows("fcfs", [(1.1, 0.1)], robots=6),
    )
    second = Ranking("tiny", {}, first="utility")
    folder = tmp_path / "results"
    folder.mkdir()
    tables = [exception_table(standing(made, one)) for one in (RANKING, second)]
    PAGE.file(folder).write_text("\n\n".join(["# Two robots", *tables, "The end."]))
    assert f"| 6 | `fcfs` | utility 0.100 | {NOT_JUDGED} |" in tables[1]
    lines = exceptions([replace(PAGE, rankings=(RANKING, second))], folder).splitlines()
    assert lines[0].startswith("Of 2 cells")
    assert "not first in 2, in 2 of them beyond the interval" in lines[0]
    assert "not on the Pareto front in 1." in lines[0]
    link = "| [Two robots](results/tiny.md), in utility"
    assert lines[-2:] == [
        f"{link} | 2 | 2 | 2 | 1 | robots: `fcfs` at **5**, **6**; off the front at 6 |",
        f"{link} | 2 | 2 | 2 | {NOT_JUDGED} | robots: `fcfs` at **5**, **6** |",
    ]


def test_pages_without_a_ranking_and_excerpts_are_listed(tmp_path: Path) -> None:
    made = document(rows("deadline", [(1.0, 0.1)], robots=5))
    page = page_of(tmp_path / "results", made)
    shown = PageTable("run-0", ("utility",), where={"robots": 5})
    pages = [replace(page, tables=(shown,)), replace(PAGE, title="Alone", rankings=())]
    lines = exceptions(pages, tmp_path / "results").splitlines()
    assert lines[2] == (
        "Pages without a ranking; their cells are not counted: [Alone](results/tiny.md)."
    )
    assert lines[4].startswith("Pages with tables that are excerpts")
    assert lines[4].endswith(": [Two robots](results/tiny.md).")
    whole = replace(page, tables=(shown, replace(shown, where={})))
    assert len(exceptions([whole], tmp_path / "results").splitlines()) == 1


def test_a_page_without_its_tables_changes_nothing(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    before = (tmp_path / "docs/results.md").read_text()
    with pytest.raises(ResultsError, match="tiny: the page has 0 of 1 tables of exceptions"):
        write_index(LANES, folder)
    assert (tmp_path / "docs/results.md").read_text() == before
