"""Urgent plans of many robots at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.experiments.bursts import bursts, bursts_file
from test.experiments.workloads import job, trace
from timely_llm.experiments.catalog.bursts import EVERY_S
from timely_llm.experiments.catalog.urgent import BURSTS, EXPERIMENT, urgent_bursts
from timely_llm.experiments.contract import ExperimentError


def quiet(done: int, total: int) -> None:
    pass


def test_a_burst_has_an_urgent_plan_of_each_robot() -> None:
    made = urgent_bursts(bursts(), 30)
    assert len(made.jobs) == BURSTS * 30
    assert all(one.urgent for one in made.jobs)
    for burst in range(BURSTS):
        mine = made.jobs[30 * burst : 30 * (burst + 1)]
        assert {one.arrival_s for one in mine} == {EVERY_S * burst}
        assert len({one.agent for one in mine}) == 30
    with pytest.raises(ExperimentError, match="small has no urgent plans"):
        urgent_bursts(trace(job("a")), 3)


def test_fewer_are_in_time_the_more_ask_at_once(tmp_path: Path) -> None:
    given = {"trace": bursts_file(tmp_path), "sizes": (3, 9), "seeds": 1, "jobs": 1}
    made = EXPERIMENT.run(EXPERIMENT.options(**given, policies=("stream", "deadline")), quiet)
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    assert set(made.measures) <= made.definitions.keys()
    assert [row["requests"] for row in made.rows] == [
        BURSTS * size for size in (3, 9) for _ in range(2)
    ]
    for policy in ("stream", "deadline"):
        few, many = (float(str(row["utility"])) for row in made.rows if row["policy"] == policy)
        assert 0.0 <= many < few
