"""What a page lacks is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from test.tools.results.tiny import COMMAND, LANES, PAGE, STORY, folder_of_pages, run
from timely_llm.experiments.results.document import write_run
from tools.results.__main__ import FOLDER
from tools.results.check import PLACE, problem_of, problems
from tools.results.index import write_index
from tools.results.page import Command, Page
from tools.results.pages import LANES as ALL
from tools.results.write import write_page


def test_the_pages_of_this_tree_lack_nothing() -> None:
    assert list(problems(ALL, FOLDER)) == []


def found(folder: Path, page: Page = PAGE) -> list[str]:
    """Return the problems of one page."""
    return list(problems({"Robots": (page,)}, folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one complete page."""
    made = folder_of_pages(tmp_path)
    write_run(run(), tmp_path / "tiny.json")
    write_page(PAGE, tmp_path, made)
    write_index(LANES, made)
    return made


def change(path: Path, old: str, new: str) -> None:
    """Replace a part of a file that is there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_complete_page_has_no_problem(folder: Path) -> None:
    assert found(folder) == []


def test_a_page_that_was_never_written_lacks_its_parts(tmp_path: Path) -> None:
    sentences = "\n".join(found(folder_of_pages(tmp_path)))
    assert "tiny: it does not show its picture" in sentences
    assert "tiny.png is missing" in sentences
    assert "tiny: its tables were made by other commands" in sentences
    assert "results.md: it has no link (results/tiny.md): python" not in sentences  # in the story
    assert "results.md: tiny: the page has 0 of 1 tables of exceptions" in sentences


def test_a_page_without_its_markers_or_its_title_is_named(folder: Path) -> None:
    assert "tiny: its first line is not # Robots" in found(folder, replace(PAGE, title="Robots"))
    (folder / "tiny.md").write_text("# Two robots\n")
    assert found(folder)[0].startswith("tiny: the page needs the lines")


@pytest.mark.parametrize(("sentences", "count"), [("", 2), (8 * "Another one. ", 10)])
def test_three_to_seven_sentences_stand_before_the_picture(
    folder: Path, sentences: str, count: int
) -> None:
    change(folder / "tiny.md", "Another one. ", sentences)
    assert found(folder) == [f"tiny: {count} sentences stand before its picture, not 3 to 7"]


def test_sentences_to_be_written_are_not_forgotten(folder: Path) -> None:
    change(folder / "tiny.md", "Another one.", PLACE)
    (folder / "other.md").write_text(PLACE)
    change(folder.parent / "results.md", STORY, STORY + PLACE)
    assert found(folder) == [
        f"{name}: sentences are missing where {PLACE} stands"
        for name in ("tiny", "other", "results.md")
    ]


def test_tables_are_made_by_the_commands_of_the_definition(folder: Path) -> None:
    others = (replace(COMMAND, line=COMMAND.line.replace("15", "30")),)
    assert found(folder, replace(PAGE, commands=others)) == [
        "tiny: its tables were made by other commands than those of its definition"
    ]


def test_numbers_of_sentences_stand_on_the_page(folder: Path) -> None:
    change(folder / "tiny.md", "Another one.", "It has 1.3 or 1.33, not 7.77, of 3.")
    assert found(folder) == ["tiny: its sentences have 7.77, which stands nowhere below"]
    change(folder / "tiny.md", "7.77", "1.3")
    change(folder.parent / "results.md", STORY, STORY + "It has 1.38 and 1.333.")
    assert found(folder) == [
        f"results.md: its story has {number}, which stands on no page" for number in ("1.38",)
    ]


def test_the_story_has_five_pictures(folder: Path) -> None:
    change(folder.parent / "results.md", STORY, STORY[: len(STORY) // 5])
    assert found(folder) == ["results.md: its story does not have 5 pictures"]


def test_a_long_page_is_named(folder: Path) -> None:
    change(folder / "tiny.md", "by hand.\n", "by hand.\n" + 145 * "\n")
    assert " lines: at most 145" in found(folder)[0]


def test_what_a_page_shows_is_made_by_its_commands() -> None:
    other = replace(PAGE, commands=(replace(COMMAND, name="other"),))
    assert "tiny: no command of the page has the name tiny" in found(FOLDER, other)


def test_the_index_names_the_cells_of_the_pages(folder: Path) -> None:
    change(folder.parent / "results.md", "Of 2 cells", "Of 3 cells")
    assert found(folder) == [
        "results.md: its exceptions are not those of the pages: python -m tools.results write"
    ]


def test_cells_in_which_another_rule_is_better_stand_in_the_first_list(tmp_path: Path) -> None:
    (page,) = (one for pages in ALL.values() for one in pages if one.name == "pipeline_cells")
    text = page.file(FOLDER).read_text()
    (tmp_path / "pipeline_cells.md").write_text(text.replace(", 100 Mbit/s, un", ", 10 Mbit/s, un"))
    named = [one for one in found(tmp_path, page) if "its first list does not name" in one]
    assert len(named) == 7
    assert named[0] == (
        "pipeline_cells: its first list does not name blocking 100 unlimited 256/256/256:"
        " **1.003** budget"
    )


def test_commands_must_parse() -> None:
    assert problem_of(COMMAND) == ""
    assert problem_of(Command("a", "optimal --trace {published}/b.json")).startswith(
        "a: optimal has no option trace"
    )
    assert problem_of(Command("a", "mixed --trace {published}/b.json")) == ""
    assert "No such option" in problem_of(Command("a", "fleet --robot-count 3"))
    assert problem_of(Command("a", "no-such-experiment")).startswith("a: ")
