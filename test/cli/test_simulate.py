"""The command `timely-llm simulate`."""

from __future__ import annotations

import pytest

from test.cli.command import error_line, run_command
from timely_llm.serving.limits import RequestGate


def test_faults_are_counted_by_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--seconds", 25, "--seeds", 1, "--kinds", "cancel,server dies"
    assert run_command("simulate", monkeypatch, *words) in (0, None)
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in said[:2]] == ["cancel:", "server"]
    assert said[2].split()[1:6] == ["histories", "of", "one", "server", "with"]
    assert said[3].startswith("1 histories from seed 0 with ")
    assert said[3].endswith(": 0 with a broken invariant")


def test_a_broken_invariant_comes_with_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RequestGate, "leave", lambda self, key, well=False: key in self._requests)
    assert run_command("simulate", monkeypatch, "--first-seed", 4, "--seeds", 1) == 1
    said = capsys.readouterr().out
    assert said.startswith("Seed 4 breaks at ")
    assert ": gates add up: " in said
    assert "  replay: timely-llm simulate --first-seed 4 --seeds 1\n" in said
    assert "  fewest faults: timely-llm simulate --first-seed 4 --seeds 1 --without 0-" in said


def test_with_a_time_no_history_begins_after_it_and_few_faults_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RequestGate, "leave", lambda self, key, well=False: key in self._requests)
    monkeypatch.setattr("timely_llm.cli.histories.simulate.SHRINK_S", 0.0)
    assert run_command("simulate", monkeypatch, "--first-seed", 4, "--minutes", 0.01) == 1
    said = capsys.readouterr().out
    assert said.startswith("Seed 4 breaks at ")
    assert "  replay: timely-llm simulate --first-seed 4 --seeds 1\n" in said
    assert "fewest faults" not in said and "fewer faults" not in said
    assert "  fault 0 at " in said


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--kinds", "earthquake", "unknown kind 'earthquake'"),
        ("--without", "a", "such as 3,7-9"),
        ("--without", "3-a", "such as 3,7-9"),
        ("--seconds", "1", "10.0<=x<=3600.0"),
    ],
)
def test_wrong_words_are_refused(
    option: str, value: str, said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert run_command("simulate", monkeypatch, option, value) == 2
    assert said in error_line(capsys)


def test_a_range_of_faults_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RequestGate, "leave", lambda self, key, well=False: key in self._requests)
    words = "--first-seed", 4, "--seeds", 1, "--without", "0-3,5,7-90"
    assert run_command("simulate", monkeypatch, *words) == 1
    said = capsys.readouterr().out
    assert "  replay: timely-llm simulate --first-seed 4 --seeds 1 --without 0-3,5,7-90\n" in said
