"""TimelyLLM's scheduler (Ling et al. 2024, §4.3 and §4.4)."""

import math

import pytest

from test.policies.builders import ROOMY, generation, running, suspended
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import Timely

G = 0.09
STEP = StepTime(0.0216, 0.00015, 0.00011)


def test_priority_is_utility_over_generation_time_and_slack() -> None:
    policy = Timely()
    normal, urgent = generation("n"), generation("u", utility=URGENT)
    # Eq. 4 at the moment of arrival: slack is the expected response time.
    assert policy.priority(normal, 0.0, G) == pytest.approx(1.0 / (G * 1.0))
    assert policy.priority(urgent, 0.0, G) == pytest.approx(2.0 / (G * 0.2))


def test_a_later_segment_has_the_slack_of_its_robots_execution() -> None:
    policy = Timely()
    busy, nearly_idle = suspended("b", robot_free_s=5.0), suspended("i", robot_free_s=0.3)
    assert policy.priority(busy, 0.0, G) == pytest.approx(1.0 / (G * 5.0))
    assert policy.priority(nearly_idle, 0.0, G) > policy.priority(busy, 0.0, G)
    # Idle for 0.4 s when the segment would be ready: TUF1 with an expected response time of zero.
    late = suspended("l", robot_free_s=0.0)
    assert policy.priority(late, 0.31, G) == pytest.approx(0.2 / (G * policy.least_slack_s))


def test_negative_utility_over_a_small_slack_does_not_come_first() -> None:
    policy = Timely()
    hopeless, fresh = generation("h", arrival_s=0.0), generation("f", arrival_s=9.0)
    assert policy.priority(hopeless, 9.0, G) < 0 < policy.priority(fresh, 9.0, G)


def test_among_late_plans_the_least_late_one_comes_first() -> None:
    # The paper's sum of utilities gains nothing from either; old ones wait for lower load.
    older, newer = generation("o", arrival_s=0.0), generation("n", arrival_s=5.0)
    assert Timely().plan(9.0, [older, newer], STEP, ROOMY).keys == {"n"}
    assert Timely().plan(9.0, [older], STEP, ROOMY).keys == {"o"}


def test_the_urgent_request_joins_first_and_one_at_a_time() -> None:
    queue = [generation("n1"), generation("u", 0.01, utility=URGENT), generation("n2")]
    plan = Timely().plan(0.01, queue, STEP, ROOMY)
    assert plan.entries == (("u", 110),)


def test_no_plan_joins_if_the_most_urgent_running_one_would_miss_its_zero_point() -> None:
    # Nine tokens to go at 22 ms make 0.2 s; the zero point is 0.5 s away, then 0.15 s.
    urgent = running("u", utility=URGENT, segment_tokens=1)
    waiting = generation("n")
    assert Timely().plan(0.0, [urgent, waiting], STEP, ROOMY).keys == {"u", "n"}
    assert Timely().plan(0.35, [urgent, waiting], STEP, ROOMY).keys == {"u"}
    fixed = Timely(adaptive=False)
    assert fixed.plan(0.35, [urgent, waiting], STEP, ROOMY).keys == {"u", "n"}


def test_a_running_request_past_its_zero_point_bounds_no_batch() -> None:
    hopeless = running("h", utility=URGENT, segment_tokens=1)
    assert Timely().plan(3.0, [hopeless, generation("n", 3.0)], STEP, ROOMY).keys == {"h", "n"}


def test_the_batch_never_exceeds_its_rows() -> None:
    batch = [running(f"r{i}", arrival_s=0.0) for i in range(8)]
    plan = Timely(rows=8).plan(0.0, [*batch, generation("n")], STEP, ROOMY)
    assert plan.keys == {g.key for g in batch}


def test_it_runs_ahead_when_there_is_room_and_rests_with_a_lead() -> None:
    busy = suspended("b", robot_free_s=5.0)
    assert Timely().plan(0.0, [busy], STEP, ROOMY).keys == {"b"}
    resting = Timely(lead_s=0.5).plan(0.0, [busy], STEP, ROOMY)
    assert not resting.entries
    assert resting.wake_s == pytest.approx(4.5)
    assert Timely(lead_s=0.5).plan(4.5, [busy], STEP, ROOMY).keys == {"b"}


def test_with_nothing_to_do_it_never_asks_to_be_woken() -> None:
    plan = Timely().plan(0.0, [], STEP, ROOMY)
    assert not plan
    assert plan.wake_s == math.inf


def test_memory_of_a_sleeping_plan_is_there_for_an_urgent_one() -> None:
    sleeping = suspended("s", robot_free_s=30.0)
    full = Capacity(free_tokens=10, max_rows=8, max_step_tokens=512)
    plan = Timely(lead_s=0.5).plan(0.0, [sleeping, generation("u")], STEP, full)
    assert plan.keys == {"u"}
    assert plan.evictable == ("s",)


def test_attending_to_long_contexts_counts_in_the_worst_case() -> None:
    slow = StepTime(0.0216, 0.00015, 0.00011, context_token_s=0.001)
    urgent = running("u", utility=URGENT, segment_tokens=1)
    assert Timely().plan(0.0, [urgent, generation("n")], slow, ROOMY).keys == {"u"}
