"""TimelyLLM and SLICE in one policy: plans get the time that streams leave."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import (
    Generation,
    PlanGeneration,
    StreamGeneration,
    by_kind,
)
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.engine_share import EngineShare
from timely_llm.policies.packing import pack
from timely_llm.policies.slice import CYCLE_S, SliceTask, by_rate, decode_mask, select
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import StreamSegments, Timely

_LEAST_CHUNK = 16
"""Least prompt tokens in a step with other streams: fewer cost more than they gain."""


def fill(
    waiting: Sequence[StreamGeneration],
    begins_s: Sequence[float],
    now: float,
    most_s: float,
    step_time: StepTime,
    capacity: Capacity,
    why: dict[str, Reason] | None = None,
) -> StepPlan:
    """Return a step of best-effort streams; empty if none of them may have a token yet.

    The first stream always takes part, the others while the step stays short enough. A longer
    prompt is computed in chunks, one prompt a step. These streams evict only later ones among
    themselves.

    Args:
        waiting: the streams, in their order.
        begins_s: earliest start of the next token of each.
        now: the time, seconds.
        most_s: most seconds of the step.
        step_time: predicted seconds of steps.
        capacity: limits of the engine.
        why: takes the reasons of the streams, by key; None: no reasons.
    """
    token_s = step_time.coefficients[2]
    lendable = sum(stream.kv_tokens for stream in waiting)
    free = capacity.free_tokens
    taken: list[StreamGeneration] = []
    rows = context = tokens = prompt = 0
    if why is not None:
        too_long = Reason(Cause.STEP_TIME, most_s)
        why |= {stream.key: too_long for stream in waiting}
    for stream, begin_s in zip(waiting, begins_s, strict=True):
        lendable -= stream.kv_tokens
        if begin_s > now or stream.to_compute > free + lendable or rows == capacity.max_rows:
            if why is not None:
                why[stream.key] = (
                    Reason(Cause.NOT_DUE, stream.due_s - now)
                    if begin_s > now
                    else Reason(Cause.ROWS, rows)
                    if rows == capacity.max_rows
                    else Reason(Cause.MEMORY, stream.to_compute - free - lendable)
                )
            continue
        with_it = context + stream.context_tokens
        left_s = most_s - step_time.predict_s(rows + 1, prompt, with_it)
        chunk = stream.to_compute
        if chunk == 1:
            if taken and left_s < 0.0:
                break
        elif prompt:
            if why is not None:
                why[stream.key] = Reason(Cause.OTHER_PROMPT)
            continue
        else:
            if chunk * token_s > left_s:
                least = _LEAST_CHUNK if taken else 1
                chunk = max(int(left_s / token_s), 0 if taken else 1)
                if chunk < least:
                    continue
            prompt = chunk
        taken.append(stream)
        free -= stream.to_compute
        rows, context, tokens = rows + 1, with_it, tokens + chunk
    if why is not None:
        why |= {stream.key: Reason(Cause.SPARE) for stream in taken}
    # Prompts come last and get the tokens that are left.
    taken.sort(key=lambda stream: stream.to_compute > 1)
    short = replace(capacity, max_step_tokens=max(min(tokens, capacity.max_step_tokens), 1))
    plan = pack(taken, waiting, short, why=why)
    places = {stream.key: place for place, stream in enumerate(waiting)}
    last_first = tuple(sorted(plan.evictable, key=places.__getitem__, reverse=True))
    wake_s = min((begin_s for begin_s in begins_s if begin_s > now), default=math.inf)
    return StepPlan(plan.entries, last_first, wake_s, plan.reasons)


_TICK_S = 1e-6


class PacedCycle:
    """A cycle of SLICE's decode mask; each column waits until one of its streams may have a token.

    In the paper columns follow each other at once, and a lightly loaded engine gives streams more
    tokens than they asked for. With a limit a stream gets at most `credit_tokens` ahead of its
    service level. A stream without a token, a late stream, and one with a deadline take part in
    every step.

    Args:
        tasks: selected tasks, the fastest first.
        begin_s: start of the cycle, seconds.
        cycle_s: length of a cycle without tasks, and the longest wait of a column, so that a very
            slow stream does not keep others out, seconds.
        credit_tokens: most tokens that a stream may be ahead.
        lead_s: latest start of a token before its due time, seconds.
        even: see `decode_mask`.

    Attributes:
        keys: keys of the selected tasks.
    """

    def __init__(
        self,
        tasks: Sequence[SliceTask],
        begin_s: float,
        cycle_s: float,
        credit_tokens: float,
        lead_s: float,
        *,
        even: bool,
    ) -> None:
        self.keys = frozenset(task.key for task in tasks)
        mask = decode_mask([task.columns for task in tasks], even=even)
        self._columns = [
            {task.key for task, takes_part in zip(tasks, column, strict=True) if takes_part}
            for column in zip(*mask, strict=True)
        ]
        self._column = 0
        self._cycle_s = cycle_s
        self._end_s = math.inf if tasks else begin_s + cycle_s
        self._credit_tokens = credit_tokens
        self._lead_s = lead_s

    def over(self, now: float) -> bool:
        """Return whether all columns were scanned, or one has waited for too long."""
        return 0 < self._column == len(self._columns) or now + _TICK_S >= self._end_s

    def turn(
        self,
        streams: Iterable[StreamGeneration],
        now: float,
        *,
        lazy: bool = False,
        why: dict[str, Reason] | None = None,
    ) -> tuple[list[StreamGeneration], float]:
        """Return the streams that get a token now; if there is none, when to ask again.

        Args:
            streams: all streams; those that were not selected are skipped.
            now: the time, seconds.
            lazy: a column waits until a selected stream must have a token, since streams outside
                the cycle can use the time.
            why: takes the reasons of the selected streams, by key; None: no reasons.
        """
        soon_s = now + _TICK_S
        chosen = [stream for stream in streams if stream.key in self.keys]
        must_s = [self._begin_s(stream, self._lead_s) for stream in chosen]
        joining = [stream for stream, at_s in zip(chosen, must_s, strict=True) if at_s <= soon_s]
        if why is not None:
            why |= {s.key: Reason(Cause.NOT_DUE, s.due_s - now) for s in chosen}
            why |= {s.key: Reason(Cause.TOKEN_DUE, s.due_s - now) for s in joining}
        next_s = math.inf
        if self._column < len(self._columns):
            members = self._columns[self._column]
            may_s = {s.key: self._begin_s(s, math.inf) for s in chosen if s.key in members}
            next_s = math.inf if lazy and not joining else min(may_s.values())
            if next_s > soon_s:
                self._end_s = min(self._end_s, now + self._cycle_s)
            else:
                self._column, self._end_s = self._column + 1, math.inf
                taken = {stream.key for stream in joining}
                joining += [
                    stream
                    for stream in chosen
                    if stream.key not in taken and may_s.get(stream.key, math.inf) <= soon_s
                ]
                if why is not None:
                    why |= {s.key: Reason(Cause.COLUMN) for s in joining[len(taken) :]}
        return joining, math.inf if joining else min([next_s, self._end_s, *must_s])

    def needed_s(self, streams: Iterable[StreamGeneration]) -> float:
        """Return the latest start of the next token of all selected streams."""
        chosen = (stream for stream in streams if stream.key in self.keys)
        return min((self._begin_s(stream, self._lead_s) for stream in chosen), default=math.inf)

    def must(self, stream: StreamGeneration, now: float) -> bool:
        """Return whether a stream needs its next token now."""
        return self._begin_s(stream, self._lead_s) <= now + _TICK_S

    def may_s(self, stream: StreamGeneration) -> float:
        """Return the earliest start of a stream's next token, selected or not."""
        return self._begin_s(stream, math.inf)

    def _begin_s(self, stream: StreamGeneration, lead_s: float) -> float:
        """Return the start of the next token: `lead_s` before it is due, within the credit."""
        slo = stream.request.slo
        if stream.first or slo.real_time:
            return -math.inf
        return stream.due_s - min(lead_s, self._credit_tokens * slo.tpot_s)


