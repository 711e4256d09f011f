"""First come, first served: of all requests, as stock engines do, or of the highest class."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import cast

from timely_llm.core.generation import Generation, State
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.request import PlanRequest, StreamRequest
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Explains
from timely_llm.policies.packing import pack
from timely_llm.policies.slice import REAL_TIME_UTILITY
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


@dataclass(eq=False)
class StrictPriority(Explains):
    """Requests of the highest class first, by arrival within a class, at each step anew.

    The baseline of the simulator inference-sim (BLIS 2026): a static weight for each class, by
    arrival within a class, and a waiting request that takes the row of a request of a lower class.
    BLIS preempts at most three requests a step and computes a preempted request anew. Here a step
    preempts as many as it must, and a preempted sequence keeps its KV while there is memory: the
    baseline is the stronger for it. Memory is taken from the lowest class first, and in a class
    from the latest arrival. A low class waits for as long as higher ones fill the batch.

    The weight of a stream is its own. A plan weighs 100 times the worth of its first response, as
    in the policy `slice`: an urgent plan 200, a normal plan and a real-time task 100, a
    conversation 1.

    Attributes:
        rows: most generations in a step (8 in the harness of Ling et al. 2024).
    """

    rows: int = 8
    whole_plans = False

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the generations of the highest classes, as many as fit."""
        order = sorted(generations, key=_rank)
        why: dict[str, Reason] | None = None
        if self.explain:
            why = {g.key: Reason(Cause.PRIORITY, class_weight(g)) for g in order}
        plan = pack(order, generations, capacity, self.rows, why)
        if len(plan.evictable) < 2:
            return plan
        places = {generation.key: place for place, generation in enumerate(order)}
        last_first = tuple(sorted(plan.evictable, key=places.__getitem__, reverse=True))
        return replace(plan, evictable=last_first)


def class_weight(generation: Generation) -> float:
    """Return the weight of a request's class, which is the same for all of its life."""
    request = generation.request
    if isinstance(request, PlanRequest):
        return REAL_TIME_UTILITY * request.time_utility.beta
    return cast(StreamRequest, request).weight


def _rank(generation: Generation) -> tuple[float, float]:
    return -class_weight(generation), generation.arrival_s
