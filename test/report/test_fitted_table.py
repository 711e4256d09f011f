"""No table is wider than its terminal, and none loses anything."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import box
from rich.console import Console
from rich.text import Text

from timely_llm.report.fitted_table import FittedTable

LETTERS = st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_categories=["C", "Z", "M"])
CELLS = st.text(LETTERS | st.sampled_from("    \n"), max_size=40)
BOXES = st.sampled_from([box.SIMPLE, box.SIMPLE_HEAD, box.MARKDOWN, box.HEAVY_HEAD, None])


def printed(table: FittedTable, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@st.composite
def tables(draw: st.DrawFn) -> tuple[FittedTable, list[list[str]]]:
    columns = draw(st.integers(1, 9))
    padding = draw(st.sampled_from([(0, 1), (0, 1, 0, 0), (0, 0), (0, 2)]))
    table = FittedTable(
        box=draw(BOXES), padding=padding, pad_edge=draw(st.booleans()),
        show_header=draw(st.booleans()),
    )  # fmt: skip
    for number in range(columns):
        table.add_column(
            f"head {number}", no_wrap=draw(st.booleans()),
            justify=draw(st.sampled_from(["left", "right"])),
            overflow=draw(st.sampled_from(["fold", "ellipsis"])),
        )  # fmt: skip
    rows = draw(st.lists(st.lists(CELLS, min_size=columns, max_size=columns), max_size=4))
    for row in rows:
        table.add_row(*map(Text, row))
    return table, rows


@given(tables(), st.integers(12, 120))
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(
    made: tuple[FittedTable, list[list[str]]], width: int
) -> None:
    table, rows = made
    text = printed(table, width)
    console = Console(width=width)
    assert all(console.measure(Text(line)).maximum <= width for line in text.splitlines())
    shown = "".join(text.split())
    wanted = "".join("".join(cell.split()) for row in rows for cell in row)
    assert Counter(wanted) <= Counter(shown), text


def test_an_empty_column_takes_no_character_of_another() -> None:
    table = FittedTable(box=None, padding=(0, 0), show_header=False)
    for _ in range(3):
        table.add_column(overflow="ellipsis")
    table.add_row("ninewords", "", "two")
    assert printed(table, len("ninewordstwo")).split() == ["ninewords", "two"]


def wide() -> FittedTable:
    table = FittedTable("policy", "what it does", "share", box=box.SIMPLE, carries=True)
    table.add_column("response\np95 (s)", no_wrap=True)
    table.name_column("response p95 (s)")
    table.add_row("timely+slice", "plans by Eq. 4, and streams in what they leave", "0.97", "1.20")
    table.add_row("", "the same again", "", "0.50")
    return table


def test_a_table_that_fits_is_one() -> None:
    assert printed(wide(), 80).splitlines()[2].split() == [
        "policy", "what", "it", "does", "share", "p95", "(s)"
    ]  # fmt: skip


def test_one_that_does_not_is_rows_of_names_and_values() -> None:
    assert printed(wide(), 36).splitlines() == [
        "policy: timely+slice",
        "what it does:",
        "  plans by Eq. 4, and streams in",
        "  what they leave",
        "share: 0.97",
        "response p95 (s): 1.20",
        "",
        "policy: timely+slice",
        "what it does: the same again",
        "response p95 (s): 0.50",
        "",
    ]


@pytest.mark.parametrize("width", [40, 80])
def test_a_table_without_heads_and_rows_without_columns_do_no_harm(width: int) -> None:
    table = FittedTable(show_header=False, title="what was found", caption="in a long " * 9)
    table.add_row("name", "value " * 40)
    assert max(map(len, printed(table, width).splitlines())) <= width
    assert printed(FittedTable(), width).strip() == ""
