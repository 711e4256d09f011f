"""The command `timely-llm benchmark`, without measuring."""

import json
import sys
from pathlib import Path

import pytest

from timely_llm.benchmarks import scheduler
from timely_llm.cli import main


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["timely-llm", "benchmark", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_rows_are_shown_and_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    row = {"policy": "edf", "generations": 8, "plan_us": 21.5}
    monkeypatch.setattr(scheduler, "rows", lambda *words, **more: [row, row])
    file = tmp_path / "rows.json"
    assert run(monkeypatch, "scheduler", "--policy", "edf", "--json", str(file)) == 0
    assert "plan_us" in capsys.readouterr().out
    written = json.loads(file.read_text())
    assert written["rows"] == [row, row]
    assert written["command"].startswith("timely-llm benchmark scheduler --policy edf")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("engine --pinned 128", "must be below --prompt, 128"),
        ("engine --batch 0", "0 is not in the range"),
        ("scheduler --policy best", "'best' is not one of"),
        ("segmentation --json /no/such/folder/x.json", "/no/such/folder is not a folder"),
        ("soak --robots 0", "0 is not in the range"),
    ],
)
def test_a_mistake_is_answered_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    complaint: str,
) -> None:
    assert run(monkeypatch, *words.split()) == 2
    errors = capsys.readouterr().err
    assert complaint in errors
    assert len(errors.splitlines()) == 1
