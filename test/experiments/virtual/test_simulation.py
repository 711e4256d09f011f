import math
from dataclasses import replace

import pytest

from test.experiments.workloads import job, trace
from test.published import TRACE, needs_published
from timely_llm.core.events.log import MemoryEventLog
from timely_llm.core.events.schema import (
    CompleteEvent,
    EndEvent,
    PlanRequestEvent,
    ReportEvent,
    SegmentEvent,
    StepEvent,
)
from timely_llm.core.time_utility import URGENT
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.results.metrics import row
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.contract import Policy
from timely_llm.policies.fcfs import Fcfs, Stream
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.policies.timely import Timely
from timely_llm.traces.imported.lrtrace import read_lrtrace

EXACT = SimulationSettings(prediction_error=0.0, skip=0)
PREFILL_S = 0.0216 + 110 * 0.00011
STEP_S = 0.0216 + 0.00015


def test_times_of_one_plan_are_those_of_the_profile() -> None:
    run = simulate(trace(job("j", 5.0, tokens=(4, 3, 1), seconds=(2.0, 1.0))), Stream(), EXACT)
    (one,) = run.outcomes
    assert one.finished
    assert one.response_s == pytest.approx(0.002 + PREFILL_S + 3 * STEP_S)
    first, second, last = one.segments
    assert second.received_s == pytest.approx(first.received_s + 3 * STEP_S)
    assert second.start_s == first.end_s
    assert second.end_s == pytest.approx(first.end_s + 1.0)
    assert one.waiting_s == pytest.approx(one.response_s), "generation was ahead of the robot"
    assert last.end_s == pytest.approx(second.end_s + 0.001)
    assert (run.steps, run.generated_tokens) == (8, 8)
    assert run.busy_s == pytest.approx(PREFILL_S + 7 * STEP_S)


def test_whole_plans_come_at_their_end() -> None:
    run = simulate(trace(job("j", tokens=(4, 3, 1))), Fcfs(), EXACT)
    assert run.outcomes[0].response_s == pytest.approx(0.002 + PREFILL_S + 7 * STEP_S)


@pytest.mark.parametrize("policy", list(POLICIES))
def test_a_plan_may_be_a_single_segment(policy: str) -> None:
    run = simulate(trace(job("j", tokens=(4,), seconds=(1.0,))), make_policy(policy), EXACT)
    (one,) = run.outcomes
    assert one.finished
    (only,) = one.segments
    assert only.end_s - only.start_s == pytest.approx(1.0)


def test_a_robot_that_has_nothing_to_do_waits() -> None:
    run = simulate(trace(job("j", tokens=(4, 9), seconds=(0.01,))), Stream(), EXACT)
    (one,) = run.outcomes
    assert one.waiting_s == pytest.approx(one.response_s + 9 * STEP_S - 0.01)


def test_uncached_prompts_are_computed_for_each_request() -> None:
    run = simulate(trace(job("j", tokens=(1, 1))), Stream(), EXACT.uncached())
    # The engine takes 2,048 tokens a step.
    assert run.outcomes[0].response_s == pytest.approx(
        0.002 + 2 * 0.0216 + 2884 * 0.00011, abs=2e-3
    )


def test_what_happens_in_a_step_is_known_after_it() -> None:
    asked = trace(job("a", tokens=(9, 1)), job("b", 0.01, tokens=(1, 1)))
    first, second = simulate(asked, Stream(), EXACT).outcomes
    assert second.response_s == pytest.approx(
        0.002 + (PREFILL_S - 0.009 - 0.001) + PREFILL_S + 0.00015 - 0.001 + 0.001, abs=2e-3
    )
    assert first.finished


@pytest.mark.parametrize("reports", [True, False])
def test_a_paused_plan_is_served_with_and_without_reports(reports: bool) -> None:
    asked = trace(job("j", tokens=(4, 4, 1), seconds=(2.0, 1.0)))
    settings = replace(EXACT, prediction_error=0.5, reports=reports, seed=8)
    runs = [simulate(asked, Timely(lead_s=0.2), settings) for _ in range(2)]
    assert runs[0] == runs[1], "the same each time"
    assert runs[0].outcomes[0].finished


def test_late_requests_are_dropped_with_drop_late() -> None:
    crowd = trace(*(job(f"u{i}", utility=URGENT) for i in range(40)))
    kept = row(simulate(crowd, Timely(), EXACT))
    dropped = row(simulate(crowd, Timely(), replace(EXACT, drop_late=True)))
    assert kept["share_served"] == 1.0 > dropped["share_served"] > 0.0


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_policy_serves_every_request_on_every_profile(policy: str, profile: str) -> None:
    asked = trace(*(job(f"j{i}", i / 20, utility=URGENT) for i in range(20)))
    settings = SimulationSettings(profile=PROFILES[profile], learn_step_time=True, skip=0)
    seen: list[tuple[int, int]] = []
    run = simulate(asked, make_policy(policy), settings, progress=lambda *done: seen.append(done))
    assert all(outcome.finished for outcome in run.outcomes)
    assert seen[-1] == (20, 20)


def test_an_empty_trace_is_a_run_in_which_nothing_happens() -> None:
    assert simulate(trace(), Stream()).outcomes == ()


def test_the_loop_writes_its_event_log() -> None:
    log = MemoryEventLog()
    simulate(trace(job("j")), Stream(), EXACT, event_log=log)
    assert {type(event) for event in log.events} == {
        PlanRequestEvent, StepEvent, SegmentEvent, ReportEvent, CompleteEvent, EndEvent,
    }  # fmt: skip


def test_a_step_takes_the_time_of_the_rows_and_tokens_that_the_event_log_has() -> None:
    log, profile = MemoryEventLog(), PROFILES["v100x2-qwen2.5-7b"]
    asked = trace(*(job(f"j{i}", i / 20) for i in range(5)))
    simulate(asked, Stream(), replace(EXACT, profile=profile), event_log=log)
    steps = [event for event in log.events if isinstance(event, StepEvent)]
    assert {step.rows for step in steps} >= {0, 1, 2} and any(step.prompt_tokens for step in steps)
    for step in steps:
        wanted_s = profile.step_s(step.rows, step.prompt_tokens, step.context_tokens)
        assert step.s == pytest.approx(wanted_s, abs=1e-6)


@needs_published
@pytest.mark.parametrize(
    ("policy", "utility", "waiting_s"),
    [
        (Fcfs(), 1.014, 0.531),
        (Stream(), 1.180, 0.353),
        (
            Timely(mean_segment_tokens=0.09 / 0.02175, prior_segments=math.inf),
            1.217,
            0.436,
        ),
    ],
)
def test_baselines_on_the_published_trace_are_as_they_were_found_before(
    policy: Policy, utility: float, waiting_s: float
) -> None:
    got = row(simulate(read_lrtrace(TRACE), policy, SimulationSettings()))
    assert got["utility"] == pytest.approx(utility, rel=0.01)
    assert got["waiting_s"] == pytest.approx(waiting_s, rel=0.01)
