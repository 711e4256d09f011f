from __future__ import annotations

import importlib.util
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from test.cli.command import error_line, run_command
from timely_llm import __version__
from timely_llm.policies.registry import POLICIES

run = partial(run_command, "")


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line of the node that would have taken this process's place."""
    words: list[str] = []
    monkeypatch.setattr(os, "execv", lambda _, command: words.extend(command))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    return words


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("demo --robots 0", "'--robots': 0 is not in the range 1<=x<=512"),
        ("demo --robots many", "'--robots': 'many' is not a valid integer range"),
        ("demo --duration -1", "'--duration': -1.0 is not in the range 0.1<=x<=86400"),
        ("demo --policy best", f"'best' is not one of {', '.join(map(repr, POLICIES))}"),
        ("chat --temperature hot", "'--temperature': 'hot' is not a valid float range"),
        ("demo --pace warp", "unknown profile 'warp': choose one of rtx4090-llama3-8b,"),
        ("demo --engine steam", "'steam' is not one of 'simulated', 'transformers'"),
        ("demo --fast", "No such option"),
        ("serve --skill-set /no/such.yaml", "File '/no/such.yaml' does not exist"),
        ("fly", "unknown command 'fly': choose one of demo, serve, dispatch"),
    ],
)
def test_a_mistake_is_answered_in_one_line_that_says_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    complaint: str,
) -> None:
    assert run(monkeypatch, *words.split()) == 2
    errors = error_line(capsys)
    assert complaint in errors
    assert errors.startswith("timely-llm: ")


@pytest.mark.parametrize("command", ["demo", "serve", "fleet", "chat"])
def test_a_missing_ros_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert run(monkeypatch, command) == 1
    errors = error_line(capsys)
    assert "rclpy cannot be imported" in errors


def test_a_folder_that_is_a_file_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    (tmp_path / "file").touch()
    assert run(monkeypatch, "demo", "--json", str(tmp_path / "no" / "x.json")) == 2
    assert f"{tmp_path / 'no'} is not a folder" in capsys.readouterr().err
    assert run(monkeypatch, "demo", "--output", str(tmp_path / "file" / "demo")) == 1
    assert "cannot write to the folder" in capsys.readouterr().err


def test_serve_becomes_the_plan_server(
    monkeypatch: pytest.MonkeyPatch, executed: list[str], tmp_path: Path
) -> None:
    skill_set = tmp_path / "crane.yaml"
    skill_set.touch()
    run(
        monkeypatch, "serve", "--policy", "fcfs", "--model", "1e3", "--skill-set", str(skill_set),
        "--", "-r", "__ns:=/lab",
    )  # fmt: skip
    assert executed == [
        sys.executable, "-m", "timely_llm.entry", "plan_server", "--ros-args", "-p", 'model:="1e3"',
        "-p", 'policy:="fcfs"', "-p", f'skill_sets:=["{skill_set}"]', "-r", "__ns:=/lab",
    ]  # fmt: skip


def test_fleet_becomes_the_robots(monkeypatch: pytest.MonkeyPatch, executed: list[str]) -> None:
    run(monkeypatch, "fleet", "--robots", "3", "--duration", "10")
    assert executed == [
        sys.executable, "-m", "timely_llm.entry", "robot_fleet", "--ros-args", "-p", "robots:=3",
        "-p", "duration_s:=10.0", "-p", "seed:=0", "-p", 'server:="plan_server"',
    ]  # fmt: skip
