"""Plans that their robots cancel while they execute them."""

import math

import pytest

from test.experiments.workloads import job, trace
from timely_llm.core.events.log import MemoryEventLog
from timely_llm.core.events.schema import EndEvent, ReportEvent
from timely_llm.experiments.results.metrics import row
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.experiments.virtual.workload import works
from timely_llm.policies.registry import make_policy

ALL = SimulationSettings(prediction_error=0.0, skip=0, canceled=1.0)
SECONDS = (2.0, 1.0, 3.0)
JOBS = trace(*(job(str(n), 0.1 * n, tokens=(4, 3, 6, 1), seconds=SECONDS) for n in range(9)))


def test_a_canceled_plan_ends_half_way_through_one_of_its_segments() -> None:
    run = simulate(JOBS, make_policy("deadline"), ALL)
    places = {one.work.canceled_in for one in run.outcomes}
    assert places == {0, 1, 2}, "never in the last segment, which only ends the plan"
    for one in run.outcomes:
        assert one.work.canceled_in == len(one.segments) - 1
        last, whole_s = one.segments[-1], one.work.parts[len(one.segments) - 1].true_s
        assert last.end_s - last.start_s == pytest.approx(whole_s / 2)
        assert one.finished, "the robot got all that it wanted"


def test_the_server_hears_that_the_plan_is_canceled_and_not_that_the_segment_is_done() -> None:
    log = MemoryEventLog()
    run = simulate(JOBS, make_policy("deadline", lead_s=0.0), ALL, event_log=log)
    codes = {event.id: event.code for event in log.events if isinstance(event, EndEvent)}
    assert set(codes.values()) == {"canceled"}
    done = {
        (event.id, event.index)
        for event in log.events
        if isinstance(event, ReportEvent) and event.state == "finished"
    }
    for one in run.outcomes:
        places = {index for id, index in done if id == one.work.id}
        assert places == set(range(len(one.segments) - 1))


def test_tokens_in_vain_are_those_that_no_robot_began_to_execute() -> None:
    always, due = (
        simulate(JOBS, make_policy("deadline", lead_s=lead_s), ALL) for lead_s in (math.inf, 0.0)
    )
    for run in (always, due):
        used = sum(
            part.tokens for one in run.outcomes for part in one.work.parts[: len(one.segments)]
        )
        got = row(run)["share_in_vain"]
        assert got == pytest.approx(1.0 - used / run.generated_tokens)
    assert always.generated_tokens == 9 * 14, "all plans ran ahead of their robots"
    assert due.generated_tokens < always.generated_tokens


def test_a_share_of_the_plans_is_canceled_and_all_else_stays_as_it_is() -> None:
    without = works(JOBS, seed=3)
    some = works(JOBS, seed=3, canceled=0.5)
    assert [one.parts for one in some] == [one.parts for one in without]
    assert 0 < sum(one.canceled_in is not None for one in some) < 9
    assert some == works(JOBS, seed=3, canceled=0.5)
    assert "share_in_vain" not in row(simulate(JOBS, make_policy("deadline")))
