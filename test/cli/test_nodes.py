"""`timely-llm serve`, `fleet` and `talkers` become nodes with the right arguments."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from timely_llm.cli import nodes


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of the node's command line, after the module."""
    words: list[str] = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(os, "execv", lambda _, line: words.extend(line[4:]))
    monkeypatch.setenv("ROS_DOMAIN_ID", "7")
    return words


def test_what_is_not_given_has_the_nodes_default(command: list[str]) -> None:
    assert CliRunner().invoke(nodes.serve, []).exit_code == 0
    assert command == ["--ros-args"]


def test_options_become_parameters(command: list[str]) -> None:
    CliRunner().invoke(nodes.serve, ["--constrained", "--policy", "edf", "--", "-r", "__ns:=/lab"])
    assert command == [
        "--ros-args", "-p", 'policy:="edf"', "-p", "constrained:=true", "-r", "__ns:=/lab",
    ]  # fmt: skip


def test_plans_written_by_hand_are_taken_when_the_user_says_so(command: list[str]) -> None:
    CliRunner().invoke(nodes.serve, ["--accept-plans"])
    assert command == ["--ros-args", "-p", "accept_plans:=true"]


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


@pytest.mark.parametrize("name", ["lab", "/lab", "/lab/"])
@pytest.mark.parametrize("node", [nodes.serve, nodes.fleet, nodes.talkers])
def test_nodes_go_into_a_namespace_and_a_domain(
    command: list[str], node: click.Command, name: str
) -> None:
    assert CliRunner().invoke(node, ["--namespace", name, "--domain", "9"]).exit_code == 0
    assert command[-2:] == ["-r", "__ns:=/lab"]
    assert os.environ["ROS_DOMAIN_ID"] == "9"


def test_options_stand_above_a_file_of_parameters_and_defaults_below(
    command: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "fleet.yaml"
    file.touch()
    CliRunner().invoke(nodes.fleet, ["--robots", "3", "--params-file", str(file)])
    assert command == ["--ros-args", "--params-file", str(file), "-p", "robots:=3"]


def test_a_file_of_parameters_that_does_not_exist_is_refused(command: list[str]) -> None:
    done = CliRunner().invoke(nodes.serve, ["--params-file", "/no.yaml"])
    assert done.exit_code == 2
    assert "File '/no.yaml' does not exist" in done.output
    assert not command


@pytest.mark.parametrize("number", ["-1", "233", "9999", "lab"])
def test_a_domain_that_ros_does_not_have_is_refused(command: list[str], number: str) -> None:
    assert CliRunner().invoke(nodes.serve, ["--domain", number]).exit_code == 2
