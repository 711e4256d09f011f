import math

from test.policies.builders import ROOMY, generation, running, suspended, talking
from timely_llm.core.generation import Generation
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.deadline.policy import LOOK_AT, Deadline
from timely_llm.policies.step_time import StepTime

STEP = StepTime(0.0216, 0.00015, 0.00011)


def test_a_large_pool_fits_a_small_engine() -> None:
    small = Capacity(free_tokens=300, max_rows=4, max_step_tokens=64)
    crowd = [generation(f"g{i}", utility=URGENT) for i in range(50)]
    plan = Deadline().plan(0.1, [*crowd, *(running(f"r{i}") for i in range(3))], STEP, small)
    assert 0 < len(plan.entries) <= 4
    assert sum(tokens for _, tokens in plan.entries) <= 64


def test_at_most_some_waiting_prompts_are_looked_at() -> None:
    crowd = [generation(f"g{i:02}", to_compute=2) for i in range(LOOK_AT + 5)]
    assert len(Deadline().plan(0.1, crowd, STEP, ROOMY).keys) <= LOOK_AT


def test_a_first_segment_takes_the_memory_of_plans_that_run_ahead() -> None:
    busy = [suspended(f"s{i}", robot_free_s=90.0 + i, context=100) for i in range(3)]
    new = generation("new", arrival_s=0.0, to_compute=150)
    full = Capacity(free_tokens=20, max_rows=16, max_step_tokens=256)
    plan = Deadline().plan(0.1, [*busy, new], STEP, full)
    assert plan.keys == {"new", "s0"}
    assert plan.evictable == ("s2", "s1"), "the one that is due last goes first"
    roomy = Deadline().plan(0.1, [*busy, new], STEP, ROOMY)
    assert roomy.keys == {"new", "s0", "s1", "s2"}


def test_plans_that_do_not_fit_together_do_not_evict_each_other_in_turn() -> None:
    """A later segment evicts only what is due after it, and only when it must begin."""
    pair: list[Generation] = [
        suspended("here", robot_free_s=5.0, context=150),
        suspended("gone", robot_free_s=4.0, context=0, to_compute=150),
    ]
    small = Capacity(free_tokens=50, max_rows=16, max_step_tokens=256)
    assert "gone" not in Deadline().plan(1.0, pair, STEP, small).keys
    assert Deadline().plan(3.9, pair, STEP, small).keys == {"gone"}


FULL = Capacity(free_tokens=50, max_rows=16, max_step_tokens=2048)
AGAIN_S = 1000 * 0.00011
"""Seconds of a prompt of 1000 tokens."""


def _computed_again_at(now: float) -> Deadline:
    """Return a policy that has just evicted a plan for a prompt computed again."""
    policy, back = Deadline(), suspended("back", robot_free_s=now, context=0, to_compute=1000)
    pool = [suspended("here", now + 5.0, context=1200), back]
    assert policy.plan(now, pool, STEP, FULL).keys == {"back"}
    return policy


def _back_and(other: Generation) -> list[Generation]:
    """Return the plan with the prompt that was computed again, and another one without KV."""
    return [suspended("back", robot_free_s=9.0, context=1000), other]


def test_a_plan_keeps_its_kv_for_as_long_as_a_prompt_took_that_was_computed_again() -> None:
    """So prompts that are computed again take half of the engine's time at most."""
    policy = _computed_again_at(4.0)
    pool = _back_and(suspended("next", robot_free_s=4.0, context=0, to_compute=1000))
    computed_s = 4.0 + 0.0216 + AGAIN_S
    assert policy.plan(computed_s, pool, STEP, FULL).keys == {"back"}, "it runs ahead meanwhile"
    assert policy.plan(4.0 + 1.9 * AGAIN_S, pool, STEP, FULL).keys == {"back"}
    assert policy.plan(4.0 + 2.1 * AGAIN_S, pool, STEP, FULL).keys == {"next"}


def test_a_first_segment_evicts_plans_just_after_their_prompts_were_computed_again() -> None:
    pool = _back_and(generation("new", arrival_s=4.0, to_compute=1000))
    assert _computed_again_at(4.0).plan(4.14, pool, STEP, FULL).keys == {"new"}


def test_kv_that_was_loaded_soon_gives_way_sooner() -> None:
    policy = _computed_again_at(4.0)
    pool = _back_and(suspended("next", robot_free_s=4.0, context=0, to_compute=1000))
    assert policy.plan(4.03, pool, STEP, FULL).keys == {"back"}
    assert policy.plan(4.07, pool, STEP, FULL).keys == {"next"}, "the load took 0.03 s"


def test_a_plan_alone_fits_if_all_others_give_their_memory() -> None:
    whole = suspended("whole", robot_free_s=0.0, context=0, to_compute=200)
    others = [talking(f"t{i}", context=100) for i in range(2)]
    small = Capacity(free_tokens=10, max_rows=16, max_step_tokens=256)
    assert Deadline().plan(9.0, [whole, *others], STEP, small)
    too_small = Capacity(free_tokens=10, max_rows=16, max_step_tokens=256)
    never = generation("never", arrival_s=0.0, to_compute=1000)
    plan = Deadline().plan(9.0, [never], STEP, too_small)
    assert (plan.entries, plan.wake_s) == ((), math.inf)
