"""First come, first served, as stock engines do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from operator import attrgetter

from timely_llm.core.generation import Generation, State
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Explains
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime


@dataclass(eq=False)
class Fcfs(Explains):
    """Continuous batching (Yu et al. 2022): every request at once, by arrival, as whole plans.

    Attributes:
        rows: most generations in a step (8 in the harness of Ling et al. 2024); None: the limit of
            the engine.
        admissions: most generations that join at one step (1 in that harness); None: no limit.
        prompts_evict: a generation without KV may evict those that arrived later. In vLLM it waits
            until memory is free, and only one that decodes evicts.
    """

    rows: int | None = None
    admissions: int | None = None
    prompts_evict: bool = True
    whole_plans = True

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return all generations by arrival, as far as the engine can take them."""
        order = sorted(generations, key=attrgetter("arrival_s"))
        why: dict[str, Reason] | None = {} if self.explain else None
        if self.admissions is not None:
            waiting = [g for g in order if g.state is State.QUEUED]
            out = {g.key for g in waiting[self.admissions :]}
            order = [g for g in order if g.key not in out]
            if why is not None:
                why |= dict.fromkeys(out, Reason(Cause.ADMISSIONS, self.admissions))
        if why is not None:
            why |= {g.key: Reason(Cause.ARRIVAL, place) for place, g in enumerate(order)}
        return pack(order, generations, capacity, self.rows, why, prompts_evict=self.prompts_evict)


class Stream(Fcfs):
    """Continuous batching with segments delivered as they come (Ling et al. 2024, §7.1)."""

    whole_plans = False


class Orca(Stream):
    """Continuous batching as the baseline of Zhou et al. 2025: all requests have the same rate.

    Orca itself reserves memory for the longest answer of each request. Here it has the same memory,
    prompt caching and limits as every other policy.
    """
