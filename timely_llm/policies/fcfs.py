"""First come, first served: what stock engines do."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter

from timely_llm.core.generation import Generation
from timely_llm.policies.contract import Capacity, StepPlan
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime


class Fcfs:
    """Continuous batching (Orca, vLLM): everyone at once, in order of arrival, whole plans."""

    whole_plans = True

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return everyone, in order of arrival, as far as the engine can take them."""
        order = sorted(generations, key=attrgetter("arrival_s"))
        return pack(order, generations, capacity)


class Stream(Fcfs):
    """The same, but segments go out as they come (vLLM-stream of paper 001 §7.1)."""

    whole_plans = False
