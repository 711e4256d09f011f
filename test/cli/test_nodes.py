"""`timely-llm serve`, `fleet` and `talkers` become nodes with the right arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from timely_llm.cli import nodes


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of the node's command line, after the module."""
    words: list[str] = []
    monkeypatch.setattr(nodes, "become", lambda line: words.extend(line[3:]))
    return words


def test_what_is_not_given_has_the_nodes_default(command: list[str]) -> None:
    assert CliRunner().invoke(nodes.serve, []).exit_code == 0
    assert command == ["--ros-args"]


def test_options_become_parameters(command: list[str]) -> None:
    CliRunner().invoke(nodes.serve, ["--constrained", "--policy", "edf", "--", "-r", "__ns:=/lab"])
    assert command == [
        "--ros-args", "-p", 'policy:="edf"', "-p", "constrained:=true", "-r", "__ns:=/lab",
    ]  # fmt: skip


def test_robots_may_fail(command: list[str]) -> None:
    CliRunner().invoke(nodes.fleet, ["--failure-share", "0.2"])
    assert "failure_share:=0.2" in command


def test_people_may_have_questions_of_their_own(command: list[str], tmp_path: Path) -> None:
    questions = tmp_path / "questions.yaml"
    questions.touch()
    CliRunner().invoke(
        nodes.talkers, ["--people", "2", "--duration", "5", "--questions", str(questions)]
    )
    assert command == [
        "--ros-args", "-p", "people:=2", "-p", "duration_s:=5.0", "-p", "seed:=0",
        "-p", f'questions:="{questions}"', "-p", 'server:="plan_server"',
    ]  # fmt: skip
