"""Whether a step plan is one that an engine can be given at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from timely_llm.core.errors import EngineError
from timely_llm.policies.contract import StepPlan


class StepLimits(Protocol):
    """What one step can take: an engine's `Limits` or its `Capacity`."""

    @property
    def max_rows(self) -> int:
        """Most sequences."""
        ...

    @property
    def max_step_tokens(self) -> int:
        """Most tokens."""
        ...


def check_plan(plan: StepPlan, to_compute: Callable[[str], int | None], limits: StepLimits) -> None:
    """Find out whether a plan is within the limits; room for KV is another matter.

    Args:
        plan: the plan.
        to_compute: tells how many tokens of a sequence can be computed, None if it is unknown.
        limits: of a step.

    Raises:
        EngineError: the plan is empty, breaks a limit, or names a sequence that is unknown, twice
            there, or waits for a step in flight.
    """
    if not plan.entries:
        raise EngineError("an empty plan is no step")
    if len(plan.keys) < len(plan.entries):
        raise EngineError("a sequence can take part only once in a step")
    if len(plan.entries) > limits.max_rows:
        raise EngineError(f"a step of {len(plan.entries)} sequences: at most {limits.max_rows} fit")
    total = 0
    for key, tokens in plan.entries:
        left = to_compute(key)
        if left is None:
            raise EngineError(f"the plan names {key!r}, which the engine does not know")
        if left < 1:
            raise EngineError(f"the plan names {key!r}, whose next token is still to come")
        if tokens < 1:
            raise EngineError(f"the plan gives {key!r} {tokens} tokens, at least 1 is needed")
        total += min(tokens, left)
    if total > limits.max_step_tokens:
        raise EngineError(f"a step of {total} tokens: at most {limits.max_step_tokens} fit")
