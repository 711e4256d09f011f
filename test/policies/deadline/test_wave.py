import math
import random
from collections.abc import Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import DEAR, generation, running, suspended
from timely_llm.conformance.policies.generations import plan_pools, step_times
from timely_llm.core.clock import RobotTime
from timely_llm.core.generation import PlanGeneration
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.policies.deadline.wave import AGE_S, Deliverable, by_loss, wave_size
from timely_llm.policies.lengths import outlook
from timely_llm.policies.step_time import StepTime

CHEAP = StepTime(0.0216, 0.00015, 0.00011)


def deliverable(
    plan: PlanGeneration,
    tokens: int = 8,
    prompt_s: float = 0.0,
    kappa: float = 0.1,
    urgent: float = 1.0,
) -> Deliverable:
    return Deliverable(plan, outlook((tokens, 1.0)), prompt_s, kappa, urgent)


def keys(line: Sequence[Deliverable]) -> list[str]:
    return [one.generation.key for one in line]


def total_worth(
    line: Sequence[Deliverable],
    number: int,
    now: float,
    step_time: StepTime,
    slowdown: float = 1.0,
) -> float:
    """Return the worth of a line with its first `number` in the next wave, one by one."""
    step_s, later_s = step_time.predict_s(number), step_time.predict_s(len(line) - number)
    begin_s = now + sum(one.prompt_s for one in line[:number])
    after_s = now + sum(one.prompt_s for one in line)
    after_s += max(one.tokens for one in line[:number]) * step_s * slowdown
    later_s *= slowdown
    return sum(one.expected(begin_s, step_s) for one in line[:number]) + sum(
        one.expected(after_s, later_s) for one in line[number:]
    )


def test_a_first_segment_is_worth_its_time_utility_less_the_price_of_the_idle_robot() -> None:
    one = deliverable(generation("g", arrival_s=1.0, utility=URGENT), kappa=0.0)
    assert one.expected(1.0, 0.02) == 2.0
    assert one.expected(1.0, 0.04) == pytest.approx(2.0 * (0.5 - 0.32) / 0.3)
    assert one.expected(9.0, 0.02) == 0.0, "never below 0"
    priced = deliverable(generation("g", arrival_s=1.0, utility=URGENT), kappa=0.1)
    idle_s = 1.16
    assert priced.expected(2.0, 0.02) == pytest.approx(-0.1 * 2.0 * idle_s * (1 + idle_s / AGE_S))


def test_a_later_segment_is_worth_nothing_but_costs_while_the_robot_is_idle() -> None:
    one = deliverable(suspended("s", robot_free_s=5.0))
    assert one.expected(0.0, 0.02) == 0.0
    assert one.expected(6.0, 0.25) == pytest.approx(-0.1 * 3.0 * (1 + 3.0 / AGE_S))
    assert deliverable(suspended("s", robot_free_s=5.0), kappa=0.0).expected(9.0, 1.0) == 0.0


def test_a_worth_is_the_mean_over_the_lengths() -> None:
    plan = generation("g", utility=URGENT)
    both = Deliverable(plan, outlook((4, 0.25), (20, 0.75)), 0.0, 0.1, 1.0)
    short, long = deliverable(plan, 4), deliverable(plan, 20)
    assert both.tokens == 16.0
    assert both.expected(0.0, 0.02) == pytest.approx(
        0.25 * short.expected(0.0, 0.02) + 0.75 * long.expected(0.0, 0.02)
    )


def test_a_request_without_worth_waits_at_the_price_of_a_normal_one() -> None:
    none = deliverable(generation("none", utility=TimeUtility(beta=0.0, alpha=0.0)))
    normal = deliverable(generation("normal"), kappa=0.1)
    assert normal.expected(9.0, 0.02) == none.expected(9.0, 0.02) < 0.0


def test_a_robot_with_time_twice_as_fast_is_idle_for_twice_as_long() -> None:
    same = deliverable(suspended("same", robot_free_s=5.0))
    fast = suspended("fast", robot_free_s=5.0)
    fast.robot_time = RobotTime(rate=2.0)
    assert deliverable(fast).expected(7.0, 0.0) == pytest.approx(same.expected(9.0, 0.0))


