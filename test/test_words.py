"""The language rule of CONTRIBUTING.md, as far as a list of words can keep it: tools/words.yaml.

`python -m tools.words [PATH...]` prints each forbidden word with its line and what to say instead.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import words


def test_no_file_has_words_that_a_stranger_stumbles_over() -> None:
    here = Path(__file__)  # the samples below
    found = words.findings(path for path in words.files([words.ROOT]) if path != here)
    assert not (lines := [str(finding) for finding in found]), "\n".join(lines)


@pytest.mark.parametrize("text", [
    "as in paper 001, Figure 6", "Paper 000 says nothing", "see Part 7", "of issue 15",
    "whose KV is given up", "Nobody needs the room.", "it is told so",
    "blocks of so\n  many tokens",
    "of these, tokens of a prefix", "outside words", "rows are dear", "struck it out",
    "an engine's books", "What a server said of itself.", "the engine has said so",
    "It is said in a sentence.", "what was said on its topics",
])  # fmt: skip
def test_words_that_a_stranger_stumbles_over_are_found(text: str) -> None:
    assert any(list(rule.find(text)) for rule in words.rules())


@pytest.mark.parametrize("text", [
    "people who ask for stories", "those who release", "three-part names", "as far as it is known",
    "the table of contents", "Each part has an owner.", "the robot reports", "a dearth of rows",
])  # fmt: skip
def test_words_about_people_and_plain_words_are_not_found(text: str) -> None:
    assert not [found for rule in words.rules() for found in rule.find(text)]


def test_every_rule_says_what_to_write_instead() -> None:
    assert len(words.rules()) > 8
    assert all(rule.say for rule in words.rules())


def places(path: Path, text: str) -> list[tuple[int, str]]:
    path.write_text(text)
    return [(finding.line, finding.words) for finding in words.findings([path])]


def test_python_is_read_in_comments_docstrings_texts_and_names_of_tests(tmp_path: Path) -> None:
    text = '''"""Nobody here
waits."""
whose = nobody(1)  # so
# many tokens
say(f"the robot {whose} is told {1}"
    " so long")
say("told")


def test_nobody_waits(): ...
'''
    assert places(tmp_path / "a.py", text) == [
        (1, "Nobody"), (3, "so many"), (5, "told"), (6, "so long"), (10, "nobody"),
    ]  # fmt: skip


def test_documents_are_read_but_for_code(tmp_path: Path) -> None:
    text = "# Whose\n\n`whose` and [a page](nobody.md), told\n\n```\nnobody\n```\nso\nmuch\n"
    assert places(tmp_path / "a.md", text) == [(1, "Whose"), (3, "told"), (8, "so much")]


def test_other_files_are_read_in_comments(tmp_path: Path) -> None:
    assert places(tmp_path / "A.msg", "string who  # who asked\n") == [(1, "who")]
    text = "# Nobody\n- text: Who is there?\n  description: for nobody\n"
    assert places(tmp_path / "a.yaml", text) == [(1, "Nobody"), (3, "nobody")]
    assert places(tmp_path / "a.cpp", "int who; // whose\nint nobody;\n/* so\n many */\n") == [
        (1, "whose"), (3, "so many"),
    ]  # fmt: skip
    assert places(tmp_path / "page.j2", "<p class='who'>{{ who }} {% if who %}nobody</p>") == [
        (1, "nobody")
    ]


def test_the_command_prints_places_and_what_to_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.md").write_text("Fine.\nNobody.\n")
    assert words.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith(f"{tmp_path}/a.md:2: 'Nobody': say the noun")
    (tmp_path / "a.md").write_text("Fine.\n")
    assert words.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
