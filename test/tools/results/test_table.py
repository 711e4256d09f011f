"""Tables of a real run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from test.tools.results.tiny import PAGE, document, rows, run
from timely_llm.experiments.results.document import Paper
from tools.results.page import PageTable, ResultsError
from tools.results.table import definitions, markdown_table

(TABLE,) = PAGE.tables


def test_a_table_has_a_row_for_each_setting() -> None:
    lines = markdown_table(run(), TABLE).splitlines()
    assert lines[:4] == [
        "**Robots**",
        "",
        "| robots | policy | utility | useful actions |",
        "|---|---|---|---|",
    ]
    assert [line.split(" | ")[:2] for line in lines[4:]] == [
        [f"| {robots}", policy]
        for robots in (1, 2)
        for policy in ("dedicated", "stream", "deadline")
    ]


def test_means_have_intervals_and_missing_values_a_dash() -> None:
    seeds = [(1.0, 0.1), (1.0, 0.2)]
    made = document(rows("a", seeds, robots=5, late=None), rows("a", seeds, robots=6, late=None))
    table = PageTable("tiny", ("utility", "starvation_frequency", "late"))
    assert markdown_table(made, table).splitlines()[2] == (
        "| 5 | 1.000 ± 0.000 | 0.150 ± 0.635 | \N{EN DASH} |"
    )


def test_a_table_may_show_some_settings() -> None:
    text = markdown_table(run(), replace(TABLE, where={"robots": 2}))
    assert text.splitlines()[2] == "| policy | utility | useful actions |"
    assert len(text.splitlines()) == 7
    both = markdown_table(run(), replace(TABLE, where={"robots": (1, 2)}))
    assert both == markdown_table(run(), TABLE)


def test_a_papers_numbers_stand_below_those_of_the_same_setting() -> None:
    made = document(rows("fcfs", [(1.0, 0.1)], robots=5), rows("edf", [(1.0, 0.2)], robots=5))
    paper = Paper(title="A paper", rows=(
        {"policy": "edf", "robots": 5, "utility": 0.75}, {"policy": "edf", "other": 1.0},
        {"policy": "edf", "robots": 6, "utility": 0.5},
    ))  # fmt: skip
    made = made.model_copy(update={"papers": (paper,)})
    table = PageTable("tiny", ("utility", "starvation_frequency"))
    assert "paper" not in markdown_table(made, replace(table, papers=False))
    text = markdown_table(made, table)
    assert text.splitlines()[2:] == [
        "| fcfs | 1.000 | 0.100 |",
        "| edf | 1.000 | 0.200 |",
        "| paper: edf | 0.75 | \N{EN DASH} |",
    ]


def test_what_a_document_lacks_is_named() -> None:
    with pytest.raises(ResultsError, match="tiny: the document has no column attainment"):
        markdown_table(run(), replace(TABLE, columns=("attainment",)))
    with pytest.raises(ResultsError, match="tiny: the document has no rows with"):
        markdown_table(run(), replace(TABLE, where={"robots": 3}))


def test_each_column_has_its_meaning() -> None:
    assert definitions(run(), ("useful_actions",)) == (
        "- *useful actions*: segments that robots began to execute in the window."
    )
