"""The command `timely-llm conformance`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.cli.command import error_line, run_command
from timely_llm.core import requirements

MODULE = """
from timely_llm.policies.fcfs import Stream
from timely_llm.core.step import StepPlan


class Good(Stream):
    pass


class Bad(Stream):
    def plan(self, now, generations, step_time, capacity):
        return StepPlan(tuple((g.key, g.to_compute) for g in generations))


class Nothing:
    pass


class Needs:
    def __init__(self, something):
        pass


number = 7


def no_engine(limits):
    return object()


def broken_engine(limits):
    raise RuntimeError("no such device")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "my_own_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_own_module", None)


def run(monkeypatch: pytest.MonkeyPatch, words: str) -> int | str | None:
    return run_command("conformance", monkeypatch, *words.split())


FEW = "--check whole-plans --check fits-the-engine"


def test_a_line_for_each_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, f"--policy my_own_module:Good {FEW}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == [
        "kept  whole-plans",
        "kept  fits-the-engine",
    ]
    assert lines[2:] == ["the policy my_own_module:Good: 2 kept; seed 0"]


def test_a_broken_promise_is_shown_with_its_case_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "found.json"
    assert run(monkeypatch, f"--policy my_own_module:Bad --seed 3 --json {file} {FEW}") == 1
    shown = capsys.readouterr().out
    assert "broken  fits-the-engine: A plan has no more rows, tokens and KV than" in shown
    assert "    what happened: tokens planned: 1, free_tokens: 0" in shown
    assert "the policy my_own_module:Bad: 1 kept, 1 broken; seed 3" in shown
    written = json.loads(file.read_text())
    assert (written["policy"], written["engine"], written["seed"]) == (
        "my_own_module:Bad",
        None,
        3,
    )
    kept, broken = written["checks"]
    assert (kept["name"], kept["ending"], kept["case"]) == ("whole-plans", "kept", [])
    assert broken["ending"] == "broken"
    assert all(f"      {line}" in shown for line in broken["case"])


def test_ours_can_be_checked_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--engine simulated --check removal --check too-many-steps") == 0
    assert "the engine simulated: 2 kept; seed 0" in capsys.readouterr().out


def test_the_list_has_both_contracts_or_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--list") == 0
    both = capsys.readouterr().out
    assert "  never-stuck: " in both and "  any-schedule: " in both
    assert run(monkeypatch, "--list --policy edf") == 0
    assert "  any-schedule: " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        ("", 2, "give one of --policy and --engine, such as --policy my_module:Mine"),
        ("--policy edf --engine simulated", 2, "give one of --policy and --engine"),
        ("--policy best", 2, "'best' is not one of"),
        ("--policy nowhere:Mine", 1, "the module nowhere is not found"),
        ("--policy my_own_module:Godd", 1, "has no Godd: is Good meant?"),
        ("--policy my_own_module:number", 1, "my_own_module:number is no policy: it is 7, not a"),
        ("--policy my_own_module:Nothing", 1, "is no policy: it has no plan and no whole_plans"),
        ("--policy my_own_module:Needs", 1, "my_own_module:Needs cannot be made: TypeError: "),
        ("--policy edf --check nope", 2, "unknown check 'nope': choose one of whole-plans"),
        ("--engine my_own_module:number", 1, "my_own_module:number is no engine: it is 7, not a"),
        ("--engine my_own_module:no_engine", 1, "is no engine: it has no in_flight and no"),
        ("--engine my_own_module:broken_engine", 1, "cannot be made: RuntimeError: no such device"),
        ("--policy edf --timeout 0", 2, "0.0 is not in the range"),
    ],
)
def test_a_mistake_is_answered_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    words: str, status: int, complaint: str,
) -> None:  # fmt: skip
    assert run(monkeypatch, words) == status
    errors = error_line(capsys)
    assert complaint in errors


def test_without_hypothesis_the_command_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(requirements.EXTRAS, "conformance", {"no-such-distribution": "1.0"})
    assert run(monkeypatch, "--policy edf") == 1
    errors = capsys.readouterr().err
    assert "the command conformance needs no-such-distribution" in errors