def test_the_longest_step_with_which_a_segment_is_in_time() -> None:
    one = deliverable(generation("g", arrival_s=1.0), tokens=10)
    assert one.own_step_s(1.5) == pytest.approx(0.05)
    assert one.own_step_s(2.5) < 0.0
    assert deliverable(suspended("s", robot_free_s=5.0)).own_step_s(4.6) == pytest.approx(0.05)


@given(st.floats(0, 30), st.floats(0, 30), st.floats(0.0, 0.5))
def test_a_worth_never_grows_with_time(begin_s: float, more_s: float, step_s: float) -> None:
    for plan in (generation("g", utility=URGENT), suspended("s", robot_free_s=5.0)):
        one = deliverable(plan)
        assert one.expected(begin_s + more_s, step_s) <= one.expected(begin_s, step_s)


def test_the_exponent_of_worth_makes_urgent_requests_equal_or_squares_their_ratio() -> None:
    for urgent, ratio in ((0.0, 1.0), (1.0, 2.0), (2.0, 4.0)):
        worths = [
            deliverable(generation("g", utility=utility), urgent=urgent).expected(0.0, 0.02)
            for utility in (NORMAL, URGENT)
        ]
        assert worths[1] / worths[0] == pytest.approx(ratio, rel=0.05)


def test_an_exponent_takes_the_worth_of_any_request() -> None:
    for beta in (5e-324, 1e-300, 1e300, 1.7e308):
        for urgent in (0.0, 10.0):
            plan = generation("g", utility=TimeUtility(beta=beta, alpha=-1.0))
            one = deliverable(plan, urgent=urgent)
            assert not math.isnan(one.expected(0.0, 0.02))


@given(pool=plan_pools(), now=st.floats(0, 20), step_time=step_times)
def test_all_plans_are_in_the_line_and_one_takes_part(
    pool: list[PlanGeneration], now: float, step_time: StepTime
) -> None:
    everyone = [deliverable(plan) for plan in pool]
    line = by_loss(everyone, now, step_time)
    assert sorted(map(id, line)) == sorted(map(id, everyone))
    assert [one.density for one in line] == sorted((one.density for one in line), reverse=True)
    assert min(len(line), 1) <= wave_size(line, now, step_time) <= len(line)


def test_the_line_begins_with_what_loses_most_per_second_of_the_engine() -> None:
    crowd = [generation(f"n{i}", utility=NORMAL) for i in range(6)]
    urgent = generation("urgent", utility=URGENT)
    hopeless = generation("hopeless", arrival_s=-1.0, utility=URGENT)
    line = by_loss([deliverable(p) for p in (*crowd, hopeless, urgent)], 0.0, DEAR)
    assert keys(line)[0] == "urgent"
    assert all(one.density > 0.0 for one in line)
    alone = by_loss([deliverable(p, kappa=0.0) for p in (hopeless, urgent)], 0.0, DEAR)
    assert [one.density > 0.0 for one in alone] == [True, False]


def test_a_short_segment_goes_before_a_long_one_of_the_same_worth() -> None:
    short, long = generation("short"), generation("long")
    for first, second in ((short, long), (long, short)):
        tokens = {"short": 2, "long": 14}
        line = by_loss([deliverable(p, tokens[p.key]) for p in (first, second)], 0.95, DEAR)
        assert keys(line) == ["short", "long"]


def test_a_plan_that_must_compute_its_prompt_is_dearer() -> None:
    begun, new = running("begun"), generation("new")
    line = by_loss([deliverable(new, prompt_s=0.3), deliverable(begun)], 0.95, DEAR)
    assert keys(line) == ["begun", "new"]


