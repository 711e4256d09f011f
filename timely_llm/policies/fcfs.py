"""First come, first served: what stock engines do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from operator import attrgetter

from timely_llm.core.generation import Generation, State
from timely_llm.policies.contract import Capacity, StepPlan
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime


@dataclass(eq=False)
class Fcfs:
    """Continuous batching (Orca, vLLM): everyone at once, in order of arrival, whole plans.

    Attributes:
        rows: most generations in a step (8 in paper 001's harness); None: what the engine takes.
        admissions: most that join at one step (1 in paper 001's harness); None: everyone.
    """

    rows: int | None = None
    admissions: int | None = None
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
        if self.admissions is not None:
            waiting = [g for g in order if g.state is State.QUEUED]
            out = {g.key for g in waiting[self.admissions :]}
            order = [g for g in order if g.key not in out]
        return pack(order, generations, capacity, self.rows)


class Stream(Fcfs):
    """The same, but segments go out as they come (vLLM-stream of paper 001 §7.1)."""

    whole_plans = False


class Orca(Stream):
    """Continuous batching as paper 000 has it beside SLICE: everyone has the same rate.

    Orca itself reserves memory for the longest answer of each; here it gets the same memory, prompt
    caching and limits as every other policy.
    """
