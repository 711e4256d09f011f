"""What the checks of a policy work with: a new policy for each case, and the kind of its answer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from timely_llm.conformance.check import Suite, clipped, expect
from timely_llm.core.generation import Generation
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Policy
from timely_llm.policies.step_time import StepTime

MakePolicy = Callable[[], Policy]


@dataclass(frozen=True)
class PolicyBench:
    """Makes policies.

    Attributes:
        make: returns a new policy.
        seed: of random cases; None: others in each run.
    """

    make: MakePolicy
    seed: int | None = 0


POLICY_CHECKS: Suite[PolicyBench] = Suite()
"""The contract for policies; the modules `policy_*` add to it."""


def ask(
    policy: Policy,
    now: float,
    pool: Collection[Generation],
    step_time: StepTime,
    capacity: Capacity,
) -> StepPlan:
    """Return a policy's plan, and check that it is one: a `StepPlan` of known sequences."""
    plan = policy.plan(now, pool, step_time, capacity)
    kind = type(plan).__name__
    expect(isinstance(plan, StepPlan), f"plan returns {clipped(plan)}, a {kind}, not a StepPlan")
    known = {generation.key for generation in pool}
    for entry in plan.entries:
        expect(
            isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], int),
            f"the entry {clipped(entry)} is not (key, tokens)",
        )
        expect(entry[0] in known, f"the plan names {entry[0]!r}, which is not in the pool")
    expect(
        all(key in known for key in plan.evictable),
        f"evictable names {sorted(set(plan.evictable) - known)}, which are not in the pool",
    )
    return plan
