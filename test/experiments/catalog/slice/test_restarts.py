from pathlib import Path

import pytest

from test.experiments.bursts import bursts_file
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment

FOUND = experiment("slice-restarts")


def quiet(done: int, total: int) -> None:
    pass


def test_each_new_cycle_has_a_cause_and_segments_are_among_them(tmp_path: Path) -> None:
    options = FOUND.options(trace=bursts_file(tmp_path), rates=(0.0, 1.0), seeds=1, jobs=1)
    made = FOUND.run(options, quiet)
    assert [row["rate"] for row in made.rows] == [0.0, 1.0]
    for row in made.rows:
        shares = [float(row[name] or 0) for name in ("at_tasks", "at_segments", "at_cycle_ends")]
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares[:2]) > 0.0
        assert int(row["cycles"] or 0) > 36, "36 plans of 3 or 4 segments"
    assert set(made.measures) <= made.rows[0].keys()


def test_other_policies_have_no_cycles() -> None:
    with pytest.raises(ExperimentError, match="only slice has cycles, not timely"):
        FOUND.run(FOUND.options(policies=("slice", "timely")), quiet)
