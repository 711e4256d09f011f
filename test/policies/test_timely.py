"""TimelyLLM's scheduler (Ling et al. 2024, §4.3 and §4.4)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import ROOMY, generation, running, suspended
from timely_llm.conformance.policies.generations import plan_generations, plan_pools
from timely_llm.core.generation import PlanGeneration
from timely_llm.core.reason import Cause
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.batch_bound import BatchBound, BudgetEnd, MostUrgent, SpeedSource
from timely_llm.policies.contract import ask_for_reasons
from timely_llm.policies.registry import make_policy
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import QueueOrder, Slack, Timely

G = 0.09
STEP = StepTime(0.0216, 0.00015, 0.00011)


def test_priority_is_utility_over_generation_time_and_slack() -> None:
    policy = Timely(slack=Slack.DUE)
    normal, urgent = generation("n"), generation("u", utility=URGENT)
    # Eq. 4 at the moment of arrival: slack is the expected response time.
    assert policy.priority(normal, 0.0, G) == pytest.approx(1.0 / (G * 1.0))
    assert policy.priority(urgent, 0.0, G) == pytest.approx(2.0 / (G * 0.2))


def test_a_later_segment_has_the_slack_of_its_robots_execution() -> None:
    policy = Timely(slack=Slack.DUE)
    busy, nearly_idle = suspended("b", robot_free_s=5.0), suspended("i", robot_free_s=0.3)
    assert policy.priority(busy, 0.0, G) == pytest.approx(1.0 / (G * 5.0))
    assert policy.priority(nearly_idle, 0.0, G) > policy.priority(busy, 0.0, G)
    # Idle for 0.4 s when the segment would be ready: TUF1 with an expected response time of zero.
    late = suspended("l", robot_free_s=0.0)
    assert policy.priority(late, 0.31, G) == pytest.approx(0.2 / (G * policy.least_slack_s))


def test_the_slack_at_the_expected_completion_is_shorter_by_the_generation_time() -> None:
    policy = Timely()
    assert policy.priority(generation("n"), 0.0, G) == pytest.approx(1.0 / (0.09 * 0.91))
    urgent = generation("u", utility=URGENT)
    assert policy.priority(urgent, 0.0, G) == pytest.approx(2.0 / (0.09 * 0.11))
    busy = suspended("b", robot_free_s=5.0)
    assert policy.priority(busy, 2.0, G) == pytest.approx(1.0 / (0.09 * 2.91))
    # 0.05 s late at the completion: the utility is 0.9, the slack has its floor.
    assert policy.priority(generation("n"), 0.96, G) == pytest.approx(0.9 / (0.09 * 0.01))


def test_the_released_form_falls_exponentially_with_the_slack() -> None:
    policy = Timely(slack=Slack.EXP)
    assert policy.priority(generation("n"), 0.0, G) == pytest.approx(math.exp(-0.91))
    urgent = generation("u", utility=URGENT)
    assert policy.priority(urgent, 0.0, G) == pytest.approx(2.0 * math.exp(-0.11))
    late = suspended("l", robot_free_s=1.0)
    assert policy.priority(late, 1.11, G) == pytest.approx(1.0 - 2.0 * 0.2)
    assert policy.priority(late, 2.0, G) == pytest.approx(1.0 - 2.0 * 1.09)


def test_a_network_makes_each_segment_ready_later() -> None:
    normal = generation("n")
    near, far = Timely(slack=Slack.EXP), Timely(slack=Slack.EXP, network_s=0.008)
    assert far.priority(normal, 0.0, G) == pytest.approx(math.exp(-0.902))
    assert far.priority(normal, 0.0, G) == pytest.approx(near.priority(normal, 0.008, G))


def test_the_forms_of_the_slack_disagree_about_the_first_plan() -> None:
    # Quotients of worth and slack: 2 / 1.1 and 1 / 0.5; products: 2 exp(-1.1) and exp(-0.5).
    urgent, normal = suspended("u", 1.1, utility=URGENT), suspended("n", 0.5)
    first = {form: Timely(slack=form).plan(0.0, [urgent, normal], STEP, ROOMY) for form in Slack}
    assert first[Slack.DUE].keys == first[Slack.COMPLETION].keys == {"n"}
    assert first[Slack.EXP].keys == {"u"}


@given(plan_generations("g"), st.floats(0, 20), st.floats(0.001, 5), st.sampled_from(Slack))
def test_a_priority_is_bounded_and_never_below_that_of_a_longer_slack(
    plan: PlanGeneration, now: float, segment_s: float, form: Slack
) -> None:
    policy = Timely(slack=form)
    utility = plan.utility_at(now + segment_s)
    priority = policy.priority(plan, now, segment_s)
    if utility <= 0:
        assert priority == utility
    elif form is Slack.EXP:
        assert 0.0 <= priority <= utility
    else:
        assert 0.0 < priority <= utility / (segment_s * policy.least_slack_s)
        assert priority >= Timely(slack=Slack.DUE).priority(plan, now, segment_s)


def test_in_order_of_reading_worth_and_generation_time_do_not_count() -> None:
    policy = Timely(order=QueueOrder.READING)
    reads, idle = suspended("r", robot_free_s=4.0, utility=URGENT), suspended("i", robot_free_s=3.0)
    new = generation("n", arrival_s=2.2)  # expected within 1 s
    assert [policy.priority(g, 2.5, G) for g in (reads, idle, new)] == [-4.0, -3.0, -3.2]
    assert policy.plan(2.5, [reads, new, idle], STEP, ROOMY).keys == {"i"}
    ask_for_reasons(policy)
    why = dict(policy.plan(2.5, [idle], STEP, ROOMY).reasons)
    assert why["i"].cause is Cause.DEADLINE
    assert why["i"].number == pytest.approx(0.5)


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


def test_the_papers_bound_ends_at_the_due_time() -> None:
    # Nine tokens to go at 22 ms make 0.2 s; due after 0.2 s, worth 0 after 0.5 s.
    urgent, waiting = running("u", utility=URGENT, segment_tokens=1), generation("n")
    zero, ert = (Timely(bound=BatchBound(budget=budget)) for budget in BudgetEnd)
    assert zero.plan(0.05, [urgent, waiting], STEP, ROOMY).keys == {"u", "n"}
    assert ert.plan(0.05, [urgent, waiting], STEP, ROOMY).keys == {"u"}
    nearly = running("u", utility=URGENT, segment_tokens=6)
    assert ert.plan(0.05, [nearly, waiting], STEP, ROOMY).keys == {"u", "n"}
    far = Timely(bound=BatchBound(budget=BudgetEnd.ERT), network_s=0.1)
    assert far.plan(0.05, [nearly, waiting], STEP, ROOMY).keys == {"u"}


def test_the_measured_speed_is_that_of_the_last_step() -> None:
    bound = BatchBound(speed=SpeedSource.MEASURED)
    policy = Timely(bound=bound)
    batch = running("n", segment_tokens=1)
    assert policy.plan(0.0, [batch], STEP, ROOMY).keys == {"n"}
    assert math.isnan(bound.measured.token_s)
    batch.token_ids += [0]
    batch.segment_tokens = 2
    # Zero after 1.5 s: eight tokens at 0.16 s make 1.28 s, at 0.22 s more than there is.
    assert policy.plan(0.16, [batch, generation("m", 0.1)], STEP, ROOMY).keys == {"n", "m"}
    assert bound.measured.token_s == pytest.approx(0.16)
    batch.token_ids += [0]
    batch.segment_tokens = 3
    assert policy.plan(0.38, [batch, generation("m", 0.1)], STEP, ROOMY).keys == {"n"}
    assert bound.measured.token_s == pytest.approx(0.22)


def test_the_papers_combination_is_one_text_of_options() -> None:
    made = make_policy(
        "timely", slack="completion", budget="ert", urgent="laxity", speed="measured"
    )
    assert isinstance(made, Timely)
    assert made.slack is Slack.COMPLETION
    assert made.bound.budget is BudgetEnd.ERT
    assert made.bound.urgent is MostUrgent.LAXITY
    assert made.bound.speed is SpeedSource.MEASURED


@given(plan_pools(), st.floats(0, 20))
def test_the_papers_order_and_bound_admit_one_and_keep_all_that_run(
    pool: list[PlanGeneration], now: float
) -> None:
    paper = {"slack": "completion", "budget": "ert", "urgent": "laxity", "speed": "measured"}
    plan = make_policy("timely", **paper).plan(now, pool, STEP, ROOMY)
    runs = {g.key for g in pool if g.state.value == "running"}
    assert len(plan.keys - runs) <= 1
    assert len(plan.keys & runs) == min(len(runs), 8)


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
