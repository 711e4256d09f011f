from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from test.experiments.bursts import bursts_file
from timely_llm.experiments import sweep
from timely_llm.experiments.catalog.timelyllm.arm import EXPERIMENT
from timely_llm.experiments.results.document import Row
from timely_llm.experiments.sources import composed
from timely_llm.traces.model import Trace


def quiet(done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def rows() -> dict[tuple[object, object], Row]:
    """What comes of the first jobs of the paper's workload, by task and policy."""

    def first(preset: str, seed: int, minutes: float | None) -> Trace:
        trace = composed(preset, seed, minutes)
        return replace(trace, jobs=trace.jobs[:100])

    options = EXPERIMENT.options(policies=("fcfs", "stream", "timely"), loads=(1,), seeds=1, jobs=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "composed", first)
        run = EXPERIMENT.run(options, quiet)
    assert run.keys == ("workload", "load", "task", "policy")
    assert set(run.measures) <= run.rows[0].keys()
    assert set(run.measures) <= run.definitions.keys()
    preprint, published = run.papers
    for theirs in (*preprint.rows, *published.rows):
        assert theirs.keys() <= run.rows[0].keys()
        assert any(theirs.items() - one.items() <= _numbers(theirs) for one in run.rows)
    return {(row["task"], row["policy"]): row for row in run.rows}


def _numbers(row: Row) -> set[tuple[str, object]]:
    return {(name, value) for name, value in row.items() if isinstance(value, float)}


def test_there_is_a_row_for_each_task_and_policy(rows: dict[tuple[object, object], Row]) -> None:
    tasks = ["9 Object stacking", "10 Desk cleaning", "11 Fruit and vegetable classification"]
    assert list(rows) == [
        (task, p) for p in ("fcfs", "stream", "timely") for task in (*tasks, "all")
    ]


def test_the_row_of_all_tasks_is_the_mean_over_them(
    rows: dict[tuple[object, object], Row],
) -> None:
    for policy in ("fcfs", "stream", "timely"):
        of_tasks = [row for (task, p), row in rows.items() if p == policy and task != "all"]
        total = rows["all", policy]
        assert total["requests"] == sum(int(row["requests"] or 0) for row in of_tasks)
        for name in ("utility", "utility_unclamped", "waiting_s", "utility_gain"):
            mean = fmean(float(row[name] or 0.0) for row in of_tasks)
            assert total[name] == pytest.approx(mean), name


def test_segments_are_worth_more_than_the_paper_says_and_waiting_ends_sooner(
    rows: dict[tuple[object, object], Row],
) -> None:
    for (task, policy), row in rows.items():
        gain, share = row["utility_gain"], row["waiting_s_vs_fcfs"]
        assert isinstance(gain, float)
        assert isinstance(share, float)
        if policy == "fcfs":
            assert (gain, share) == (0.0, 1.0)
        else:
            assert gain > 1.97, task
            assert share < 0.16, task


def test_a_users_trace_keeps_the_names_of_its_tasks(tmp_path: Path) -> None:
    options = EXPERIMENT.options(
        trace=bursts_file(tmp_path), policies=("fcfs", "timely"), loads=(1,), seeds=1, jobs=1
    )
    run = EXPERIMENT.run(options, quiet)
    assert [row["task"] for row in run.rows] == ["0", "1", "2", "all"] * 2
    assert run.papers == ()
    assert len(run.timelines) == 2
    assert run == EXPERIMENT.run(options, quiet), "the same each time"
