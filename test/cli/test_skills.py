from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from test.cli.command import run_command
from timely_llm.cli.skills import new_skill_set
from timely_llm.resources import resource
from timely_llm.skills.checkers import cut
from timely_llm.skills.skill_set import parse_skill_set
from timely_llm.skills.stop_checker import Call, If, Piece, Repeat, Return

AMR, AGV = (resource(f"examples/{name}.yaml") for name in ("amr", "agv"))
DRONE, ARM = (resource(f"config/skill_sets/{name}.yaml") for name in ("drone", "arm"))


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


run = partial(run_command, "skills")


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


def test_tool_output_of_an_example_is_not_part_of_its_plan(
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
        ("wings: 2\n", "", "drone.yaml: line 61: unknown field 'wings': allowed are name, "),
        (
            "  - {task: x, plan: fly()}\n",
            "",
            "drone.yaml: line 61: example 3: x: character 4 of the plan",
        ),
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


def test_a_new_skill_set_passes_the_check_as_it_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "new", "my_robot") == 0
    assert capsys.readouterr().out.startswith("Wrote my_robot.yaml: ")
    assert run(monkeypatch, "check", "my_robot.yaml") == 0
    shown = capsys.readouterr()
    assert "my_robot (minispec): 4 skills, 3 examples" in shown.out
    assert "goto(place): drive to a place, true if it was reached, place one of 'dock'" in shown.out
    assert shown.err == ""
    written = Path("my_robot.yaml").read_text()
    assert "timely-llm serve --engine simulated --skill-set my_robot.yaml" in written
    assert "FILE" not in written and "NAME" not in written


def test_a_new_skill_set_shows_a_condition_a_loop_and_a_blocking_value(tmp_path: Path) -> None:
    skill_set = parse_skill_set(new_skill_set("cart", tmp_path / "cart.yaml"))
    ops = [
        op
        for example in skill_set.examples
        for piece in cut(skill_set, example.plan)
        if isinstance(piece, Piece)
        for op in piece.ops
    ]
    assert {If, Repeat, Return} <= {type(op) for op in ops}
    assert any(isinstance(op, Call) and op.call.blocking for op in ops)
    used = {op.call.name for op in ops if isinstance(op, Call)} | {"goto"}
    assert used == skill_set.skills.keys()


def test_a_new_skill_set_replaces_no_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("precious")
    assert run(monkeypatch, "new", "mine", "--output", str(file)) == 1
    assert "mine.yaml exists and is not replaced: name another file by --output" in (
        capsys.readouterr().err
    )
    assert file.read_text() == "precious"
    assert run(monkeypatch, "new", "mine", "--output", str(tmp_path / "none" / "a.yaml")) == 1
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["my-robot", "1st", "a.yaml", "True", "", "x" * 65])
def test_a_new_skill_set_needs_a_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "new", name) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("timely-llm: name ") and len(shown.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["no", "null", "y", "e3", "NAME", "FILE", "x_1"])
def test_a_new_skill_set_has_its_name_whatever_yaml_takes_it_for(name: str) -> None:
    assert parse_skill_set(new_skill_set(name, Path("a.yaml"))).name == name


@pytest.mark.parametrize("file", ["a b.yaml", "a\nb: c.yaml", "#.yaml", "é.yaml", "x" * 300])
def test_a_new_skill_set_is_valid_whatever_its_file_is_called(file: str) -> None:
    assert parse_skill_set(new_skill_set("cart", Path(file))).name == "cart"


def test_rules_from_which_no_calls_come_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "agv.yaml"
    text = AGV.read_text()
    file.write_text(text.replace("(?P<skill>", "("))
    assert run(monkeypatch, "check", str(file)) == 1
    shown = capsys.readouterr()
    assert "agv.yaml: no rule has the group skill, so no plan calls GOTO, LIFT, WAIT, SCAN" in (
        shown.err
    )
    assert shown.out == "" and len(shown.err.splitlines()) == 1


def test_a_blocking_skill_that_would_not_block_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "agv.yaml"
    text = AGV.read_text().partition('  - task: "Task: [A] Scan the load')[0]
    file.write_text(text.replace("(?P<skill>SCAN)", "SCAN"))
    assert run(monkeypatch, "check", str(file)) == 0
    assert capsys.readouterr().err == (
        "Warning: SCAN is never called, so it never blocks: no rule's group skill matches its"
        " name\n"
    )


@pytest.mark.parametrize("file", [AMR, AGV])
def test_the_examples_of_the_package_are_valid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    assert run(monkeypatch, "check", str(file)) == 0
    assert capsys.readouterr().err == ""


def test_an_example_without_quotes_says_where_to_put_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "amr.yaml"
    file.write_text(AMR.read_text().replace("?goto('A1'){lift", "?goto(A1){lift"))
    assert run(monkeypatch, "check", str(file)) == 1
    assert (
        "amr.yaml: line 33: example 1: Task: [A] Fetch the load of shelf A1.: character 9 of the"
        " plan: goto: shelf must be a text in quotes: quote it, 'A1'" in capsys.readouterr().err
    )
