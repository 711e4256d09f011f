"""Reasons of step plans: one for each generation of the pool, and the plan stays the same."""

from collections.abc import Collection

import pytest
from hypothesis import given

from test.examples import examples
from test.policies.builders import ROOMY, generation, running, stream, suspended, talking
from timely_llm.conformance.policies.generations import (
    CHEAP_ROWS,
    DEAR_ROWS,
    capacities,
    pools,
    step_times,
    times,
)
from timely_llm.core.generation import Generation
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.slo import Slo, SloClass
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Explains, Policy, ask_for_reasons
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.policies.step_time import StepTime

FAST = SloClass("fast", Slo(tpot_s=0.05))
SLOW = SloClass("slow", Slo(tpot_s=0.4))
OPTIONS: dict[str, dict[str, float]] = {
    "fcfs": {"rows": 4, "admissions": 1},
    "fastserve": {"rows": 4},
    "prio": {"rows": 2},
    "vtc": {"rows": 4},
    "slice": {"fill": True},
    "timely": {"admissions": 2, "lead_s": 0.5},
    "deadline": {"lead_s": 1.0},
}
"""Options beside the default ones, which the conformance checks take."""
MADE = list(OPTIONS.items())


def explaining(name: str, **options: float) -> Policy:
    policy = make_policy(name, **options)
    assert ask_for_reasons(policy)
    return policy


def reasons(
    policy: Policy,
    pool: Collection[Generation],
    now: float = 0.0,
    step_time: StepTime = CHEAP_ROWS,
    capacity: Capacity = ROOMY,
) -> dict[str, Reason]:
    """Return a plan's reasons, which must be there once for each generation and agree with it."""
    plan = policy.plan(now, pool, step_time, capacity)
    keys = [key for key, _ in plan.reasons]
    assert sorted(keys) == sorted(g.key for g in pool)
    assert {key for key, reason in plan.reasons if reason.cause.joined} == plan.keys
    return dict(plan.reasons)


@pytest.mark.parametrize(("name", "options"), MADE)
@given(pool=pools, capacity=capacities, now=times, step_time=step_times)
@examples(20)
def test_each_generation_has_one_reason_that_agrees_with_the_plan(
    name: str,
    options: dict[str, float],
    pool: list[Generation],
    capacity: Capacity,
    now: float,
    step_time: StepTime,
) -> None:
    silent, policy = make_policy(name, **options), explaining(name, **options)
    for later_s in (0.0, 0.1, 2.0):
        at_s = now + later_s
        plan = silent.plan(at_s, pool, step_time, capacity)
        said = policy.plan(at_s, pool, step_time, capacity)
        assert plan.reasons == ()
        assert (said.entries, said.evictable, said.wake_s) == (
            plan.entries, plan.evictable, plan.wake_s,
        )  # fmt: skip
        assert sorted(key for key, _ in said.reasons) == sorted(g.key for g in pool)
        joined = {key for key, reason in said.reasons if reason.cause.joined}
        assert joined == plan.keys


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_asked_in_the_middle_explains_its_next_plan(name: str) -> None:
    policy = make_policy(name)
    pool = [running("a"), suspended("b", 9.0), generation("c"), talking("s"), stream("t")]
    for now in (0.0, 0.02):
        assert policy.plan(now, pool, CHEAP_ROWS, ROOMY).reasons == ()
    ask_for_reasons(policy)
    reasons(policy, pool, 0.04)


def tight(free_tokens: int = 1_000_000, max_step_tokens: int = 512) -> Capacity:
    return Capacity(free_tokens, 256, max_step_tokens)


def test_fcfs_counts_those_before_and_names_the_limit() -> None:
    line = [generation("a", 0.0), generation("b", 1.0), generation("c", 2.0)]
    said = reasons(explaining("fcfs", rows=2), line)
    assert said["a"] == Reason(Cause.ARRIVAL, 0)
    assert said["b"] == Reason(Cause.ARRIVAL, 1)
    assert said["c"] == Reason(Cause.ROWS, 2)
    said = reasons(explaining("fcfs", admissions=1), line)
    assert said["b"] == Reason(Cause.ADMISSIONS, 1)
    said = reasons(explaining("fcfs"), line, capacity=tight(max_step_tokens=110))
    assert said["b"] == Reason(Cause.STEP_TOKENS, 110)


def test_memory_says_how_many_tokens_are_missing() -> None:
    said = reasons(explaining("fcfs"), [generation("a")], capacity=tight(free_tokens=100))
    assert said == {"a": Reason(Cause.MEMORY, 10)}
    # 110 tokens of the prompt and 9 until the first boundary.
    pool = [running("r", segment_tokens=9), generation("a")]
    said = reasons(explaining("timely"), pool, capacity=tight(free_tokens=100))
    assert said["a"] == Reason(Cause.MEMORY, 119 + 1 - 100)


def test_timely_defers_until_a_robot_needs_its_plan() -> None:
    said = reasons(explaining("timely", lead_s=0.5), [suspended("a", 1.7)])
    assert said == {"a": Reason(Cause.NOT_DUE, 1.7)}
    assert str(said["a"]) == "deferred: not due for 1.7 s"


