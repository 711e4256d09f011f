"""TimelyLLM's scheduler (paper 001 §4.2-4.4)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from timely_llm.core.generation import (
    Generation,
    PlanGeneration,
    State,
    StreamGeneration,
    by_kind,
)
from timely_llm.policies.contract import Capacity, StepPlan
from timely_llm.policies.memory import Memory
from timely_llm.policies.packing import pack
from timely_llm.policies.segment_length import SegmentLength
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.worst_case import WorstCase


@dataclass(eq=False)
class Timely:
    """Priority queue by potential utility density, batch bounded by a worst-case check.

    A generation that reached a boundary goes back to the queue; before each step the queue's
    priorities are computed anew and the best one joins the running batch, if the memory can hold
    it and the most urgent running generation still makes its zero point then.

    Attributes:
        rows: most generations in the batch (8 in the paper's harness).
        admissions: most generations that join at one step (1 in the paper's harness).
        segment_tokens: the longest segment, for the worst case (10 in paper 001 §7.1).
        mean_segment_tokens: the mean one, until segments were seen; with the time of a step it
            makes G, the time to generate a segment (at the paper's 21.8 ms a token, its 90 ms).
        prior_segments: how many seen segments that belief outweighs; infinite: G is not learned.
        least_slack_s: floor of L, the slack that divides the priority, seconds.
        lead_s: a suspended generation returns to the queue this long before its robot will be
            idle; infinite lets it run ahead whenever there is room.
        adaptive: whether the worst-case check bounds the batch, or `rows` alone (paper 001 §7.3.1).
    """

    rows: int = 8
    admissions: int = 1
    segment_tokens: int = 10
    mean_segment_tokens: float = 4.0
    prior_segments: float = 20.0
    least_slack_s: float = 0.01
    lead_s: float = math.inf
    adaptive: bool = True
    whole_plans = False

    def __post_init__(self) -> None:
        self.segment_length = SegmentLength(self.mean_segment_tokens, self.prior_segments)

    def priority(self, generation: PlanGeneration, now: float, segment_s: float) -> float:
        """Return Eq. 4: the utility it would earn if started now, over G times its slack L.

        A utility that is not positive is the priority itself: Eq. 4 would turn a negative one over
        a negative slack into a positive priority. So of two that are late, the one that is less
        late comes first, and whoever is very late waits until the load is lower: the paper
        maximises the sum of utilities (Eq. 3) and promises no fairness; its released code drops
        queued requests of no more worth, and so can a server. L is the time until the segment is
        due.

        Args:
            generation: one of the queue.
            now: the time, seconds.
            segment_s: G, seconds to generate a segment.
        """
        time_utility = generation.request.time_utility
        if generation.segments:
            due_s = generation.robot_free_s
            utility = time_utility.later_value(now + segment_s - due_s)
        else:
            due_s = generation.arrival_s + time_utility.ert_s
            utility = time_utility.value(now + segment_s - generation.arrival_s)
        if utility <= 0:
            return utility
        return utility / (segment_s * max(due_s - now, self.least_slack_s))

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the running batch and who may join it; streams take the rows that are left."""
        running: list[PlanGeneration] = []
        queue: list[PlanGeneration] = []
        plans, streams = by_kind(generations)
        resting: list[Generation] = [*streams]
        wake_s = math.inf
        for generation in plans:
            if generation.state is State.RUNNING:
                running.append(generation)
                continue
            resting.append(generation)
            # A new request is in the queue at once, a suspended one when its robot needs it soon.
            resume_s = generation.robot_free_s - self.lead_s if generation.segments else -math.inf
            if resume_s <= now:
                queue.append(generation)
            else:
                wake_s = min(wake_s, resume_s)
        if queue and len(running) < self.rows:
            segment_s = self.segment_length.mean_tokens * step_time.predict_s(rows=1)
            queue.sort(key=lambda g: self.priority(g, now, segment_s), reverse=True)
            memory = Memory(running, resting, capacity, step_time, self.segment_tokens)
            self._fill(running, queue, memory, now, step_time)
            if not running:
                wake_s = min(wake_s, memory.next_start_s(queue, now))
        batch: list[Generation] = [*running]
        if streams:
            batch += self._best_effort(streams, running, now, step_time)
        plan = pack(batch, generations, capacity, self.rows)
        if batch and not plan:
            wake_s = math.inf  # it outgrew all the memory there is: time does not help
        self.segment_length.watch(running)
        return StepPlan(plan.entries, plan.evictable, wake_s)

    def _fill(
        self,
        running: list[PlanGeneration],
        queue: Sequence[PlanGeneration],
        memory: Memory,
        now: float,
        step_time: StepTime,
    ) -> None:
        """Let the first of the queue that the memory can hold join the batch, if they may."""
        fitting = (g for g in queue if memory.has_room(g, now))
        bound = WorstCase(running, now, step_time, self.segment_tokens)
        for candidate in islice(fitting, self.admissions):
            if len(running) < self.rows and (not self.adaptive or bound.allows(candidate)):
                running.append(candidate)
                bound.add(candidate)
                memory.promise(candidate)
        if not running:
            running += islice((g for g in queue if memory.has_room_alone(g, now)), 1)

    def _best_effort(
        self,
        streams: Sequence[StreamGeneration],
        running: Sequence[PlanGeneration],
        now: float,
        step_time: StepTime,
    ) -> list[StreamGeneration]:
        """Return the streams that the running plans can afford, first come, first served."""
        joined: list[StreamGeneration] = []
        bound = WorstCase(running, now, step_time, self.segment_tokens)
        for stream in sorted(streams, key=attrgetter("arrival_s")):
            full = len(running) + len(joined) >= self.rows
            if full or (self.adaptive and not bound.allows(stream)):
                break
            joined.append(stream)
            bound.add(stream)
        return joined
