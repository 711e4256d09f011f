"""The contract for policies: single decisions, whatever generations there are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from timely_llm.conformance.cases import for_all
from timely_llm.conformance.check import expect, expect_same
from timely_llm.conformance.policies.bench import POLICY_CHECKS, PolicyBench, ask
from timely_llm.conformance.policies.generations import (
    CHEAP_ROWS,
    capacities,
    described,
    pools,
    step_times,
    times,
)
from timely_llm.core.generation import Generation
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import ask_for_reasons
from timely_llm.policies.step_time import StepTime

POOLS = 25
"""Random pools of each check."""
LATER_S = (0.0, 0.1, 2.0)
"""When a policy is asked again, seconds after the first time."""
check = POLICY_CHECKS.check


@check
def whole_plans(bench: PolicyBench) -> None:
    """The attribute whole_plans says whether plans are delivered only when they are complete."""
    policy = bench.make()
    expect(hasattr(policy, "whole_plans"), "the policy has no attribute whole_plans")
    value = policy.whole_plans
    expect(isinstance(value, bool), f"whole_plans is {value!r}, not True or False")


@check
def an_empty_pool(bench: PolicyBench) -> None:
    """Without generations the plan is empty."""
    plan = ask(bench.make(), 0.0, [], CHEAP_ROWS, Capacity(1000, 8, 512))
    expect_same("entries", plan.entries, ())


@check
def fits_the_engine(bench: PolicyBench) -> None:
    """A plan has no more rows, tokens and KV than the engine can take."""

    def fits(pool: list[Generation], capacity: Capacity, now: float, step_time: StepTime) -> None:
        policy = bench.make()
        for later_s in LATER_S:
            plan = ask(policy, now + later_s, pool, step_time, capacity)
            _expect_fit(plan, pool, capacity)

    _for_all_pools(bench, fits)


def _expect_fit(plan: StepPlan, pool: list[Generation], capacity: Capacity) -> None:
    by_key = {g.key: g for g in pool}
    rows, planned = len(plan.entries), sum(tokens for _, tokens in plan.entries)
    expect(rows == len(plan.keys), f"a key is there twice: {plan.entries}")
    expect(rows <= capacity.max_rows, f"rows planned: {rows}, max_rows: {capacity.max_rows}")
    for key, tokens in plan.entries:
        most = by_key[key].to_compute
        expect(1 <= tokens <= most, f"tokens planned of {key}: {tokens}, to_compute: {most}")
    most = capacity.max_step_tokens
    expect(planned <= most, f"tokens planned: {planned}, max_step_tokens: {most}")
    freed = sum(by_key[key].kv_tokens for key in plan.evictable)
    expect(
        planned <= capacity.free_tokens + freed,
        f"tokens planned: {planned}, free_tokens: {capacity.free_tokens}, tokens of the evictable"
        f" sequences: {freed}",
    )


@check
def evicts_no_part_of_the_step(bench: PolicyBench) -> None:
    """A sequence that takes part in a step is not evictable in it."""

    def disjoint(
        pool: list[Generation], capacity: Capacity, now: float, step_time: StepTime
    ) -> None:
        plan = ask(bench.make(), now, pool, step_time, capacity)
        both = sorted(plan.keys & set(plan.evictable))
        expect(not both, f"{both} take part and are evictable")

    _for_all_pools(bench, disjoint)


@check
def changes_no_generation(bench: PolicyBench) -> None:
    """A policy leaves the generations as they are."""

    def unchanged(
        pool: list[Generation], capacity: Capacity, now: float, step_time: StepTime
    ) -> None:
        keys, before = [g.key for g in pool], [_values(g) for g in pool]
        ask(bench.make(), now, pool, step_time, capacity)
        expect_same("keys of the pool", [g.key for g in pool], keys)
        for generation, was in zip(pool, before, strict=True):
            for name, value in _values(generation).items():
                expect_same(f"{generation.key}.{name} after plan", value, was[name])

    _for_all_pools(bench, unchanged)


def _values(generation: Generation) -> dict[str, str]:
    """Return the text of each attribute."""
    return {name: repr(value) for name, value in vars(generation).items()}


@check
def never_stuck(bench: PolicyBench) -> None:
    """If every generation fits the engine, one goes on or the plan says when to ask again."""

    def goes_on(
        pool: list[Generation], capacity: Capacity, now: float, step_time: StepTime
    ) -> None:
        if not pool:
            return
        resting = sum(g.kv_tokens for g in pool)
        needed = max(g.to_compute + g.kv_tokens for g in pool)
        tight = replace(capacity, free_tokens=max(needed - resting, 0))
        roomy = replace(capacity, free_tokens=max(needed - resting, capacity.free_tokens))
        for given in (tight, roomy):
            policy = bench.make()
            for later_s in LATER_S:
                plan = ask(policy, now + later_s, pool, step_time, given)
                expect(
                    bool(plan) or plan.wake_s < math.inf,
                    f"with free_tokens {given.free_tokens} the plan is empty and wake_s is"
                    " infinite: nothing would ever go on",
                )

    _for_all_pools(bench, goes_on)


@check
def asks_again_later(bench: PolicyBench) -> None:
    """wake_s lies after now."""

    def later(pool: list[Generation], capacity: Capacity, now: float, step_time: StepTime) -> None:
        policy = bench.make()
        for later_s in LATER_S:
            plan = ask(policy, now + later_s, pool, step_time, capacity)
            expect(
                plan.wake_s > now + later_s,
                f"at {now + later_s:g} wake_s is {plan.wake_s:g}",
            )

    _for_all_pools(bench, later)


@check
def the_same_answer(bench: PolicyBench) -> None:
    """Two new policies that are asked the same give the same plans: no clock, no chance."""

    def same(pool: list[Generation], capacity: Capacity, now: float, step_time: StepTime) -> None:
        one, other = bench.make(), bench.make()
        for later_s in LATER_S:
            plan = ask(one, now + later_s, pool, step_time, capacity)
            again = ask(other, now + later_s, pool, step_time, capacity)
            expect_same(f"the second policy's plan at {now + later_s:g}", again, plan)

    _for_all_pools(bench, same)


@check
def says_why(bench: PolicyBench) -> None:
    """A policy that can explain gives each generation one reason, and plans the same."""

    def explained(
        pool: list[Generation], capacity: Capacity, now: float, step_time: StepTime
    ) -> None:
        silent, policy = bench.make(), bench.make()
        if not ask_for_reasons(policy):
            return
        for later_s in LATER_S:
            plan = ask(silent, now + later_s, pool, step_time, capacity)
            said = ask(policy, now + later_s, pool, step_time, capacity)
            expect_same("reasons of a policy that was not asked for them", plan.reasons, ())
            expect_same(
                f"the plan with reasons at {now + later_s:g}", replace(said, reasons=()), plan
            )
            named = sorted(key for key, _ in said.reasons)
            expect_same("keys of the reasons", named, sorted(g.key for g in pool))
            joined = sorted(key for key, reason in said.reasons if reason.cause.joined)
            expect_same("keys with a reason to join", joined, sorted(said.keys))

    _for_all_pools(bench, explained)


def _for_all_pools(bench: PolicyBench, body: Callable[..., None]) -> None:
    for_all(
        body, bench.seed, POOLS, described,
        pool=pools, capacity=capacities, now=times, step_time=step_times,
    )  # fmt: skip
