"""Recorded runs that are run again in virtual time."""

from pathlib import Path

import pytest

from test.experiments.recorded_bags import FAILED, STARTED, Bag
from timely_llm.core.request import ErrorCode
from timely_llm.core.time_utility import URGENT
from timely_llm.experiments.sources import given, recorded_trace
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.fcfs import Stream
from timely_llm.traces.model import SkillTime, TraceError


def test_plans_and_times_are_those_of_the_last_epoch(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.request(0.0, "a", URGENT)
        bag.request(1.0, "nothing", agent="s")
        bag.segment(0.2, "a", 0)
        bag.report(0.3, "a", STARTED)
        bag.report(0.9, "a", FAILED, duration=0.6)
        bag.segment(1.2, "a", 0, epoch=1)
        bag.segment(1.3, "a", 1, epoch=1)
        bag.segment(1.4, "a", 1, epoch=1, final=True)
        bag.executed(1.3, 3.8, "a", 0, epoch=1)
        bag.executed(3.8, 4.3, "a", 1, epoch=1)
        bag.result(4.4, "a", epoch=1)
        bag.result(4.5, "nothing", ErrorCode.EXPIRED)
    trace = recorded_trace(tmp_path / "day")
    (job,) = trace.jobs
    assert (job.id, job.agent, job.arrival_s, job.time_utility) == ("a", "r", 0.0, URGENT)
    assert job.plan == "mf(0);mf(1);"
    assert len(job.segment_tokens) == 2 and min(job.segment_tokens) > 0
    assert [time.seconds for time in job.skill_times] == pytest.approx([2.5, 0.5])
    assert job.skill_times[0] == SkillTime("segment", job.skill_times[0].seconds)


def test_a_recording_can_be_an_experiments_workload(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        for number in range(12):
            bag.request(float(number), f"r{number}", agent=f"robot{number}")
            bag.segment(number + 0.2, f"r{number}", 0)
            bag.segment(number + 0.3, f"r{number}", 1, final=True)
            bag.executed(number + 0.3, number + 2.3, f"r{number}", 0)
            bag.executed(number + 2.3, number + 2.4, f"r{number}", 1)
            bag.result(number + 2.5, f"r{number}")
    trace = given(tmp_path / "day")
    run = simulate(trace, Stream(), SimulationSettings(skip=0, prediction_error=0.0))
    assert all(outcome.finished for outcome in run.outcomes)
    first, last = run.outcomes[0].segments
    assert first.end_s - first.start_s == pytest.approx(2.0)
    assert last.start_s >= first.end_s


def test_a_bag_without_plans_is_no_workload(tmp_path: Path) -> None:
    with Bag(tmp_path / "silence") as bag:
        for number in range(12):
            bag.request(float(number), f"r{number}")
    with pytest.raises(TraceError, match="no model output to replay"):
        given(tmp_path / "silence")
