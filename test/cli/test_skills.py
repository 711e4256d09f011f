from __future__ import annotations

import sys
from pathlib import Path

import pytest

from timely_llm.cli import main
from timely_llm.resources import resource

DRONE, ARM = (resource(f"config/skill_sets/{name}.yaml") for name in ("drone", "arm"))


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    """Run `timely-llm skills` and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["timely-llm", "skills", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_a_skill_set_is_shown_with_its_prompt_and_how_its_examples_are_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "check", str(DRONE), "--plan", "4{mf(100);tc(90);}") == 0
    shown = capsys.readouterr().out
    assert "drone (minispec): 14 skills, 2 examples" in shown
    assert "mf(distance): move forward, distance 10 to 500 cm" in shown
    assert "tokens of tiny_planner" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["0", "?s('cat'){", "s('cat')", "1.53"] in rows
    assert ["0", "4{mf(100);", "mf(100)", "2.53"] in rows
    assert ["2", "}", "14.4"] in rows
    assert "start:" not in shown


def test_outside_words_of_an_example_are_not_part_of_its_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "check", str(ARM), "--task", "Clean [up] now.") == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines()]
    assert ["0", "look();", "look()", "0.5", "yes"] in rows
    assert any("=> pen, blue ball⏎" in line and "what it returned" in line
               for line in shown.splitlines())  # fmt: skip
    assert "Clean [up] now." in shown


def test_the_grammar_is_shown_for_people_and_if_asked_for_as_engines_read_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "check", str(DRONE)) == 0
    shown = capsys.readouterr().out
    assert "call      = mf(distance: integer, 10 to 500 cm)" in shown
    assert "start: body" not in shown
    assert run(monkeypatch, "check", str(DRONE), "--lark") == 0
    assert "start: body" in capsys.readouterr().out


def test_rules_of_another_language_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "chat.yaml").write_text(
        "name: chat\nprompt: Say OK.\nlanguage: regex\nrules: ['OK[.!]']\n"
        "examples: [{task: '', plan: OK.}]"
    )
    assert run(monkeypatch, "check", str(tmp_path / "chat.yaml"), "--plan", "OK. OK!") == 0
    shown = capsys.readouterr().out
    assert "1  OK[.!]" in shown
    assert ["1", "OK!", "0"] in [line.split() for line in shown.splitlines()]


@pytest.mark.parametrize(
    ("more", "plan", "complaint"),
    [
        ("", "mf(5);", "drone.yaml: plan 1: character 5 of the plan: mf: distance must be 10 to"),
        ("wings: 2\n", "", "drone.yaml: at wings: Extra inputs are not permitted"),
        ("  - {task: x, plan: fly()}\n", "", "drone.yaml: example 3: x: character 4 of the plan"),
    ],
)
def test_what_is_not_valid_gets_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    more: str, plan: str, complaint: str,
) -> None:  # fmt: skip
    (tmp_path / "drone.yaml").write_text(DRONE.read_text() + more)
    words = ["--plan", plan] if plan else []
    assert run(monkeypatch, "check", str(tmp_path / "drone.yaml"), *words) == 1
    shown = capsys.readouterr()
    assert complaint in shown.err
    assert shown.err.startswith("timely-llm: ")
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""


def test_the_shipped_ones_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "list") == 0
    shown = capsys.readouterr().out
    assert "small indoor quadcopter" in shown
    assert "table-top robot arm" in shown
