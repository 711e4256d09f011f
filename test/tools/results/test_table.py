"""Tables of a real run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from test.tools.results.tiny import PAGE, document, rows, run
from timely_llm.experiments.results.document import Paper, Row, RowValue
from tools.results.page import Comparison, PageTable, ResultsError
from tools.results.table import comparison_table, definitions, markdown_table

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


def test_a_papers_numbers_without_a_row_of_their_setting_stand_last() -> None:
    made = document(*(rows(one, [(1.0, 0.1)], robots=5) for one in ("fcfs", "edf", "timely")))
    paper = Paper(title="A paper", rows=(
        {"policy": "slow", "robots": 5, "utility": 287_000.0}, {"policy": "edf", "utility": 0.5},
        {"policy": "none", "robots": 6, "utility": 0.5}, {"policy": "none", "other": 1.0},
    ))  # fmt: skip
    made = made.model_copy(update={"papers": (paper,)})
    table = PageTable("tiny", ("utility",))
    assert markdown_table(made, table).splitlines()[2:] == [
        "| fcfs | 1.000 |",
        "| edf | 1.000 |",
        "| paper: edf | 0.5 |",
        "| timely | 1.000 |",
        "| paper: slow | 287,000 |",
    ]
    shown = markdown_table(made, replace(table, where={"policy": ("fcfs", "edf")}))
    assert "slow" not in shown
    assert "paper: edf" in shown


def test_what_a_document_lacks_is_named() -> None:
    with pytest.raises(ResultsError, match="tiny: the document has no column attainment"):
        markdown_table(run(), replace(TABLE, columns=("attainment",)))
    with pytest.raises(ResultsError, match="tiny: the document has no rows with"):
        markdown_table(run(), replace(TABLE, where={"robots": 3}))


def test_each_column_has_its_meaning() -> None:
    assert definitions(run(), ("useful_actions",)) == (
        "- *useful actions*: segments that robots began to execute in the window."
    )


COMPARISON = Comparison(
    ("first", "second"), "own", "utility", "robots", {"other": "the other", "third": "third"},
    "Own over the best",
)  # fmt: skip


def compared(own: float, other: float, third: float, **setting: RowValue) -> list[Row]:
    """Return a row of each policy, with one seed."""
    found = {"own": own, "other": other, "third": third, "unknown": 0.1}
    made = [rows(policy, [(utility, 0.0)], **setting) for policy, utility in found.items()]
    return [row for part in made for row in part]


def test_a_comparison_names_the_best_other_policy_where_it_is_better() -> None:
    first = document(
        compared(1.0, 2.0, 4.0, robots=5, late=0), compared(3.0, 2.0, 4.0, robots=5, late=1)
    )
    second = document(
        compared(1.0, 1.0, 4.0, robots=6, late=0), compared(4.5, 9.0, 4.0, robots=6, late=1)
    )
    runs = {
        name: one.model_copy(update={"keys": ("late", "robots", "policy")})
        for name, one in (("first", first), ("second", second))
    }
    assert comparison_table(runs, COMPARISON).splitlines() == [
        "**Own over the best**",
        "",
        "| late | 5 | 6 |",
        "|---|---|---|",
        "| 0 | 0.500 | 1.000 |",
        "| 1 | **1.500** the other | **1.125** third |",
        "",
        "A number is utility of `own` over that of the best other rule here. It is above 1 in 2"
        " of 4 cells, where the best one is named, at most 1.500. The smallest is 0.500.",
    ]


def test_a_comparison_by_a_key_names_the_best_value_in_each_cell() -> None:
    made = document(
        rows("own", [(3.0, 0.0)], late=0, robots=5),
        rows("own", [(3.0, 0.0)], late=0, robots=6),
        *(
            rows("other", [(utility, 0.0)], late=late, robots=robots)
            for late, robots, utility in ((0, 5, 8.0), (1, 5, 4.0), (0, 6, 2.0), (1, 6, 4.0))
        ),
    ).model_copy(update={"keys": ("late", "robots", "policy")})
    by_late = replace(COMPARISON, commands=("first",), others={"other": ""}, by="late")
    assert comparison_table({"first": made}, by_late).splitlines()[2:] == [
        "| 5 | 6 |",
        "|---|---|",
        "| 0.750 1 | **1.500** 0 |",
        "",
        "A number is utility of `own` over that of the best other rule here; the best late stands"
        " beside it. It is above 1 in 1 of 2 cells, at most 1.500. The smallest is 0.750.",
    ]


def test_a_comparison_needs_each_policy_in_each_cell() -> None:
    one = document(compared(1.0, 2.0, 4.0, robots=5))
    two = document(rows("own", [(1.0, 0.0)], robots=6))
    with pytest.raises(ResultsError, match="first, second: no pair"):
        comparison_table({"first": one, "second": two}, COMPARISON)
    with pytest.raises(ResultsError, match="first: a row has no completion_s or no robots"):
        comparison_table(
            {"first": one}, replace(COMPARISON, commands=("first",), measure="completion_s")
        )