@dataclass(eq=False)
class TimelySlice(Timely):
    """Plans by `Timely`, and the streams that SLICE selects: the union of both papers.

    Streams are selected as if there were no plans, for the share `beside` of the time. A stream
    joins a step in its column of the decode mask, as in the paper: a lightly loaded engine gives it
    more tokens than it asked for. With a finite `credit_tokens` a column waits until one of its
    streams may have a token, and a stream gets at most that far ahead of its rate; answers with a
    deadline are not held back. Such a stream has no reserve: a delay late in its answer breaks its
    mean rate. Streams are selected at each arrival and end of a stream, and at the end of each
    cycle.

    *Beside plans.* `Timely` chooses plans as if there were no streams. Of these the most urgent
    ones take part, by their zero points, while a step with all selected streams is no longer than
    each of these has until its token is due, or between two tokens if it is late; one plan takes
    part always. A segment can wait where a token cannot. A selected stream takes part in every
    step while it has not begun, its token is due, or it has a deadline. Others, which are ahead of
    their rate, join only if the most urgent running plan still makes its zero point: what they
    are ahead is the time that a burst of plans can take. So do streams that are a whole cycle late,
    which keep no plan out: no cycle brings back their rates.

    *Streams that Eq. 7 leaves out.* Eq. 7 counts whole tokens a cycle: a stream of one token in ten
    seconds counts tenfold. Streams of less than one token a cycle are selected too, while all real
    rates together need at most `util` of the time. The remaining streams get spare time: steps
    without a plan and without a selected stream, until a selected stream must have a token, and at
    most `spare_s` long. An answer that has begun goes on before another begins. While a stream
    waits for spare time, a column waits until one of its streams must have a token; the others of
    the column then join it.

    Attributes:
        even: the columns of a stream are spread over the cycle; else they are in front (Zhou et al.
            2025).
        cycle_s: limit of a cycle, seconds.
        credit_tokens: most tokens that a stream may be ahead of its rate; infinite: no limit (Zhou
            et al. 2025).
        util: largest share of the time in which streams of less than one token a cycle may be
            selected after Eq. 7.
        beside: share of a cycle, and of `util`, that streams are selected for while there are
            plans. The rest is the plans' own; a cycle has one stream at least.
        spare_s: longest step in spare time, or two steps of one row if that is longer, seconds; it
            bounds the delay of a plan that arrives.
    """

    even: bool = True
    cycle_s: float = CYCLE_S
    credit_tokens: float = math.inf
    util: float = 0.95
    beside: float = 0.7
    spare_s: float = 0.05
    counts_steps = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.cycle_s < math.inf:
            raise ConfigurationError(
                f"timely+slice: cycle_s must be above 0 and finite, not {self.cycle_s:g}"
            )
        if not 0.0 < self.util <= 1.0:
            raise ConfigurationError(
                f"timely+slice: util must be above 0 and at most 1, not {self.util:g}"
            )
        if not 0.0 < self.beside <= 1.0:
            raise ConfigurationError(
                f"timely+slice: beside must be above 0 and at most 1, not {self.beside:g}"
            )
        if self.streams is not StreamSegments.TOKENS:
            raise ConfigurationError(
                f"timely+slice: streams must be {StreamSegments.TOKENS}, not {self.streams}"
            )
        self._known: frozenset[str] = frozenset()
        self._cycle = PacedCycle([], -math.inf, 0.0, 0.0, 0.0, even=self.even)
        self._waiting: tuple[str, ...] = ()
        self._refusals: dict[str, Reason] | None = None

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the plans that `Timely` takes and streams leave time for, and the streams."""
        plans, streams = by_kind(generations)
        lent = sum(stream.kv_tokens for stream in streams)
        roomy = replace(capacity, free_tokens=capacity.free_tokens + lent)
        first = super().plan(now, plans, step_time, roomy)
        by_key = {plan.key: plan for plan in plans}
        batch = [by_key[key] for key, _ in first.entries]
        why = dict(first.reasons) if self.explain else None
        if not streams:
            self._known = frozenset()
            return first
        due, wake_s = self._due(now, streams, plans, batch, step_time, roomy, why)
        batch = self._kept(batch, streams, now, step_time, why)
        joined = self._allowed(due, batch, now, step_time, why) if due else []
        if not joined and not batch and self._waiting:
            return self._spare(now, streams, step_time, capacity, min(first.wake_s, wake_s), why)
        plan = pack([*batch, *joined], generations, capacity, why=why)
        # Waiting streams are evicted before plans.
        others = self._cycle.keys | by_key.keys()
        evictable = tuple(sorted(plan.evictable, key=others.__contains__))
        return StepPlan(plan.entries, evictable, min(first.wake_s, wake_s), plan.reasons)

    def _due(
        self,
        now: float,
        streams: Sequence[StreamGeneration],
        plans: Sequence[PlanGeneration],
        batch: Sequence[PlanGeneration],
        step_time: StepTime,
        capacity: Capacity,
        why: dict[str, Reason] | None,
    ) -> tuple[list[StreamGeneration], float]:
        """Return the streams that get a token now; if there is none, when to ask again.

        `batch` has the plans of this step; `capacity` counts the memory of streams as free.
        """
        keys = frozenset(stream.key for stream in streams)
        idle = not self._cycle.keys and not batch
        if keys != self._known or idle or self._cycle.over(now):
            self._known = keys
            tasks, left = self._select(now, streams, plans, step_time, capacity, alone=not batch)
            self._waiting = tuple(task.key for task in left)
            # A step may be in flight when a token should start.
            lead_s = 2.0 * step_time.predict_s(len(tasks) + len(batch))
            self._cycle = PacedCycle(
                tasks, now, self.cycle_s, self.credit_tokens, lead_s, even=self.even
            )
        if why is not None:
            # The cycle may be older than the question.
            refusals, not_selected = self._refusals or {}, Reason(Cause.NOT_SELECTED)
            why |= {s.key: refusals.get(s.key, not_selected) for s in streams}
        if not self._cycle.keys and not batch:
            return [], math.inf  # memory for no stream
        return self._cycle.turn(streams, now, lazy=bool(self._waiting) and not batch, why=why)

    def _select(
        self,
        now: float,
        streams: Sequence[StreamGeneration],
        plans: Sequence[PlanGeneration],
        step_time: StepTime,
        capacity: Capacity,
        *,
        alone: bool,
    ) -> tuple[list[SliceTask], list[SliceTask]]:
        """Return the streams of a cycle, fastest first, and the others, by falling worth.

        A cycle has at least one stream; with `alone`, even if plans have to give their memory.
        """
        later_s = now + self.cycle_s
        room = capacity.free_tokens + sum(p.kv_tokens for p in plans if p.due_s > later_s)
        one_s = step_time.predict_s(1)
        tasks: list[SliceTask] = []
        rates: dict[str, float] = {}
        share = self.beside if plans else 1.0
        # A stream that exceeds even an empty cycle would end the selection of all others. One with
        # a deadline takes what a cycle has: it may have asked for more than it needs.
        most = max(math.ceil(share * self.cycle_s / one_s) - 1, 1)
        too_much: list[SliceTask] = []
        for stream in streams:
            request = stream.request
            task = SliceTask(
                stream.key,
                request.slo.tpot_s,
                request.weight,
                kv_tokens=stream.to_compute + stream.kv_tokens,
            )
            rates[stream.key] = request.slo.rate
            if task.columns > most and request.slo.real_time:
                task = task.with_columns(most)
            (tasks if task.columns * one_s < self.cycle_s else too_much).append(task)
        # Plans keep their rows; of few rows half.
        kept = min(self.rows, capacity.max_rows // 2) if plans else 0
        rows = capacity.max_rows - kept
        why: dict[str, Reason] | None = {} if self.explain else None
        self._refusals = why
        chosen, left = select(
            tasks, step_time.predict_s, share * self.cycle_s, rows=rows, room=room, why=why
        )
        if why is not None:
            why |= {task.key: Reason(Cause.NOT_SELECTED, task.utility_rate) for task in too_much}
        begun = {stream.key for stream in streams if stream.kv_tokens}
        left = sorted(
            [*left, *too_much], key=lambda t: (t.key in begun, t.utility_rate), reverse=True
        )
        if left and len(chosen) < rows:
            promised = EngineShare(step_time.steps_s, [rates[task.key] for task in chosen])
            room -= sum(task.kv_tokens for task in chosen)
            slow = [task for task in left if rates[task.key] * self.cycle_s < 1.0]
            for task in slow:
                if task.kv_tokens <= room and promised.offer(rates[task.key], share * self.util):
                    room -= task.kv_tokens
                    chosen.append(task)
                    left.remove(task)
                    if len(chosen) == rows:
                        break
        if not chosen:
            if alone:
                room = capacity.free_tokens + sum(plan.kv_tokens for plan in plans)
            chosen = [task for task in left if task.kv_tokens <= room][:1]
            left = [task for task in left if task not in chosen]
        return by_rate(chosen), left

    def _spare(
        self,
        now: float,
        streams: Sequence[StreamGeneration],
        step_time: StepTime,
        capacity: Capacity,
        wake_s: float,
        why: dict[str, Reason] | None,
    ) -> StepPlan:
        """Return a step of streams that are not selected, in spare time."""
        by_key = {stream.key: stream for stream in streams}
        waiting = [by_key[key] for key in self._waiting]
        begins_s = [self._cycle.may_s(stream) for stream in waiting]
        # Selected streams start two steps before their tokens are due, so one step is spare.
        step_s = step_time.predict_s(max(len(self._cycle.keys), 1))
        longest_s = max(self.spare_s, 2.0 * step_time.predict_s(1))
        most_s = min(self._cycle.needed_s(streams) + step_s - now, longest_s)
        plan = fill(waiting, begins_s, now, most_s, step_time, capacity, why)
        return replace(plan, wake_s=min(plan.wake_s, wake_s))

    def _kept(
        self,
        batch: list[PlanGeneration],
        streams: Iterable[StreamGeneration],
        now: float,
        step_time: StepTime,
        why: dict[str, Reason] | None,
    ) -> list[PlanGeneration]:
        """Return the most urgent plans of a batch beside which selected streams keep their rates.

        This is this package's rule: the check of Ling et al. 2024, §4.4, with tokens to protect in
        place of segments.
        """
        if len(batch) < 2:
            return batch
        selected = [
            stream
            for stream in streams
            if stream.key in self._cycle.keys and not self._is_lost(stream, now)
        ]
        spans_s = (max(s.due_s - now, s.request.slo.tpot_s) for s in selected)
        most_s = min(spans_s, default=math.inf)
        rows = len(batch)
        while rows > 1 and step_time.predict_s(rows + len(selected)) > most_s:
            rows -= 1
        if rows >= len(batch):
            return batch
        # As in the worst-case check, a plan past its zero point is not urgent.
        order = sorted(batch, key=lambda plan: (plan.zero_s <= now, plan.zero_s))
        if why is not None:
            why |= {plan.key: Reason(Cause.STEP_TIME, most_s) for plan in order[rows:]}
        return order[:rows]

    def _is_lost(self, stream: StreamGeneration, now: float) -> bool:
        """Return whether a stream is a whole cycle late: no cycle brings back its rate."""
        return now > stream.due_s + self.cycle_s

    def _allowed(
        self,
        due: Iterable[StreamGeneration],
        batch: Sequence[PlanGeneration],
        now: float,
        step_time: StepTime,
        why: dict[str, Reason] | None,
    ) -> list[StreamGeneration]:
        """Return the streams that must have a token, and those that pass the worst-case check."""
        bound = self.worst_case(batch, now, step_time)
        joined = []
        for stream in sorted(due, key=lambda stream: stream.to_compute > 1):
            must = self._cycle.must(stream, now) and not self._is_lost(stream, now)
            if not self.adaptive or must or bound.allows(stream):
                bound.add(stream)
                joined.append(stream)
            elif why is not None:
                why[stream.key] = bound.refusal
        return joined
