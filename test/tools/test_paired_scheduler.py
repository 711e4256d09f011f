"""Paired costs of two commits: the ratios, and a whole comparison of a tree with itself."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tools import paired_scheduler
from tools.paired_scheduler import ratios, table

FCFS, MIXED = ("fcfs", 8, 0), ("deadline", 8, 4)


def test_a_ratio_is_the_geometric_mean_with_its_interval() -> None:
    pairs = [
        ({FCFS: (10.0, 100.0), MIXED: (1.0, 1.0)}, {FCFS: (20.0, 100.0), MIXED: (1.0, 1.0)}),
        ({FCFS: (10.0, 100.0), MIXED: (1.0, 1.0)}, {FCFS: (5.0, 100.0), MIXED: (1.0, 1.0)}),
    ]
    found = ratios(pairs)
    mean, low, high = found[FCFS]["decision"]
    assert mean == pytest.approx(1.0)
    assert low < 0.5 < 2.0 < high
    assert math.log(high) == pytest.approx(-math.log(low))
    assert found[FCFS]["turn"] == (1.0, 1.0, 1.0)
    assert table(found).splitlines()[-1] == (
        "| `deadline` | 4 + 4 | 1.00 (1.00 - 1.00) | 1.00 (1.00 - 1.00) |"
    )


def test_pools_of_one_commit_alone_are_left_out() -> None:
    streams = ("deadline", 8, 8)
    older, newer = {MIXED: (1.0, 1.0)}, {MIXED: (1.0, 1.0), streams: (1.0, 1.0)}
    assert [*ratios([(older, newer), (older, newer)])] == [MIXED]
    assert [*ratios([(newer, older), (newer, older)])] == [MIXED]


def test_a_pool_of_streams_alone_is_named() -> None:
    found = ratios([({("slice", 8, 8): (1.0, 1.0)}, {("slice", 8, 8): (1.0, 1.0)})] * 2)
    assert table(found).splitlines()[-1].startswith("| `slice` | 8 streams | 1.00")


def test_two_trees_are_measured_in_turn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["HEAD", "--policy", "fcfs", "--generations", "2", "--rounds", "2", "--turns", "3"]
    assert paired_scheduler.main([*words, "--json", str(tmp_path / "ratios.json")]) == 0
    out, err = capsys.readouterr()
    assert [line.split("|")[2].strip() for line in out.splitlines()[2:]] == [
        "2", "1 + 1", "2 streams",
    ]  # fmt: skip
    assert err.splitlines() == ["round 1 of 2", "round 2 of 2"]
    assert '"decision"' in (tmp_path / "ratios.json").read_text(encoding="utf-8")


def test_an_unknown_commit_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert paired_scheduler.main(["no-such-commit"]) == 2
    assert "'no-such-commit' is neither a commit" in capsys.readouterr().err
