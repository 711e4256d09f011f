from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import generation, suspended
from timely_llm.core.generation import PlanGeneration
from timely_llm.policies.deadline.wave import Newcomers
from timely_llm.policies.step_time import StepTime

STEP_S = 0.05
PROMPT_S = 0.0001
CHEAP = StepTime(0.03, 0.0002, PROMPT_S)


def after(
    seconds: float,
    plans: Callable[[float], Iterable[PlanGeneration]],
    left_behind: Callable[[float], bool] = lambda now: True,
    step_time: StepTime = CHEAP,
) -> Newcomers:
    """Return what was noted in decisions that are `STEP_S` apart."""
    newcomers = Newcomers()
    for number in range(round(seconds / STEP_S)):
        now = number * STEP_S
        newcomers.look(now, plans(now), step_time)
        if left_behind(now):
            newcomers.leave_behind(now)
    return newcomers


def newcomer(now: float, tokens: int = 200) -> Sequence[PlanGeneration]:
    return [generation("new", arrival_s=now - STEP_S / 2, to_compute=tokens)]


def test_work_beside_prompts_that_take_two_fifths_of_the_engine_takes_five_thirds_as_long() -> None:
    # 200 tokens take 0.02 s of each 0.05 s.
    assert after(60.0, newcomer).slowdown == pytest.approx(5.0 / 3.0, rel=0.01)


def test_what_came_before_the_last_decision_is_no_newcomer() -> None:
    old = [generation("old", arrival_s=-1.0, to_compute=200)]
    assert after(60.0, lambda now: old).slowdown == 1.0


def test_a_later_segment_is_no_newcomer() -> None:
    assert after(60.0, lambda now: [suspended("later", robot_free_s=now)]).slowdown == 1.0


def test_newcomers_do_not_count_until_their_prompts_take_a_tenth_of_the_engine() -> None:
    assert after(4.0, newcomer).slowdown == 1.0, "0.08 of the last 20 s"
    assert after(7.0, newcomer).slowdown == pytest.approx(5.0 / 3.0, rel=0.05)
    assert after(60.0, lambda now: newcomer(now, 40)).slowdown == 1.0


def test_newcomers_do_not_count_where_plans_are_seldom_left_behind() -> None:
    # A burst every ten seconds leaves plans behind for one second.
    assert after(60.0, newcomer, lambda now: now % 10.0 < 1.0).slowdown == 1.0


def test_newcomers_are_forgotten_after_a_rest() -> None:
    newcomers = after(60.0, newcomer)
    newcomers.look(1000.0, [], CHEAP)
    assert newcomers.slowdown == 1.0
    assert after(60.0, newcomer, lambda now: now < 30.0).slowdown == 1.0


@pytest.mark.parametrize(
    "step_time",
    [StepTime(0.03, 0.005, PROMPT_S), StepTime(0.015, 0.0002, PROMPT_S)],
    ids=["rows are expensive", "a prompt takes longer than a step of one row"],
)
def test_newcomers_do_not_count_where_a_larger_batch_saves_little(step_time: StepTime) -> None:
    assert after(60.0, newcomer, step_time=step_time).slowdown == 1.0


def test_prompts_that_take_all_of_the_engine_slow_down_to_a_fifth() -> None:
    assert after(60.0, lambda now: 3 * [*newcomer(now)]).slowdown == pytest.approx(5.0)


def test_many_newcomers_within_one_moment_slow_down_to_a_fifth() -> None:
    newcomers = Newcomers()
    for _ in range(200):
        newcomers.leave_behind(1e-6)
        newcomers.look(1e-6, [generation("g", arrival_s=1e-6, to_compute=200)] * 9, CHEAP)
    assert newcomers.slowdown == 1.0, "each counts once"
    newcomers.leave_behind(1e-6)
    newcomers.look(2e-6, [generation("g", arrival_s=2e-6, to_compute=200)] * 200, CHEAP)
    assert newcomers.slowdown == pytest.approx(5.0)
    newcomers.look(2.1, [], CHEAP)
    assert newcomers.slowdown == 1.0


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(1, 5000), st.booleans()), max_size=60))
def test_the_slowdown_is_from_one_to_five(steps: list[tuple[float, int, bool]]) -> None:
    newcomers, now = Newcomers(), 0.0
    for step_s, tokens, left_behind in steps:
        now += step_s
        newcomers.look(now, [generation("g", arrival_s=now, to_compute=tokens)], CHEAP)
        if left_behind:
            newcomers.leave_behind(now)
        assert 1.0 <= newcomers.slowdown <= 5.0 + 1e-9
