"""What is written into a page, and what stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.tools.results.tiny import FOOT, HEAD, PAGE, folder_of_pages, run
from timely_llm.experiments.results.document import write_run
from tools.results.page import ResultsError
from tools.results.write import BEGIN, END, replaced, write_page

LINES = st.text(st.characters(exclude_characters="<", exclude_categories=["Cs"]), max_size=40)


def test_a_page_gets_picture_tables_and_command_and_keeps_what_is_by_hand(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    write_run(run(), tmp_path / "tiny.json")
    write_page(PAGE, tmp_path, folder)
    text = (folder / "tiny.md").read_text()
    assert text.startswith(HEAD.replace("![]", "![two charts]"))
    assert text.endswith(FOOT) and "\nold\n" not in text and (folder / "tiny.png").exists()
    assert "| robots | policy | utility | useful actions |" in text
    assert "timely-llm experiment fleet --robots 1,2" in text
    assert "--jobs" not in text and "tiny.json" not in text
    write_page(PAGE, tmp_path, folder)
    assert (folder / "tiny.md").read_text() == text


def test_a_missing_document_changes_nothing(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    before = (folder / "tiny.md").read_text()
    with pytest.raises(ResultsError, match=r"tiny\.json is missing: run python -m tools\.results"):
        write_page(PAGE, tmp_path, folder)
    assert (folder / "tiny.md").read_text() == before and not (folder / "tiny.png").exists()


def test_a_page_shows_its_picture_once(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    for line in ("", "![a](tiny.png)\n\n![b](tiny.png)\n"):
        (folder / "tiny.md").write_text(HEAD.replace("![](tiny.png)\n", line))
        with pytest.raises(ResultsError, match=r"needs the line !\[\]\(tiny\.png\), once"):
            write_page(PAGE, tmp_path, folder)


def test_a_page_without_a_text_says_how_to_begin_it(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="write its title, its first sentences, the line"):
        write_page(PAGE, tmp_path, tmp_path)


@examples(60)
@given(LINES, LINES, LINES)
def test_only_what_is_between_the_markers_changes(head: str, old: str, foot: str) -> None:
    begin, end = BEGIN.format("a"), END.format("a")
    text = replaced(f"{head}{begin}{old}{end}{foot}", "a", "new")
    assert text == f"{head}{begin}\n\nnew\n\n{end}{foot}"
    assert replaced(text, "a", "new") == text


@pytest.mark.parametrize("text", ["", "{b}", "{e}", "{e}{b}", "{b}{e}{b}{e}"])
def test_markers_stand_once_each_in_their_order(text: str) -> None:
    with pytest.raises(ResultsError, match="a: the page needs the lines"):
        replaced(text.format(b=BEGIN.format("a"), e=END.format("a")), "a", "new")
