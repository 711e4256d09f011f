"""TimelyLLM's scheduler (Ling et al. 2024, §4.2-4.4)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
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
from timely_llm.policies.batch_bound import (
    BatchBound,
    BudgetEnd,
    MostUrgent,
    PaperBound,
    SpeedSource,
)
from timely_llm.policies.contract import Explains
from timely_llm.policies.packing import Memory, pack
from timely_llm.policies.sentences import Segmented, SentenceGeneration, Sentences
from timely_llm.policies.step_time import StepTime


class WorstCase:
    """Worst-case check of a batch: its most urgent running segment must still make its budget.

    The check assumes the longest segment for that request; see `BatchBound` for the rule.

    Args:
        batch: generations of the batch so far.
        now: start of the step, seconds.
        step_time: predicted seconds of steps.
        segment_tokens: tokens of the longest segment.
        budget: end of a segment's time budget.
        urgent: which request is the most urgent one.
        token_s: measured seconds of a token; NaN: as predicted for the larger batch.
    """

    def __init__(
        self,
        batch: Iterable[Generation],
        now: float,
        step_time: StepTime,
        segment_tokens: int,
        budget: BudgetEnd = BudgetEnd.ZERO,
        urgent: MostUrgent = MostUrgent.ZERO,
        token_s: float = math.nan,
    ) -> None:
        self._now = now
        self._step_time = step_time
        self._segment_tokens = segment_tokens
        self._budget = budget
        self._urgent = urgent
        self._token_s = token_s
        self._zero_s = math.inf
        self._protected: list[tuple[float, int]] = []  # (end of the budget, tokens left)
        self._rows = self._prefill = self._context = 0
        for generation in batch:
            self.add(generation)

    def add(self, generation: Generation) -> None:
        """Add a generation to the batch."""
        self._rows += 1
        self._context += generation.context_tokens
        if generation.to_compute > 1:
            self._prefill += generation.to_compute
        if not isinstance(generation, PlanGeneration | SentenceGeneration):
            return
        zero_s = generation.zero_s
        end_s = zero_s if self._budget is BudgetEnd.ZERO else generation.due_s
        protected = end_s, max(self._segment_tokens - generation.segment_tokens, 1)
        if self._urgent is MostUrgent.LAXITY:
            self._protected.append(protected)
        elif self._now < zero_s < self._zero_s:
            self._zero_s = zero_s
            self._protected = [protected]

    @property
    def refusal(self) -> Reason:
        """Why `allows` is false: the time that the most urgent request has."""
        end_s = min((end_s for end_s, _ in self._protected), default=math.inf)
        return Reason(Cause.WORST_CASE, end_s - self._now)

    def allows(self, candidate: Generation) -> bool:
        """Return whether the batch can take one more generation."""
        if not self._protected:
            return True
        first_s = later_s = self._token_s
        if math.isnan(later_s):
            context = self._context + candidate.context_tokens
            prefill = self._prefill + (candidate.to_compute if candidate.to_compute > 1 else 0)
            first_s = self._step_time.first_s(self._rows + 1, prefill, context)
            later_s = self._step_time.predict_s(self._rows + 1, 0, context + prefill)
        # Seconds of a token are the same for all: if the least laxity suffices, all others do.
        return all(
            self._now + first_s + (left - 1) * later_s <= end_s for end_s, left in self._protected
        )


_WINDOW = 500
"""Segments beyond which the mean forgets."""


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

    def watch(self, batch: Iterable[Generation]) -> None:
        """Learn from the segments of the last batch, and remember the state of this one.

        Only plans of a batch make segments, so only these are watched.
        """
        for generation, segments, tokens in self._watched:
            made = len(generation.segments) - segments
            if made > 0 and (said := _tokens(generation) - tokens) > 0:
                self.observe(said, made)
        self._watched = [
            (g, len(g.segments), _tokens(g)) for g in batch if isinstance(g, PlanGeneration)
        ]


def _tokens(generation: PlanGeneration) -> int:
    """Return the tokens of all segments so far; the end of a plan belongs to the last one."""
    tokens = len(generation.token_ids)
    return tokens if generation.state is State.ENDED else tokens - generation.segment_tokens


class Slack(StrEnum):
    """How the slack L of Eq. 4 enters the priority."""

    DUE = "due"
    COMPLETION = "completion"
    EXP = "exp"


class QueueOrder(StrEnum):
    """What the priority in the queue is."""

    UTILITY = "utility"
    READING = "reading"


class StreamSegments(StrEnum):
    """What an answer is generated by."""

    TOKENS = "tokens"
    SENTENCES = "sentences"


@dataclass(eq=False)
class Timely(Explains):
    """Priority queue by potential utility density, batch bounded by a worst-case check.

    A generation at a boundary returns to the queue. Before each step the policy computes all
    priorities of the queue. The best generation joins the running batch if the memory can hold it,
    and if the most urgent running generation still makes its time budget then.

    The paper serves robots with the bound of `TimelyLlm`, and chatbots by
    `order=reading:streams=sentences` with the same bound, since §7.1 names no other change. That
    bound is no default: an urgent request has 0.2 s, ten tokens take longer, and so one running
    urgent request lets no other join. `slack=exp` is the formula of the authors' released code.

    Attributes:
        rows: most generations in the batch (8 in the paper's harness).
        admissions: most generations that join at one step (1 in the paper's harness).
        segment_tokens: tokens of the longest segment, for the worst case (10 in Ling et al. 2024,
            §7.1); sentences are longer.
        mean_segment_tokens: tokens of the mean segment before any was seen. Times the seconds of a
            step it is G, the time to generate a segment (90 ms at the paper's 21.8 ms a token).
        prior_segments: weight of `mean_segment_tokens`, in seen segments; infinite: G is not
            learned.
        least_slack_s: least value of L, the slack that divides the priority, seconds; `slack=exp`
            divides by none.
        lead_s: time before the robot's idle time at which a suspended generation returns to the
            queue, seconds; infinite: at once, so that it runs ahead.
        adaptive: whether the worst-case check bounds the batch, or `rows` alone (Ling et al. 2024,
            §7.3.1).
        slack: L of Eq. 4. `completion`: the time that is left at the expected completion, which is
            G before the segment is due (the paper's). `due`: the time until it is due. `exp`
            replaces the division by L with a factor that falls with the slack (the released
            code's).
        order: `utility`: Eq. 4. `reading`: by the end of reading what was sent, alone (the paper's
            for chatbots, §7.1).
        streams: `tokens`: streams take the rows that plans leave, by arrival. `sentences`: an
            answer is suspended after each sentence, and shares queue, rows and admissions with
            plans (the paper's for chatbots).
        network_s: seconds from the server to a robot. Priorities and budgets treat a segment as
            ready this much later, as the released code does.
        bound: rule of the worst-case check; by name, the policy takes its options as its own.
    """

    rows: int = 8
    admissions: int = 1
    segment_tokens: int = 10
    mean_segment_tokens: float = 4.0
    prior_segments: float = 20.0
    least_slack_s: float = 0.01
    lead_s: float = math.inf
    adaptive: bool = True
    slack: Slack = Slack.COMPLETION
    order: QueueOrder = QueueOrder.UTILITY
    streams: StreamSegments = StreamSegments.TOKENS
    network_s: float = 0.0
    bound: BatchBound = field(default_factory=BatchBound)
    whole_plans = False
    bounds_batches = True

    def __post_init__(self) -> None:
        self.segment_length = MeanSegmentLength(self.mean_segment_tokens, self.prior_segments)
        self._sentence_length = MeanSegmentLength(self.mean_segment_tokens, self.prior_segments)
        self._sentences = Sentences(self._sentence_length.observe)
        self._measures = self.bound.speed is SpeedSource.MEASURED

    def priority(self, generation: Segmented, now: float, segment_s: float) -> float:
        """Return Eq. 4: the utility of a start now, over G times the slack L.

        With `slack=completion`, L is the time until the segment is due less G, with `slack=due`
        that time itself; both are at least `least_slack_s`. With `slack=exp` the priority is the
        utility times `exp(min(0, now + G + network - due))`, as in the authors' released code.

        A utility that is not positive is the priority itself, since Eq. 4 would turn a negative
        utility over a negative slack into a positive priority. So a less late plan goes before a
        later one, and a very late plan waits until the load falls: the paper maximises the sum of
        utilities (Eq. 3) and promises no fairness. Its released code drops queued requests that are
        worth nothing; a server can do the same.

        With `order=reading` the priority falls with the due time alone: the end of execution of
        what was sent, which for text is the end of reading, and for the first segment the expected
        response time.

        Args:
            generation: a generation of the queue.
            now: the time, seconds.
            segment_s: G, seconds to generate a segment.
        """
        if self.order is QueueOrder.READING:
            return -generation.due_s
        now += self.network_s
        ready_s = now + segment_s
        utility = generation.utility_at(ready_s)
        if utility <= 0:
            return utility
        if self.slack is Slack.EXP:
            return utility * math.exp(min(0.0, ready_s - generation.due_s))
        slack_s = generation.due_s - (ready_s if self.slack is Slack.COMPLETION else now)
        return utility / (segment_s * max(slack_s, self.least_slack_s))

    def joins(self, generation: Segmented, now: float, segment_s: float) -> Reason:
        """Return why a generation of the queue joins: `priority` in words."""
        if self.order is QueueOrder.READING:
            return Reason(Cause.DEADLINE, generation.due_s - now)
        return Reason(Cause.PRIORITY, self.priority(generation, now, segment_s))

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the running batch with those that join it; streams of tokens take what is left."""
        running: list[Segmented] = []
        queue: list[Segmented] = []
        plans, streams = by_kind(generations)
        segmented: list[Segmented] = [*plans]
        if self.streams is StreamSegments.SENTENCES:
            segmented += self._sentences.of(streams, now)
            generations, streams = segmented, []
        if self._measures:
            self.bound.step_ended(now)
        resting: list[Generation] = [*streams]
        wake_s = math.inf
        why: dict[str, Reason] | None = {} if self.explain else None
        for generation in segmented:
            if generation.state is State.RUNNING:
                running.append(generation)
                continue
            resting.append(generation)
            # A new request queues at once, a suspended one shortly before its robot is idle.
            resume_s = -math.inf if generation.first else generation.due_s - self.lead_s
            if resume_s <= now:
                queue.append(generation)
            else:
                wake_s = min(wake_s, resume_s)
                if why is not None:
                    why[generation.key] = Reason(Cause.NOT_DUE, generation.due_s - now)
        if why is not None:
            why |= {g.key: Reason(Cause.RUNS) for g in running}
            why |= {g.key: Reason(Cause.ROWS, self.rows) for g in queue}
        if queue and len(running) < self.rows:
            step_s = step_time.predict_s(rows=1)
            plan_s = self.segment_length.mean_tokens * step_s
            sentence_s = self._sentence_length.mean_tokens * step_s

            def priority(one: Segmented) -> float:
                segment_s = plan_s if isinstance(one, PlanGeneration) else sentence_s
                return self.priority(one, now, segment_s)

            queue.sort(key=priority, reverse=True)
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
        if self.streams is StreamSegments.SENTENCES:
            self._sentences.resume(plan.keys)
        if self._measures:
            self.bound.step_begins((g for g in running if g.key in plan.keys), now)
        return StepPlan(plan.entries, plan.evictable, wake_s, plan.reasons)

    def worst_case(
        self, batch: Collection[Generation], now: float, step_time: StepTime
    ) -> WorstCase:
        """Return the worst-case check of a batch."""
        bound = self.bound
        token_s = bound.token_s(batch, step_time) if self._measures else math.nan
        now += self.network_s
        return WorstCase(
            batch, now, step_time, self.segment_tokens, bound.budget, bound.urgent, token_s
        )

    def _segment_s(self, generation: Segmented, step_s: float) -> float:
        """Return G, seconds to generate a segment at `step_s` a token."""
        of_plan = isinstance(generation, PlanGeneration)
        return (self.segment_length if of_plan else self._sentence_length).mean_tokens * step_s

    def _fill(
        self,
        running: list[Segmented],
        queue: Sequence[Segmented],
        memory: Memory,
        now: float,
        step_time: StepTime,
        why: dict[str, Reason] | None,
    ) -> None:
        """Add the first plans of the queue that fit into memory and pass the worst-case check."""
        if why is not None:
            step_s = step_time.predict_s(rows=1)
            why |= {g.key: Reason(Cause.ADMISSIONS, self.admissions) for g in queue}
        bound = self.worst_case(running, now, step_time)
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
                    why[candidate.key] = self.joins(
                        candidate, now, self._segment_s(candidate, step_s)
                    )
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
        running: Sequence[Segmented],
        now: float,
        step_time: StepTime,
        why: dict[str, Reason] | None,
    ) -> list[StreamGeneration]:
        """Return the streams that pass the worst-case check, by arrival."""
        joined: list[StreamGeneration] = []
        bound = self.worst_case(running, now, step_time)
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
class TimelyLlm(Timely):
    """`Timely` with the worst-case bound of Ling et al. 2024, §4.4, to the letter."""

    bound: BatchBound = field(default_factory=PaperBound)


@dataclass(eq=False)
class _InOrder(Timely):
    """Segments in an order of their own: the options of Eq. 4 are none of theirs."""

    mean_segment_tokens: float = field(default=Timely.mean_segment_tokens, init=False)
    prior_segments: float = field(default=Timely.prior_segments, init=False)
    least_slack_s: float = field(default=Timely.least_slack_s, init=False)
    slack: Slack = field(default=Timely.slack, init=False)
    order: QueueOrder = field(default=Timely.order, init=False)


@dataclass(eq=False)
class FcfsSegments(_InOrder):
    """First come, first served, one segment at a time."""

    def priority(self, generation: Segmented, now: float, segment_s: float) -> float:
        """Return a priority that falls with the arrival."""
        return -generation.arrival_s

    def joins(self, generation: Segmented, now: float, segment_s: float) -> Reason:
        """Return that it arrived first."""
        return Reason(Cause.ARRIVAL)


@dataclass(eq=False)
class Edf(_InOrder):
    """Earliest deadline first: the deadline is the expected response time."""

    def priority(self, generation: Segmented, now: float, segment_s: float) -> float:
        """Return a priority that falls with the due time of the first segment."""
        return -(generation.asked_s + generation.time_utility.ert_s)

    def joins(self, generation: Segmented, now: float, segment_s: float) -> Reason:
        """Return its deadline."""
        return Reason(Cause.DEADLINE, generation.asked_s + generation.time_utility.ert_s - now)
