from __future__ import annotations

import json
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from test.cli.command import error_line, run_command
from test.traces.lrtrace_files import arms, compact, drones, write
from timely_llm.resources import resource
from timely_llm.traces.files import read_trace


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


run = partial(run_command, "trace")


def test_a_workload_is_composed_converted_and_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines, bag = tmp_path / "day.jsonl", tmp_path / "bag"
    assert run(monkeypatch, "compose", lines, "--preset", "wid2", "--seed", "3") == 0
    assert f"Wrote {lines}: " in capsys.readouterr().out
    assert run(monkeypatch, "convert", lines, bag) == 0
    trace = read_trace(bag)
    assert trace == read_trace(lines)
    assert trace.name == "wid2"
    assert trace.source.startswith("timely-llm trace compose day.jsonl --preset wid2 --seed 3")
    capsys.readouterr()
    assert run(monkeypatch, "info", bag, "--json", tmp_path / "info.json") == 0
    shown = capsys.readouterr().out
    found = json.loads((tmp_path / "info.json").read_text())
    assert found["jobs"] == len(trace.jobs)
    rows = [line.split() for line in shown.splitlines()]
    assert ["jobs", str(len(trace.jobs))] in rows
    count = str(len(trace.agents))
    assert ["agents", count, f"({count}", "drone)"] in rows
    assert any(row[:2] == ["8", "drone"] for row in rows)
    assert ["2", "0.2", "0.5", str(sum(job.urgent for job in trace.jobs))] in rows


def test_options_change_a_preset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert run(
        monkeypatch, "compose", path, "--preset", "wid1", "--groups", "{(1, 2), 8}",
        "--events", "4", "--agents", "drone=3", "--duration", "10000",
    ) == 0  # fmt: skip
    trace = read_trace(path)
    assert [job.task for job in trace.jobs] == ["1", "2", "8", "1", "2", "8"]
    assert len(trace.agents) <= 3
    command = trace.source.replace("a.jsonl", str(tmp_path / "b.jsonl"))
    assert run(monkeypatch, *shlex.split(command)[2:]) == 0
    assert read_trace(tmp_path / "b.jsonl").jobs == trace.jobs


def test_without_a_preset_tasks_and_a_duration_are_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "a.mcap"
    assert run(monkeypatch, "compose", path, "--tasks", "1,9", "--duration", "60") == 0
    assert {job.skill_set for job in read_trace(path).jobs} == {"drone", "arm"}
    assert run(
        monkeypatch, "compose", path, "--talks-per-s", "1", "--people", "9", "--duration", "60"
    ) == 0  # fmt: skip
    capsys.readouterr()
    assert run(monkeypatch, "info", path) == 0
    assert "output_tokens" in capsys.readouterr().out


def test_tasks_and_robots_may_be_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "crane.yaml").write_text(
        "name: crane\nprompt: You control a crane.\n"
        "skills: {lift: {description: lift, duration: {polynomial: [2.5]}}}\n"
    )
    (tmp_path / "tasks.yaml").write_text(
        "tasks: {up: {title: up, skill_set: crane, text: Up!, plan: lift();, urgent: true}}\n"
    )
    path = tmp_path / "a.jsonl"
    words = f"compose {path} --task-set {tmp_path / 'tasks.yaml'} --tasks up --events 5".split()
    assert run(monkeypatch, *words) == 1
    assert run(monkeypatch, *words, "--skill-set", tmp_path / "crane.yaml") == 0
    job = read_trace(path).jobs[0]
    assert (job.agent, job.skill_times[0].seconds, job.urgent) == ("crane_0", 2.5, True)


