"""What is generated into the index of all pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from test.tools.results.tiny import LANES, PAGE, RANKING, document, folder_of_pages, rows, run
from timely_llm.experiments.results.document import write_run
from tools.results.index import exceptions, write_index
from tools.results.page import ResultsError
from tools.results.ranking import standing


def test_the_index_lists_exceptions_and_pages(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    write_run(run(), tmp_path / "tiny.json")
    path = write_index(LANES, tmp_path, folder)
    text = path.read_text()
    assert path == tmp_path / "docs/results.md"
    assert "Of 2 cells (settings of an experiment" in text
    assert "- Robots: [Two robots](results/tiny.md)." in text
    write_index(LANES, tmp_path, folder)
    assert path.read_text() == text


def test_each_run_has_a_line_with_its_counts_and_its_farthest_cell() -> None:
    made = document(
        rows("deadline", [(1.0, 0.1)], robots=5),
        rows("fcfs", [(1.1, 0.2)], robots=5),
        rows("deadline", [(1.0, 0.3)], robots=6),
        rows("fcfs", [(1.2, 0.1)], robots=6),
        rows("deadline", [(1.0, 0.1)], robots=7),
    )
    lines = exceptions([(PAGE, standing(made, RANKING))], "results").splitlines()
    assert lines[0] == (
        "Of 3 cells (settings of an experiment, with the gate or without), `deadline` is not first"
        " in 2, in 2 of them beyond the interval, and not on the Pareto front in 1."
    )
    assert lines[-1] == (
        "| [Two robots](results/tiny.md) | 3 | 2 | 2 | 1 |"
        " robots 6: `fcfs` has 20.0 % more utility |"
    )


def test_runs_of_one_page_are_named() -> None:
    made = document(rows("deadline", [(1.0, 0.3)], robots=5), rows("a", [(1.0, 0.1)], robots=5))
    page = replace(PAGE, rankings=(RANKING, replace(RANKING, command="other-one")))
    found = [(page, standing(made, ranking)) for ranking in page.rankings]
    lines = exceptions(found, "results").splitlines()
    assert [line.split(" | ")[0] for line in lines[-2:]] == [
        "| [Two robots](results/tiny.md): tiny",
        "| [Two robots](results/tiny.md): other one",
    ]


def test_the_only_cell_of_a_run_needs_no_setting() -> None:
    made = document(rows("deadline", [(1.0, 0.1)], robots=5), rows("a", [(1.1, 0.2)], robots=5))
    line = exceptions([(PAGE, standing(made, RANKING))], "results").splitlines()[-1]
    assert line.endswith("| 1 | 1 | 1 | 0 | `a` has 10.0 % more utility |")


def test_a_run_without_exceptions_has_no_line() -> None:
    made = document(rows("deadline", [(1.0, 0.1)], robots=5))
    assert "\n" not in exceptions([(PAGE, standing(made, RANKING))], "results")


def test_only_the_front_may_be_missed() -> None:
    made = document(rows("deadline", [(1.0, 0.3)], robots=5), rows("a", [(1.0, 0.1)], robots=5))
    line = exceptions([(PAGE, standing(made, RANKING))], "results").splitlines()[-1]
    assert line.endswith("| 1 | 0 | 0 | 1 | nowhere worse: `a` |")


def test_a_missing_document_changes_nothing(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    before = (tmp_path / "docs/results.md").read_text()
    with pytest.raises(ResultsError, match=r"other\.json is missing"):
        write_index(
            {"Robots": [replace(PAGE, commands=(replace(PAGE.commands[0], name="other"),))]},
            tmp_path,
            folder,
        )
    assert (tmp_path / "docs/results.md").read_text() == before
