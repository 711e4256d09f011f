"""Policies that break their contract are found out, with the smallest case."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection
from typing import ClassVar

import pytest

from timely_llm.conformance.check import Broken, Check
from timely_llm.conformance.policies import POLICY_CHECKS, PolicyBench
from timely_llm.core.generation import Generation
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Policy
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime

CHECKS = {check.name: check for check in POLICY_CHECKS}


class InOrder:
    """Keeps the contract."""

    whole_plans = False

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        return pack(self.order(generations), generations, capacity)

    def order(self, generations: Collection[Generation]) -> list[Generation]:
        return sorted(generations, key=lambda g: g.due_s)


class AllAtOnce(InOrder):
    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        return StepPlan(tuple((g.key, g.to_compute) for g in generations))


class TheMostUrgent(InOrder):
    def order(self, generations: Collection[Generation]) -> list[Generation]:
        return [min(generations, key=lambda g: g.due_s)]


class OneOrNone(InOrder):
    """Forgets that resting generations have memory to give."""

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        return super().plan(now, self.order(generations)[:1], step_time, capacity)


class ByChance(InOrder):
    def order(self, generations: Collection[Generation]) -> list[Generation]:
        return random.SystemRandom().sample([*generations], len(generations))


class Counts(InOrder):
    def order(self, generations: Collection[Generation]) -> list[Generation]:
        for generation in generations:
            generation.max_tokens += 1
        return super().order(generations)


class Remembers(InOrder):
    def __init__(self) -> None:
        self.seen: dict[str, float] = {}

    def order(self, generations: Collection[Generation]) -> list[Generation]:
        self.seen |= {generation.key: generation.due_s for generation in generations}
        return super().order(generations)


class Invents(InOrder):
    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        return StepPlan((("unknown", 1),))


class Sleeps(InOrder):
    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        return StepPlan(wake_s=now)


class GivesUpItsOwn(InOrder):
    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        plan = super().plan(now, generations, step_time, capacity)
        return StepPlan(plan.entries, tuple(g.key for g in generations))


class Answers(InOrder):
    plan: ClassVar[Callable[..., str]] = lambda *asked: "all of them"  # type: ignore[assignment]


class Tires(InOrder):
    """Rests for longer and longer, by the clock."""

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        if generations and now > 1e6 and int(now * 10) % 2:
            return StepPlan(wake_s=now + 0.1)
        return super().plan(now, generations, step_time, capacity)


def broken(policy: Callable[[], Policy], name: str) -> Broken:
    with pytest.raises(Broken) as found:
        CHECKS[name](PolicyBench(policy))
    return found.value


@pytest.mark.parametrize("check", [*POLICY_CHECKS], ids=lambda check: check.name)
def test_a_policy_in_order_keeps_every_promise(check: Check[PolicyBench]) -> None:
    check(PolicyBench(InOrder))


@pytest.mark.parametrize(
    ("policy", "name", "happened", "lines"),
    [
        (AllAtOnce, "fits-the-engine", "tokens planned: 1, free_tokens: 0", 4),
        (TheMostUrgent, "fits-the-engine", r"it raises ValueError: .*\(test_policies\.py, line", 4),
        (OneOrNone, "never-stuck", "the plan is empty and wake_s is infinite", 5),
        (Counts, "changes-no-generation", r"0\.max_tokens after plan: '1', expected '0'", 4),
        (Invents, "fits-the-engine", "the plan names 'unknown', which is not in the pool", 4),
        (Sleeps, "asks-again-later", "at 0 wake_s is 0", 4),
        (GivesUpItsOwn, "evicts-no-part-of-the-step", "take part and are evictable", 4),
        (Answers, "fits-the-engine", "plan returns 'all of them', a str, not a StepPlan", 4),
    ],
)
def test_a_broken_promise_comes_with_the_smallest_case(
    policy: Callable[[], Policy], name: str, happened: str, lines: int
) -> None:
    found = broken(policy, name)
    assert re.search(happened, found.happened), found.happened
    assert len(found.case) == lines, found.case
    assert found.case[-2:] == ("now = 0.0", "step time: 0.0218 s for one row, 0.0228 s for 8")


def test_a_policy_that_decides_by_chance_is_found_out() -> None:
    happened = broken(ByChance, "the-same-answer").happened
    assert "the second policy's plan at" in happened or "in one run and not in" in happened


def test_a_request_that_does_not_end_well_is_named() -> None:
    found = broken(AllAtOnce, "everyone-is-served")
    assert "ends with ENGINE_FAILED" in found.happened
    assert found.case[0] == "r0: a stream, asked at 0 s, 'word0'"
    assert found.case[-1].startswith("EngineShape(")


def test_a_policy_that_keeps_what_has_ended_is_found_out() -> None:
    assert "'Remembers.seen': " in broken(Remembers, "forgets-what-ended").happened


def test_a_policy_that_tires_is_found_out() -> None:
    assert "after a year" in broken(Tires, "a-year-later").happened


def test_a_seed_finds_the_same_case() -> None:
    one, other = (broken(AllAtOnce, "everyone-is-served") for _ in range(2))
    assert one.case == other.case
