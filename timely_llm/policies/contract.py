"""The contract of policies: what the serving loop calls before each step."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from timely_llm.core.generation import Generation
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.step_time import StepTime


class Policy(Protocol):
    """Decides which generations take part in the next step. It has no clock, no I/O, no engine.

    The serving loop calls `plan` from one thread, once a turn; only generations that a step can
    serve are passed; while the server drains, `stream` decides. A policy may keep state between
    calls. It must not change a generation.

    Three attributes are optional. With `sees_in_flight` true, `plan` also gets generations that
    wait for a step in flight (`to_compute` 0). With `counts_steps` true, the policy advances one
    step per call, such as a column of a cycle; `MicroBatches` then calls it again only after all
    entries of its last plan were in a step. With `bounds_batches` true, it bounds the batch of a
    step by a rule of its own, so that its steps are not cut into micro-batches unless that is asked
    for.
    """

    whole_plans: bool
    """Whether a plan is delivered as one segment when it is complete, as by continuous batching."""

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the plan of the next step; an empty plan lets the engine rest.

        Args:
            now: the time on the loop's clock, seconds.
            generations: the generations that can take part, in order of arrival.
            step_time: predicted seconds of steps.
            capacity: limits of the step.
        """
        ...


class Explains:
    """Base of policies that can give reasons.

    Attributes:
        explain: whether each plan carries a reason for every generation that it was given. Off, it
            costs nothing.
    """

    explain = False


def ask_for_reasons(policy: Policy) -> bool:
    """Make a policy explain its plans from now on; return whether it can."""
    if not hasattr(policy, "explain"):
        return False
    policy.explain = True
    return True
