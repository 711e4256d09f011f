"""The command `timely-llm benchmark`, without measuring."""

import json
from functools import partial
from pathlib import Path

import pytest

from test.cli.command import error_line, run_command
from timely_llm.benchmarks import scheduler

run = partial(run_command, "benchmark")


def test_rows_are_shown_and_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    row: dict[str, object] = {"policy": "edf", "generations": 8, "plan_us": 21.5}
    asked: list[tuple[object, ...]] = []

    def rows(*words: object, **_: object) -> list[dict[str, object]]:
        asked.append(words)
        return [row, row]

    monkeypatch.setattr(scheduler, "rows", rows)
    file = tmp_path / "rows.json"
    assert run(monkeypatch, "scheduler", "--policy", "edf", "--json", str(file)) == 0
    assert asked == [(("edf",), (1, 8, 64, 256), scheduler.POOLS)]
    assert "plan_us" in capsys.readouterr().out
    written = json.loads(file.read_text())
    assert written["rows"] == [row, row]
    assert written["command"].startswith("timely-llm benchmark scheduler --policy edf")


def test_a_broken_rule_is_named_and_makes_the_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rclpy")
    from timely_llm.benchmarks.kills import run as kills
    from timely_llm.benchmarks.kills.findings import BOUNDED
    from timely_llm.benchmarks.kills.lives import Fault
    from timely_llm.benchmarks.kills.schedule import Kills

    asked: list[Kills] = []
    faults = [Fault("no twins", "r has two")]

    def broken(what: Kills, *_: object) -> kills.KillsOutcome:
        asked.append(what)
        return kills.KillsOutcome(
            [{"what": "plans", "number": 1}], faults, [Fault(BOUNDED, "r took 100 s")]
        )

    monkeypatch.setattr(kills, "run", broken)
    assert run(monkeypatch, "kills", "--kills", "3", "--hedge", "--only-kills") == 1
    assert asked == [Kills(3, hedge=True, only_kills=True)]
    assert "no twins: r has two" in capsys.readouterr().err
    faults.clear()
    assert run(monkeypatch, "kills") == 0, "what is late on a busy machine is no fault"
    assert "late on a busy machine: requests end in bounded time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("engine --pinned 128", "must be below --prompt, 128"),
        ("engine --batch 0", "0 is not in the range"),
        ("scheduler --policy best", "'best' is not one of"),
        ("scheduler --pool people", "'people' is not one of 'plans', 'both', 'streams'"),
        ("dispatch --dispatchers best", "unknown dispatcher 'best'"),
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
    errors = error_line(capsys)
    assert complaint in errors


def test_a_soak_in_virtual_time_ends_with_its_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "rows.json"
    words = f"soak --virtual --robots 4 --duration 120 --json {file}".split()
    assert run(monkeypatch, *words) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "passed: memory, threads and handles are flat, and all requests ended"
    (row,) = json.loads(file.read_text())["rows"]
    assert row["requests"] > 0 and row["without_end"] == row["kv_not_free"] == 0
