"""Plans that wait until their robots have executed what they have."""

from __future__ import annotations

import math

from timely_llm.core.request import Result
from timely_llm.dispatch.front.delivered.plan import DeliveredPlan

ANSWER_S = 60.0
"""Seconds in which a robot has to report what it executed: from its predicted end, and its last
report."""


class Executions:
    """Plans of robots that are not free.

    A server makes the rest of a held plan, and its segments are held. An alone plan has no server:
    it waits for a report, or its server has ended it with a result.
    """

    def __init__(self) -> None:
        self._held: dict[str, DeliveredPlan] = {}
        self._alone: dict[str, DeliveredPlan] = {}
        self._results: dict[str, Result] = {}

    @property
    def wake_s(self) -> float:
        """When a robot is free, or has to have reported."""
        free_s = (one.free_s for one in self._held.values() if not one.waiting.plan.closed_loop)
        return min(*free_s, *map(self._ends_s, self._alone), math.inf, math.inf)

    def hold(self, plan: DeliveredPlan) -> None:
        """Add a plan that a server goes on with."""
        self._held[plan.waiting.key] = plan

    def leave(self, plan: DeliveredPlan, result: Result | None = None) -> None:
        """Add a plan without a server; with a result: its server has ended it."""
        key = plan.waiting.key
        self._held.pop(key, None)
        self._alone[key] = plan
        if result is not None:
            self._results[key] = result

    def holds(self, request_id: str) -> bool:
        """Return whether a plan is held."""
        return request_id in self._held

    def alone(self, request_id: str) -> bool:
        """Return whether a plan has no server, because its robot executes it."""
        return request_id in self._alone

    def result(self, request_id: str) -> Result | None:
        """Return the result with which a plan's server has ended it."""
        return self._results.get(request_id)

    def drop(self, request_id: str) -> None:
        """Forget a plan."""
        for plans in (self._held, self._alone, self._results):
            plans.pop(request_id, None)

    def due(self, now: float) -> list[str]:
        """Return the plans with robots that are free, or that should have reported."""
        free = [key for key, one in self._held.items() if one.is_free(now)]
        return free + [key for key in self._alone if self._ends_s(key) <= now]

    def _ends_s(self, key: str) -> float:
        plan = self._alone[key]
        if key in self._results and not plan.waiting.plan.closed_loop:
            return plan.free_s
        return max(plan.free_s, plan.heard_s) + ANSWER_S