@given(st.floats(0, 100), st.floats(0.1, 100))
def test_the_density_of_a_waiting_plan_grows_with_its_robot_s_idle_time(
    idle_s: float, more_s: float
) -> None:
    for plan in (generation("g", arrival_s=-10.0), suspended("s", robot_free_s=0.0)):
        densities = []
        for now in (idle_s, idle_s + more_s):
            one = deliverable(plan)
            by_loss([one], now, DEAR)
            densities.append(one.density)
        assert densities[1] > densities[0] > 0.0


def test_equals_share_a_wave_while_they_are_worth_more_together_than_in_turn() -> None:
    urgent = [deliverable(running(f"u{i}", utility=URGENT), 4) for i in range(5)]
    number = wave_size(urgent, 0.0, DEAR)
    assert 1 < number < 5
    assert wave_size(urgent, 0.0, CHEAP) == 5


def test_no_plan_of_an_empty_line_takes_part() -> None:
    assert by_loss([], 0.0, DEAR) == []
    assert wave_size([], 0.0, DEAR) == 0


wanted = st.tuples(
    st.sampled_from([NORMAL, URGENT]),
    st.floats(-1.0, 0.0),
    st.integers(1, 16),
    st.sampled_from([0.0, 0.012]),
    st.none() | st.floats(-2.0, 1.0),
)


def line_of(
    drawn: Sequence[tuple[TimeUtility, float, int, float, float | None]], step_time: StepTime
) -> list[Deliverable]:
    plans = [
        deliverable(
            generation(f"g{place}", arrival_s, utility=utility, robot_free_s=robot_free_s),
            tokens,
            prompt_s,
        )
        for place, (utility, arrival_s, tokens, prompt_s, robot_free_s) in enumerate(drawn)
    ]
    return by_loss(plans, 0.0, step_time)


@given(st.lists(wanted, min_size=1, max_size=8), step_times, st.floats(1.0, 5.0))
def test_up_to_eight_plans_share_exactly_the_best_wave(
    drawn: list[tuple[TimeUtility, float, int, float, float | None]],
    step_time: StepTime,
    slowdown: float,
) -> None:
    line = line_of(drawn, step_time)
    worths = [total_worth(line, n, 0.0, step_time, slowdown) for n in range(1, len(line) + 1)]
    got = worths[wave_size(line, 0.0, step_time, slowdown=slowdown) - 1]
    assert got == pytest.approx(max(worths), abs=1e-9)


def test_plans_that_others_would_overtake_join_the_wave() -> None:
    urgent = [deliverable(generation("u", arrival_s=0.0, utility=URGENT), prompt_s=0.0)]
    normal = [
        deliverable(generation(f"n{i}", arrival_s=-0.4, utility=NORMAL), prompt_s=0.012)
        for i in range(6)
    ]
    line = [*urgent, *normal]
    assert wave_size(line, 0.0, CHEAP) < len(line)
    assert wave_size(line, 0.0, CHEAP, slowdown=3.0) == len(line)


def test_more_plans_share_a_wave_that_is_nearly_the_best() -> None:
    draw, gaps = random.Random(1), []
    for _ in range(400):
        rows_s = draw.choice([0.0, 0.0001, 0.001, 0.01, 0.03])
        step_time = StepTime(draw.uniform(0.001, 0.1), rows_s, draw.uniform(0.0, 0.0002))
        line = line_of(
            [
                (
                    draw.choice([NORMAL, URGENT]),
                    draw.uniform(-1.0, 0.0),
                    draw.randint(1, 16),
                    draw.choice([0.0, 0.012]),
                    draw.choice([None, draw.uniform(-2.0, 1.0)]),
                )
                for _ in range(draw.randint(9, 24))
            ],
            step_time,
        )
        worths = [total_worth(line, n, 0.0, step_time) for n in range(1, len(line) + 1)]
        got = worths[wave_size(line, 0.0, step_time) - 1]
        possible = sum(one.generation.time_utility.beta for one in line)
        gaps.append((max(worths) - got) / possible)
    assert fmean(gaps) < 0.004
    assert sum(gap > 0.05 for gap in gaps) <= 4, "one in a hundred"
