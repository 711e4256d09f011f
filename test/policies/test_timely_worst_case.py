"""What the most urgent plan can afford (Ling et al. 2024, §4.4)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import generation, running, suspended, talking
from timely_llm.conformance.policies.generations import plan_pools, step_times
from timely_llm.core.generation import PlanGeneration, State
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.policies.batch_bound import (
    BatchBound,
    BudgetEnd,
    DecodeSpeed,
    MostUrgent,
    SpeedSource,
)
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import Timely, WorstCase

STEP = StepTime(0.02, 0.0, 0.001)
ERT = BatchBound(budget=BudgetEnd.ERT)
PAPER = BatchBound(BudgetEnd.ERT, MostUrgent.LAXITY, SpeedSource.MEASURED)


def test_the_budget_is_the_time_to_the_zero_point() -> None:
    urgent = running("u", utility=URGENT, segment_tokens=1)  # nine to go, 0.18 s; zero at 0.5 s
    one = talking("s")
    assert WorstCase([urgent], 0.31, STEP, 10).allows(one)
    assert not WorstCase([urgent], 0.33, STEP, 10).allows(one)


def test_a_prompt_delays_one_step() -> None:
    urgent = running("u", utility=URGENT, segment_tokens=1)
    prompt = generation("n", to_compute=100)  # 0.1 s more
    assert WorstCase([urgent], 0.21, STEP, 10).allows(prompt)
    assert not WorstCase([urgent], 0.23, STEP, 10).allows(prompt)
    batch = WorstCase([urgent], 0.21, STEP, 10)
    batch.add(prompt)
    assert not batch.allows(prompt), "one prompt it can afford, two not"


@pytest.mark.parametrize("now", [0.6, 30.0])
def test_plans_past_their_zero_point_and_streams_bound_no_batch(now: float) -> None:
    batch = [running("u", utility=URGENT), talking("s")]
    assert WorstCase(batch, now, STEP, 10).allows(generation("n", to_compute=2000))


def test_a_plan_that_joins_is_protected_from_then_on() -> None:
    batch = WorstCase([running("n", utility=NORMAL)], 0.4, STEP, 10)
    newcomer = talking("s")
    assert batch.allows(newcomer)
    batch.add(running("u", utility=URGENT))
    assert not batch.allows(newcomer)


def test_the_budget_of_the_paper_is_the_time_to_the_due_time() -> None:
    one = talking("s")
    urgent = running("u", utility=URGENT, segment_tokens=4)  # six to go, 0.12 s; due at 0.2 s
    assert Timely(bound=ERT).worst_case([urgent], 0.07, STEP).allows(one)
    assert not Timely(bound=ERT).worst_case([urgent], 0.09, STEP).allows(one)
    later = suspended("l", 1.0, state=State.RUNNING)  # ten to go, 0.2 s; its robot is idle at 1 s
    assert Timely(bound=ERT).worst_case([later], 0.79, STEP).allows(one)
    assert not Timely(bound=ERT).worst_case([later], 0.81, STEP).allows(one)


def test_the_least_laxity_is_not_the_earliest_zero_point() -> None:
    # At 0.2 s: one token to go and 0.3 s for it; ten to go, and 0.15 s for them.
    soon = running("s", utility=URGENT, segment_tokens=9)
    long = suspended("l", -0.15, state=State.RUNNING)
    assert long.zero_s == pytest.approx(0.35)
    both = [running("s", utility=URGENT, segment_tokens=9), long]
    laxity = BatchBound(urgent=MostUrgent.LAXITY)
    one = talking("t")
    assert Timely(bound=laxity).worst_case([soon], 0.2, STEP).allows(one)
    assert not Timely(bound=laxity).worst_case(both, 0.2, STEP).allows(one)
    # The zero point of the short one is the earlier one if the long one has 0.55 s.
    long.robot_free_s = 0.05
    nearly = [running("s", utility=URGENT, segment_tokens=9), long]
    assert Timely().worst_case(nearly, 0.4, STEP).allows(one)
    assert not Timely(bound=laxity).worst_case(nearly, 0.4, STEP).allows(one)


def test_a_request_past_its_budget_has_the_least_laxity() -> None:
    hopeless, fresh = running("h", utility=URGENT), running("f", arrival_s=2.9)
    one = talking("t")
    assert Timely().worst_case([hopeless, fresh], 3.0, STEP).allows(one)
    check = Timely(bound=BatchBound(urgent=MostUrgent.LAXITY)).worst_case(
        [hopeless, fresh], 3.0, STEP
    )
    assert not check.allows(one)
    assert check.refusal.number == pytest.approx(0.5 - 3.0)


def test_the_measured_speed_knows_neither_the_candidate_nor_a_profile() -> None:
    bound = BatchBound(speed=SpeedSource.MEASURED)
    urgent = running("u", utility=URGENT, segment_tokens=1)  # nine to go
    prompt = generation("n", to_compute=2000)  # 2 s more by the profile
    check = Timely(bound=bound).worst_case([urgent], 0.1, STEP)
    assert check.allows(prompt), "as predicted without it: 0.18 s"
    bound.measured.token_s = 0.04  # 0.36 s
    assert Timely(bound=bound).worst_case([urgent], 0.13, STEP).allows(prompt)
    assert not Timely(bound=bound).worst_case([urgent], 0.15, STEP).allows(prompt)


def test_the_speed_is_the_seconds_of_the_newest_tokens() -> None:
    speed, one, other = DecodeSpeed(), running("a"), running("b")
    speed.watch([one], 1.0)
    speed.measure(1.2)
    assert math.isnan(speed.token_s), "no token came"
    speed.watch([one, other], 1.2)  # the step that began at 1 s is under way
    one.token_ids += [0]
    speed.measure(1.3)
    assert speed.token_s == pytest.approx(0.3)
    speed.watch([one, other], 1.4)
    one.token_ids += [0, 0]  # speculative tokens count
    other.token_ids += [0]
    speed.measure(1.5)
    assert speed.token_s == pytest.approx(0.05)
    speed.watch([], 1.5)
    speed.measure(9.0)
    assert speed.token_s == pytest.approx(0.05), "an engine at rest measures nothing"


def test_a_cancelled_generation_does_not_hold_the_measurement_up() -> None:
    speed, gone, stays = DecodeSpeed(), running("g"), running("s")
    speed.watch([gone], 0.0)
    speed.watch([stays], 5.0)
    stays.token_ids += [0]
    speed.measure(5.02)
    assert speed.token_s == pytest.approx(0.02)


@given(
    plan_pools(), st.floats(0, 20), step_times,
    st.sampled_from(BudgetEnd), st.sampled_from(MostUrgent), st.sampled_from([math.nan, 0.03]),
)  # fmt: skip
def test_the_check_is_the_one_of_the_most_urgent_request(
    pool: list[PlanGeneration], now: float, step_time: StepTime,
    budget: BudgetEnd, urgent: MostUrgent, token_s: float,
) -> None:  # fmt: skip
    candidate = generation("new", to_compute=100)
    check = WorstCase(pool, now, step_time, 10, budget, urgent, token_s)
    protected = [g for g in pool if urgent is MostUrgent.LAXITY or now < g.zero_s < math.inf]
    if not protected:
        assert check.allows(candidate)
        return
    batch = [*pool, candidate]
    context = sum(g.context_tokens for g in batch)
    prefill = sum(g.to_compute for g in batch if g.to_compute > 1)
    first_s, later_s = (
        (step_time.predict_s(len(batch), prefill, context),
         step_time.predict_s(len(batch), 0, context + prefill))
        if math.isnan(token_s) else (token_s, token_s)
    )  # fmt: skip

    def laxity_s(one: PlanGeneration) -> float:
        end_s = one.zero_s if budget is BudgetEnd.ZERO else one.due_s
        left = max(10 - one.segment_tokens, 1)
        return end_s - (now + first_s + (left - 1) * later_s)

    by_laxity = urgent is MostUrgent.LAXITY
    most_urgent = min(protected, key=lambda one: laxity_s(one) if by_laxity else one.zero_s)
    assert check.allows(candidate) == (laxity_s(most_urgent) >= 0) or math.isclose(
        laxity_s(most_urgent), 0.0, abs_tol=1e-9
    )