def test_timely_says_which_rule_keeps_a_plan_out() -> None:
    policy = explaining("timely", rows=2)
    said = reasons(policy, [generation("a"), generation("b")])
    assert {reason.cause for reason in said.values()} == {Cause.PRIORITY, Cause.ADMISSIONS}
    said = reasons(policy, [running("a"), running("b"), generation("c")])
    assert said["a"] == Reason(Cause.RUNS)
    assert said["c"] == Reason(Cause.ROWS, 2)
    urgent = running("u")
    late = urgent.zero_s - 0.05
    said = reasons(policy, [urgent, generation("c", late)], late)
    assert said["c"].cause is Cause.WORST_CASE
    assert said["c"].number == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("name", "cause"), [("fcfs-segments", Cause.ARRIVAL), ("edf", Cause.DEADLINE)]
)
def test_relatives_of_timely_name_their_own_order(name: str, cause: Cause) -> None:
    assert reasons(explaining(name), [generation("a")])["a"].cause is cause


def test_fastserve_names_the_queue() -> None:
    said = reasons(explaining("fastserve"), [generation("a")])
    assert said["a"].cause is Cause.QUEUE_LEVEL


def test_slice_names_selection_and_columns() -> None:
    policy = explaining("slice")
    pool = [talking("fast", of_class=FAST), talking("slow", of_class=SLOW)]
    seen = {(key, reasons(policy, pool)[key].cause) for _ in range(30) for key in ("fast", "slow")}
    assert ("slow", Cause.COLUMN) in seen
    assert ("slow", Cause.LATER_COLUMN) in seen
    crowd = [talking(f"s{i}", of_class=FAST) for i in range(40)]
    causes = {r.cause for r in reasons(policy, crowd, 0.0, DEAR_ROWS).values()}
    assert Cause.NOT_SELECTED in causes


def test_timely_slice_defers_streams_that_are_ahead() -> None:
    policy = explaining("timely+slice", credit_tokens=1.0)
    ahead = talking("a", of_class=SLOW, tokens=10)
    said = reasons(policy, [ahead], 0.1)
    assert said == {"a": Reason(Cause.NOT_DUE, ahead.due_s - 0.1)}
    said = reasons(policy, [stream("new"), running("plan")])
    assert said["new"].cause is Cause.TOKEN_DUE
    assert said["plan"].cause is Cause.RUNS


def test_deadline_says_what_is_worth_most() -> None:
    policy = explaining("deadline")
    said = reasons(policy, [running("r"), generation("a")], 0.5)
    assert said["r"].cause is Cause.WORTH_MOST
    assert said["a"].cause in (Cause.WORTH_MOST, Cause.WORTH_LESS)
    assert said["a"].number is not None
    said = reasons(explaining("deadline"), [generation("a", 1.0), stream("s", 1.0)], 1.0)
    assert said["a"] == said["s"]
    assert said["a"].cause is Cause.GATHERS
    assert said["a"].number == pytest.approx(0.002)
    said = reasons(explaining("deadline", lead_s=1.0), [suspended("a", 9.0)])
    assert said == {"a": Reason(Cause.NOT_DUE, 9.0)}
    assert reasons(policy, [suspended("a", 9.0)])["a"] == Reason(Cause.AHEAD, 9.0)


def test_deadline_names_the_rows_where_none_is_left_to_run_ahead() -> None:
    pool = [generation("first", to_compute=1), generation("ahead", to_compute=1, robot_free_s=1.0)]
    for free_tokens in (0, 1000):
        capacity = Capacity(free_tokens, max_rows=1, max_step_tokens=64)
        named = reasons(explaining("deadline"), pool, capacity=capacity)
        assert named["ahead"] == Reason(Cause.ROWS, 1)


def test_deadline_names_rates_that_it_promises_and_those_that_it_cannot() -> None:
    policy = explaining("deadline")
    few = reasons(policy, [talking("a"), talking("b")], 0.05)
    assert {reason.cause for reason in few.values()} <= {Cause.PROMISED, Cause.STEP_TIME}
    crowd = [stream(f"s{i}", of_class=FAST) for i in range(60)]
    causes = {reason.cause for reason in reasons(policy, crowd, 0.0, DEAR_ROWS).values()}
    assert Cause.NOT_PROMISED in causes


def test_a_policy_of_ones_own_gives_no_reasons_until_it_can() -> None:
    class Mine:
        whole_plans = False

        def plan(
            self,
            now: float,
            generations: Collection[Generation],
            step_time: StepTime,
            capacity: Capacity,
        ) -> StepPlan:
            return StepPlan(tuple((g.key, 1) for g in generations))

    class Talkative(Mine, Explains):
        pass

    assert not ask_for_reasons(Mine())
    assert Mine().plan(0.0, [], CHEAP_ROWS, ROOMY).reasons == ()
    assert ask_for_reasons(Talkative())
    assert not Talkative().explain  # each policy is asked for itself