def test_published_traces_are_imported_by_their_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "azure.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,10,20\n"
    )
    (tmp_path / "lr.json").write_text(
        '{"tasks": [{"trace_id": 0, "task_input": "Go.", "tuf": [1, 1, 1.5]}], "jobs": [{"job_id":'
        ' 0, "trigger_time": 1, "agent_id": 0, "trace_id": 0, "exe_time_detail": [["s(", 1]]}]}'
    )
    for name, words in (("azure.csv", "1 conversations"), ("lr.json", "1 jobs")):
        assert run(monkeypatch, "import", tmp_path / name, tmp_path / "a.jsonl") == 0
        assert words in capsys.readouterr().out
    (tmp_path / "lr.json").rename(tmp_path / "lr.txt")
    assert run(monkeypatch, "import", tmp_path / "lr.txt", tmp_path / "a.jsonl") == 2
    assert "say --kind lrtrace or azure" in capsys.readouterr().err
    arguments = (tmp_path / "lr.txt", tmp_path / "a.jsonl", "--kind", "lrtrace")
    assert run(monkeypatch, "import", *arguments) == 0


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        ("compose a.txt --preset wid1", 1, "a.txt: the name of a trace ends with .jsonl"),
        ("compose a.jsonl --preset wid9", 2, "'wid9' is not one of wid1, wid2, wid3, chatbot"),
        ("compose a.jsonl", 2, "there are no requests: give tasks, groups or talks_per_s"),
        ("compose a.jsonl --tasks 1", 2, "duration_s is needed"),
        ("compose a.jsonl --tasks 1 --duration -1", 2, "duration-s: must be above 0, not -1"),
        ("compose a.jsonl --tasks 1 --duration nan", 2, "duration-s: must be"),
        ("compose a.jsonl --preset wid1 --agents many", 2, "'many' is not like 24 or drone=24"),
        ("compose a.jsonl --preset wid1 --agents cat=2", 2, "kinds are arm, drone"),
        ("compose a.jsonl --preset wid1 --agents 0", 2, "agents.drone: must be at least 1"),
        ("compose a.jsonl --tasks 1-99 --duration 9", 1, "there is no task 12: choose of 1, 2"),
        ("compose a.jsonl --groups {(1,2", 1, "',' or ')' was expected at character 6"),
        (
            "compose a.jsonl --preset wid1 --urgent-share 2",
            2,
            "urgent-share: must be at most 1, not 2",
        ),
        ("compose no/a.jsonl --preset wid1", 1, "cannot write no/a.jsonl: no is not a folder"),
        ("info a.jsonl", 2, "Path 'a.jsonl' does not exist"),
        ("info empty", 1, "has 0 .mcap files"),
        ("convert bad.mcap b.jsonl", 1, "bad.mcap: it does not begin like an MCAP file"),
        ("import bad.mcap b.jsonl --kind azure", 1, "lacks the column TIMESTAMP"),
        ("info bad.mcap --json no/x.json", 2, "no is not a folder"),
    ],
)
def test_a_mistake_is_answered_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    words: str, status: int, complaint: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("bad.mcap").write_text("not a bag")
    Path("empty").mkdir()
    assert run(monkeypatch, *words.split()) == status
    errors = error_line(capsys)
    assert complaint in errors
    assert not Path("a.jsonl").exists()


@pytest.mark.parametrize(
    ("entries", "words", "robots"),
    [
        (drones(12), "", {"drone": 5}),
        (arms(12), "", {"arm": 12}),
        (compact(arms(12)), "", {"arm": 12}),
        (drones(12), "--skill-set drone", {"drone": 5}),
        (arms(12), "--skill-set arm.yaml --skill-set drone", {"arm": 12}),
    ],
)
def test_lrtrace_is_imported_with_the_robots_that_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    entries: Any, words: str, robots: dict[str, int],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    shutil.copy(resource("config/skill_sets/arm.yaml"), tmp_path)
    write(tmp_path, entries)
    assert run(monkeypatch, "import", "lr.json", "lr.jsonl", *words.split()) == 0
    assert "12 jobs" in capsys.readouterr().out
    assert run(monkeypatch, "info", "lr.jsonl", "--json", "info.json") == 0
    assert json.loads(Path("info.json").read_text())["robots"] == robots


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        ("import lr.json a.jsonl --skill-set drone", 1, "it executes move_to, take, drop, and the"),
        ("import lr.json a.jsonl --skill-set crane", 2, "neither a file nor one of arm, drone"),
        ("import lr.csv a.jsonl --skill-set arm", 2, "--skill-set is for robots: an Azure trace"),
        ("info lr.json", 1, "a published one is imported first, by `timely-llm trace import`"),
    ],
)
def test_a_mistake_with_lrtrace_is_answered_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    words: str, status: int, complaint: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write(tmp_path, arms())
    Path("lr.csv").write_text("")
    assert run(monkeypatch, *words.split()) == status
    errors = error_line(capsys)
    assert complaint in errors
    assert not Path("a.jsonl").exists()
