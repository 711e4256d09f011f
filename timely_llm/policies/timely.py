"""TimelyLLM's scheduler (Ling et al. 2024, §4.2-4.4)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
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
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Explains
from timely_llm.policies.packing import Memory, pack
from timely_llm.policies.step_time import StepTime


class WorstCase:
    """Worst-case check of a batch: the plan with the first zero point must still make it.

    The check assumes the longest segment for that plan. A plan past its zero point has nothing left
    to lose and bounds no batch.

    Args:
        batch: generations of the batch so far.
        now: start of the step, seconds.
        step_time: predicted seconds of steps.
        segment_tokens: tokens of the longest segment.
    """

    def __init__(
        self,
        batch: Iterable[Generation],
        now: float,
        step_time: StepTime,
        segment_tokens: int,
    ) -> None:
        self._now = now
        self._step_time = step_time
        self._segment_tokens = segment_tokens
        self._zero_s = math.inf
        self._left = 1
        self._rows = self._prefill = self._context = 0
        for generation in batch:
            self.add(generation)

    def add(self, generation: Generation) -> None:
        """Add a generation to the batch."""
        self._rows += 1
        self._context += generation.context_tokens
        if generation.to_compute > 1:
            self._prefill += generation.to_compute
        if isinstance(generation, PlanGeneration):
            zero_s = generation.zero_s
            if self._now < zero_s < self._zero_s:
                self._zero_s = zero_s
                self._left = max(self._segment_tokens - generation.segment_tokens, 1)

    @property
    def refusal(self) -> Reason:
        """Why `allows` is false: the time that the most urgent plan has."""
        return Reason(Cause.WORST_CASE, self._zero_s - self._now)

    def allows(self, candidate: Generation) -> bool:
        """Return whether the batch can take one more generation."""
        if self._zero_s == math.inf:
            return True
        context = self._context + candidate.context_tokens
        prefill = self._prefill + (candidate.to_compute if candidate.to_compute > 1 else 0)
        first_s = self._step_time.predict_s(self._rows + 1, prefill, context)
        later_s = self._step_time.predict_s(self._rows + 1, 0, context + prefill)
        return self._now + first_s + (self._left - 1) * later_s <= self._zero_s


_WINDOW = 500


class MeanSegmentLength:
    """The mean tokens of a segment.

    Times the seconds of a step it is G of Ling et al. 2024, Eq. 4, "the average generation time
    calculated from profiling data". Here the segments since the start replace the profile.

    Args:
        mean_tokens: the mean before any segment was seen.
        weight: weight of that mean, in segments; infinite: nothing is learned.

    Attributes:
        mean_tokens: the mean so far; beyond 500 segments the newest count more.
    """

    def __init__(self, mean_tokens: float, weight: float = 20.0) -> None:
        self.mean_tokens = mean_tokens
        self._weight = weight
        self._most = max(weight, _WINDOW)
        self._watched: list[tuple[PlanGeneration, int, int]] = []

    def observe(self, tokens: int, segments: int = 1) -> None:
        """Learn from `segments` segments with `tokens` tokens together."""
        self._weight = min(self._weight + segments, self._most)
        self.mean_tokens += (tokens - segments * self.mean_tokens) / self._weight

    def watch(self, batch: Iterable[PlanGeneration]) -> None:
        """Learn from the segments of the last batch, and remember the state of this one.

        Only generations of a batch make segments, so only these are watched.
        """
        for generation, segments, tokens in self._watched:
            made = len(generation.segments) - segments
            if made > 0 and (said := _tokens(generation) - tokens) > 0:
                self.observe(said, made)
        self._watched = [(g, len(g.segments), _tokens(g)) for g in batch]


def _tokens(generation: PlanGeneration) -> int:
    """Return the tokens of all segments so far; the end of a plan belongs to the last one."""
    tokens = len(generation.token_ids)
    return tokens if generation.state is State.ENDED else tokens - generation.segment_tokens


@dataclass(eq=False)
class Timely(Explains):
    """Priority queue by potential utility density, batch bounded by a worst-case check.

    A generation at a boundary returns to the queue. Before each step the policy computes all
    priorities of the queue. The best generation joins the running batch if the memory can hold it,
    and if the most urgent running generation still makes its zero point then.

    Attributes:
        rows: most generations in the batch (8 in the paper's harness).
        admissions: most generations that join at one step (1 in the paper's harness).
        segment_tokens: tokens of the longest segment, for the worst case (10 in Ling et al. 2024,
            §7.1).
        mean_segment_tokens: tokens of the mean segment before any was seen. Times the seconds of a
            step it is G, the time to generate a segment (90 ms at the paper's 21.8 ms a token).
        prior_segments: weight of `mean_segment_tokens`, in seen segments; infinite: G is not
            learned.
        least_slack_s: least value of L, the slack that divides the priority, seconds.
        lead_s: time before the robot's idle time at which a suspended generation returns to the
            queue, seconds; infinite: at once, so that it runs ahead.
        adaptive: whether the worst-case check bounds the batch, or `rows` alone (Ling et al. 2024,
            §7.3.1).
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
        self.segment_length = MeanSegmentLength(self.mean_segment_tokens, self.prior_segments)

    def priority(self, generation: PlanGeneration, now: float, segment_s: float) -> float:
        """Return Eq. 4: the utility of a start now, over G times the slack L.

        L is the time until the segment is due. A utility that is not positive is the priority
        itself, since Eq. 4 would turn a negative utility over a negative slack into a positive
        priority. So a less late plan goes before a later one, and a very late plan waits until the
        load falls: the paper maximises the sum of utilities (Eq. 3) and promises no fairness. Its
        released code drops queued requests that are worth nothing; a server can do the same.

        Args:
            generation: a generation of the queue.
            now: the time, seconds.
            segment_s: G, seconds to generate a segment.
        """
        utility = generation.utility_at(now + segment_s)
        if utility <= 0:
            return utility
        return utility / (segment_s * max(generation.due_s - now, self.least_slack_s))

    def joins(self, generation: PlanGeneration, now: float, segment_s: float) -> Reason:
        """Return why a generation of the queue joins: `priority` in words."""
        return Reason(Cause.PRIORITY, self.priority(generation, now, segment_s))

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the running batch with the plans that join it; streams take the rows left."""
        running: list[PlanGeneration] = []
        queue: list[PlanGeneration] = []
        plans, streams = by_kind(generations)
        resting: list[Generation] = [*streams]
        wake_s = math.inf
        why: dict[str, Reason] | None = {} if self.explain else None
        for generation in plans:
            if generation.state is State.RUNNING:
                running.append(generation)
                continue
            resting.append(generation)
            # A new request queues at once, a suspended one shortly before its robot is idle.
            resume_s = generation.robot_free_s - self.lead_s if generation.segments else -math.inf
            if resume_s <= now:
                queue.append(generation)
            else:
                wake_s = min(wake_s, resume_s)
                if why is not None:
                    why[generation.key] = Reason(Cause.NOT_DUE, generation.robot_free_s - now)
        if why is not None:
            why |= {g.key: Reason(Cause.RUNS) for g in running}
            why |= {g.key: Reason(Cause.ROWS, self.rows) for g in queue}
        if queue and len(running) < self.rows:
            segment_s = self.segment_length.mean_tokens * step_time.predict_s(rows=1)
            queue.sort(key=lambda g: self.priority(g, now, segment_s), reverse=True)
            memory = Memory(running, resting, capacity, step_time, self.segment_tokens)
            self._fill(running, queue, memory, now, step_time, why)
            if not running:
                wake_s = min(wake_s, memory.next_start_s(queue, now))
        batch: list[Generation] = [*running]
        if streams:
            batch += self._best_effort(streams, running, now, step_time, why)
        plan = pack(batch, generations, capacity, self.rows, why)
        if batch and not plan:
            wake_s = math.inf  # the batch needs more than all memory: waiting does not help
        self.segment_length.watch(running)
        return StepPlan(plan.entries, plan.evictable, wake_s, plan.reasons)

    def _fill(
        self,
        running: list[PlanGeneration],
        queue: Sequence[PlanGeneration],
        memory: Memory,
        now: float,
        step_time: StepTime,
        why: dict[str, Reason] | None,
    ) -> None:
        """Add the first plans of the queue that fit into memory and pass the worst-case check."""
        if why is not None:
            segment_s = self.segment_length.mean_tokens * step_time.predict_s(rows=1)
            why |= {g.key: Reason(Cause.ADMISSIONS, self.admissions) for g in queue}
        bound = WorstCase(running, now, step_time, self.segment_tokens)
        tried = 0
        for candidate in queue:
            if tried == self.admissions:
                break
            if not memory.has_room(candidate, now):
                if why is not None:
                    why[candidate.key] = memory.refusal(candidate)
                continue
            tried += 1
            if len(running) < self.rows and (not self.adaptive or bound.allows(candidate)):
                running.append(candidate)
                bound.add(candidate)
                memory.promise(candidate)
                if why is not None:
                    why[candidate.key] = self.joins(candidate, now, segment_s)
            elif why is not None:
                full = len(running) >= self.rows
                why[candidate.key] = Reason(Cause.ROWS, self.rows) if full else bound.refusal
        if not running:
            running += islice((g for g in queue if memory.has_room_alone(g, now)), 1)
            if why is not None:
                why |= {g.key: Reason(Cause.ALONE) for g in running}

    def _best_effort(
        self,
        streams: Sequence[StreamGeneration],
        running: Sequence[PlanGeneration],
        now: float,
        step_time: StepTime,
        why: dict[str, Reason] | None,
    ) -> list[StreamGeneration]:
        """Return the streams that pass the worst-case check, by arrival."""
        joined: list[StreamGeneration] = []
        bound = WorstCase(running, now, step_time, self.segment_tokens)
        line = sorted(streams, key=attrgetter("arrival_s"))
        for stream in line:
            full = len(running) + len(joined) >= self.rows
            if full or (self.adaptive and not bound.allows(stream)):
                if why is not None:
                    refusal = Reason(Cause.ROWS, self.rows) if full else bound.refusal
                    why |= {g.key: refusal for g in line[len(joined) :]}
                break
            joined.append(stream)
            bound.add(stream)
        if why is not None:
            why |= {g.key: Reason(Cause.ARRIVAL, place) for place, g in enumerate(joined)}
        return joined


@dataclass(eq=False)
class FcfsSegments(Timely):
    """First come, first served, one segment at a time."""

    def priority(self, generation: PlanGeneration, now: float, segment_s: float) -> float:
        """Return a priority that falls with the arrival."""
        return -generation.arrival_s

    def joins(self, generation: PlanGeneration, now: float, segment_s: float) -> Reason:
        """Return that it arrived first."""
        return Reason(Cause.ARRIVAL)


@dataclass(eq=False)
class Edf(Timely):
    """Earliest deadline first: the deadline is the expected response time."""

    def priority(self, generation: PlanGeneration, now: float, segment_s: float) -> float:
        """Return a priority that falls with the due time of the first segment."""
        return -(generation.asked_s + generation.time_utility.ert_s)

    def joins(self, generation: PlanGeneration, now: float, segment_s: float) -> Reason:
        """Return its deadline."""
        return Reason(Cause.DEADLINE, generation.asked_s + generation.time_utility.ert_s - now)
