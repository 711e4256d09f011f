"""`timely-llm trace explain`: event logs and runs with reasons."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from test.cli.trace.test_compose import run
from test.experiments.bursts import bursts_file
from timely_llm.cli.experiment import experiment
from timely_llm.experiments.results.document import read_run

LIFE = {"event": "opened", "t": 0.0}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def log_file(folder: Path) -> Path:
    """Write the event log of two lives of a server."""
    file = folder / "server.jsonl"
    events = [
        LIFE,
        {"event": "plan", "t": 0.5, "why": {"old": ["runs"]}},
        LIFE,
        {"event": "plan", "t": 1.0, "why": {"a": ["memory", 40], "b": ["runs"]}},
        {"event": "plan", "t": 1.25, "why": {"a": ["memory", 12], "b": ["runs"]}},
        {"event": "plan", "t": 1.5, "why": {"a": ["priority", 0.8], "b": ["runs"]}},
        {"event": "end", "t": 2.0, "id": "a", "code": "none", "message": ""},
    ]
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    return file


def test_decisions_about_a_request_are_shown_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "explain", log_file(tmp_path), "a") == 0
    lines = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["0.000", "0.500", "2", "waits: memory, 12 to 40 tokens of KV missing"],
        ["0.500", "0.500", "1", "joined: highest priority, 0.8"],
    ]


def test_all_requests_are_shown_with_what_they_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    numbers = tmp_path / "why.json"
    assert run(monkeypatch, "explain", log_file(tmp_path), "--json", numbers) == 0
    shown = capsys.readouterr().out
    assert "waits: memory (0.500)" in shown
    assert "old" not in shown
    written = json.loads(numbers.read_text())
    assert written["a"][0] == {
        "outcome": "waits", "cause": "memory", "start_s": 1.0, "end_s": 1.5, "plans": 2,
        "least": 12.0, "most": 40.0, "text": "waits: memory, 12 to 40 tokens of KV missing",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words", "complaint"),
    [
        ('{"event": "opened", "t": 0}\n', (), "has no reasons: write it with --explain"),
        ("hello\nthere\n", (), "line 1 must be a JSON object"),
        ('{"event": "plan", "t": 1, "why": 3}\n', (), "the plan at 1 s: "),
        (
            '{"event": "plan", "t": 1, "why": {"a": ["runs"]}}\n',
            ("b",),
            "about 'b', only about 'a'",
        ),
        ('{"event": "plan", "t": 1, "why": {}}\n', ("--timeline", "x"), "--timeline is for runs"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    words: tuple[str, ...],
    complaint: str,
) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(text)
    assert run(monkeypatch, "explain", file, *words) not in (0, None)
    said = capsys.readouterr().err
    assert complaint in said
    assert said.startswith("timely-llm: ") and said.count("\n") == 1


def test_an_experiment_explains_its_timelines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    explained, silent, page = tmp_path / "why.json", tmp_path / "run.json", tmp_path / "why.html"
    words = ["timelyllm-drone", "--trace", str(bursts_file(tmp_path)), "--load", "2",
             "--policies", "timely,deadline", "--seeds", "1", "--jobs", "1"]  # fmt: skip
    experiment.main([*words, "--json", str(silent)], standalone_mode=False)
    experiment.main(
        [*words, "--explain", "--json", str(explained), "--html", str(page)], standalone_mode=False
    )
    with_reasons, without = json.loads(explained.read_text()), json.loads(silent.read_text())
    assert with_reasons["rows"] == without["rows"]
    for one, other in zip(with_reasons["timelines"], without["timelines"], strict=True):
        assert one.pop("decisions")
        assert one == other
    assert "Why requests waited" in page.read_text()
    name = read_run(explained).timelines[1].requests[0]
    capsys.readouterr()
    assert run(monkeypatch, "explain", explained, "--timeline", "deadline", name) == 0
    assert f"Decisions about '{name}'" in capsys.readouterr().out
    for given, complaint in (
        ([explained], "give the name of one timeline, or its beginning: 'timely,"),
        ([explained, "--timeline", "x"], "give the name of one timeline"),
        ([silent], "has no reasons: run the experiment with --explain"),
        ([explained, "--timeline", "timely", "x"], "about 'x', only about "),
    ):
        assert run(monkeypatch, "explain", *given) not in (0, None)
        assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("slice-rate --explain", "slice-rate has no option explain"),
        (
            "timelyllm-drone --engine transformers --explain",
            "explain is for virtual time: no engine",
        ),
    ],
)
def test_experiments_without_timelines_refuse_to_explain(words: str, complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        experiment.main(words.split(), standalone_mode=False)
