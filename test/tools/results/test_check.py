"""What a page lacks is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from test.tools.results.tiny import COMMAND, PAGE, folder_of_pages, run
from timely_llm.experiments.results.document import write_run
from tools.results.__main__ import FOLDER
from tools.results.check import problem_of, problems
from tools.results.page import Command
from tools.results.pages import PAGES
from tools.results.write import write_page


def test_the_pages_of_this_tree_lack_nothing() -> None:
    assert list(problems(PAGES, FOLDER)) == []


def test_each_thing_that_a_page_lacks_is_a_sentence(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    assert [sentence.split(" is missing")[0] for sentence in problems([PAGE], folder)] == [
        f"tiny: {folder / 'tiny.png'}"
    ]
    write_run(run(), tmp_path / "tiny.json")
    write_page(PAGE, tmp_path, folder)
    assert list(problems([PAGE], folder)) == []
    (tmp_path / "docs/results.md").write_text("no link\n")
    (folder / "tiny.md").write_text("# Three robots\n")
    found = list(problems([PAGE], folder))
    assert found[0].startswith("tiny: the page needs the lines")
    assert found[1] == "tiny: results.md has no link (results/tiny.md)"
    other = replace(PAGE, title="Robots", commands=(replace(COMMAND, name="other"),))
    assert "tiny: no command of the page has the name tiny" in list(problems([other], folder))


def test_the_first_line_of_a_page_is_its_title(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    found = list(problems([replace(PAGE, title="Robots")], folder))
    assert found[0] == "tiny: its first line is not # Robots"


def test_commands_must_parse() -> None:
    assert problem_of(COMMAND) == ""
    assert problem_of(Command("a", "fleet", ("--trace", "{published}/b.json"))).startswith(
        "a: fleet has no option trace"
    )
    assert problem_of(Command("a", "mixed", ("--trace", "{published}/b.json"))) == ""
    assert "No such option" in problem_of(Command("a", "fleet", ("--robot-count", "3")))
    assert problem_of(Command("a", "no-such-experiment")).startswith("a: ")
