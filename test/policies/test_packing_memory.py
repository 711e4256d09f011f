"""Memory under pressure (Ling et al. 2024, §4.4): promises are kept without thrashing."""

import math

import pytest

from test.policies.builders import generation, running, suspended
from test.policies.reference import PlainTimely
from test.serving.scripted import Scene, request
from timely_llm.core.request import ErrorCode
from timely_llm.core.step import Capacity
from timely_llm.policies.contract import Policy
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import Edf, FcfsSegments, Timely

STEP = StepTime(0.0216, 0.00015, 0.00011)
TASK = "x " * 80
MOVES = "mf(50);tc(90);" * 4 + "->True;"
INSTANT = "tp();" * 12 + "->True;"


def tight(free_tokens: int) -> Capacity:
    return Capacity(free_tokens, max_rows=8, max_step_tokens=512)


def served(policy: Policy, plan: str, requests: int, kv_tokens: int) -> Scene:
    """Return a scene in which all requests were served with so little memory beside the prompt."""
    plans = {f"r{i}": plan for i in range(requests)}
    scene = Scene(plans, policy, kv_tokens=Scene({}).prefix_tokens + kv_tokens)
    for name in plans:
        scene.loop.admit(request(name, task=TASK))
    scene.run(5000)
    assert {r.error_code for r in scene.sink.results.values()} == {ErrorCode.NONE}
    assert {r.plan for r in scene.sink.results.values()} == {plan}
    return scene


def test_a_newcomer_waits_until_its_whole_segment_has_room_beside_those_of_the_running() -> None:
    # The running one may store nine more tokens, the newcomer its prompt and nine.
    batch, newcomer = running("r", segment_tokens=1), generation("n")
    assert Timely().plan(0.0, [batch, newcomer], STEP, tight(9 + 119)).keys == {"r", "n"}
    assert Timely().plan(0.0, [batch, newcomer], STEP, tight(9 + 118)).keys == {"r"}


def test_a_plan_that_would_be_alone_joins_if_there_is_room_for_its_next_token() -> None:
    assert Timely().plan(0.0, [generation("n")], STEP, tight(110)).keys == {"n"}


def test_a_first_segment_evicts_resting_plans_but_not_running_ones() -> None:
    resting, newcomer = suspended("s", robot_free_s=0.1), generation("n")
    policy = Timely(lead_s=0.0)
    plan = policy.plan(0.0, [resting, newcomer], STEP, tight(5))
    assert plan.keys == {"n"}
    assert plan.evictable == ("s",)
    assert policy.plan(0.0, [running("r"), newcomer], STEP, tight(5)).keys == {"r"}


def test_running_ahead_takes_nobodys_memory() -> None:
    # "a" gave its memory up; its robot is busy for 3 s more, so it can wait for it.
    out = suspended("a", robot_free_s=3.0, to_compute=121, context=0)
    kept = suspended("b", robot_free_s=9.0)
    plan = Timely().plan(0.0, [out, kept], STEP, tight(20))
    assert plan.keys == {"b"}
    assert plan.evictable == ()
    plan = Timely().plan(2.9, [out, kept], STEP, tight(20))
    assert plan.keys == {"a"}
    assert plan.evictable == ("b",)


def test_a_later_segment_takes_no_memory_that_is_needed_before_it_is_ready() -> None:
    out = suspended("a", robot_free_s=0.0, to_compute=121, context=0)
    kept = suspended("b", robot_free_s=0.1)
    assert Timely().plan(0.05, [out, kept], STEP, tight(20)).keys == {"b"}


def test_when_all_memory_is_full_it_rests_until_one_is_needed() -> None:
    pool = [suspended(key, robot_free_s=robot_s) for key, robot_s in (("a", 3.0), ("b", 4.0))]
    plan = Timely().plan(0.0, pool, STEP, tight(0))
    assert not plan
    assert 2.5 < plan.wake_s < 3.0
    plan = Timely().plan(plan.wake_s, pool, STEP, tight(0))
    assert plan.keys == {"a"}
    assert plan.evictable == ("b",)


def test_for_a_running_one_that_outgrew_all_memory_no_time_is_worth_waiting_for() -> None:
    grown = running("g", to_compute=1, context=300)
    plan = Timely(lead_s=0.5).plan(0.0, [grown, suspended("s", 9.0, context=0)], STEP, tight(0))
    assert not plan
    assert plan.wake_s == math.inf


def test_two_plans_that_do_not_fit_together_do_not_push_each_other_out_at_every_segment() -> None:
    scene = served(Timely(), MOVES, requests=2, kv_tokens=260)
    plain = served(PlainTimely(), MOVES, requests=2, kv_tokens=260)
    prompt_tokens = sum(r.prompt_tokens for r in scene.sink.results.values())
    own_tokens = prompt_tokens - 2 * scene.prefix_tokens
    assert plain.loop.stats.recomputed_tokens > 8 * own_tokens
    # The second takes the first one's memory once, for its first segment.
    assert scene.loop.stats.recomputed_tokens <= own_tokens
    waited_s = {r.request_id: r.waiting_s for r in scene.sink.results.values()}
    plain_s = {r.request_id: r.waiting_s for r in plain.sink.results.values()}
    assert waited_s == pytest.approx(plain_s, abs=0.05)


@pytest.mark.parametrize("policy", [Timely, FcfsSegments, Edf])
@pytest.mark.parametrize("plan", [MOVES, INSTANT])
@pytest.mark.parametrize("lead_s", [0.5, math.inf])
@pytest.mark.parametrize(("requests", "kv_tokens"), [(2, 260), (5, 230), (12, 600)])
def test_under_pressure_all_finish_and_nothing_is_computed_more_than_once_a_segment(
    policy: type[Timely], plan: str, lead_s: float, requests: int, kv_tokens: int
) -> None:
    scene = served(policy(lead_s=lead_s), plan, requests, kv_tokens)
    for result in scene.sink.results.values():
        longest = result.prompt_tokens - scene.prefix_tokens + result.generated_tokens
        assert result.recomputed_tokens <= result.segments * longest
