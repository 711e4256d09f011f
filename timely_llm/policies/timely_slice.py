"""Both core papers together: plans by TimelyLLM, conversations by SLICE in what plans leave."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import (
    Generation,
    PlanGeneration,
    StreamGeneration,
    by_kind,
)
from timely_llm.policies.contract import Capacity, StepPlan
from timely_llm.policies.decode_mask import CYCLE_S, Task, by_rate, period_s, select
from timely_llm.policies.engine_share import EngineShare
from timely_llm.policies.paced_cycle import PacedCycle
from timely_llm.policies.packing import pack
from timely_llm.policies.spare_time import fill
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import Timely
from timely_llm.policies.worst_case import WorstCase


@dataclass(eq=False)
class TimelySlice(Timely):
    """Robots first, by `Timely`; then the streams that SLICE selects, at their rate and no faster.

    Plans are served as if there were no streams. A stream joins a step in its column of the decode
    mask, and a column waits until one of its streams may have a token: nobody gets more than
    `credit_tokens` ahead of its rate, but answers with a deadline, which are not held back. A
    stream joins only if the most urgent running plan still makes its zero point. Streams are
    selected when one comes or goes, and at the end of each cycle.

    What plans leave of a cycle: the plans that were needed in the last one (first segments, and
    those due within a cycle) take part in Eq. 7 as rows that have as many columns as there were
    steps with so many plans, and their prompts shorten it. Segments that are made ahead count
    nothing, they give way. Plans that need all of a cycle still leave `least_s` of it: rows beside
    theirs cost little, and the worst-case check guards each step.

    Eq. 7 counts whole tokens of a cycle: one that asks for a token in ten seconds counts for ten of
    them. Who is left out by that is selected too, while all rates together, as they are, need no
    more than `util` of what plans leave. The others wait, and have the time that nobody else needs:
    steps in which no plan and no selected stream takes part, until the first of those must have a
    token, and no longer than `spare_s`. An answer that has begun goes on before another begins, and
    nobody gets further ahead than `credit_tokens`. While anybody waits, a column does not go before
    one of the selected streams must have a token: then the others of it have theirs with it.

    Attributes:
        even: streams are spread over the columns of a cycle; else they are in front (paper 000).
        cycle_s: seconds that a cycle must be shorter than.
        least_s: seconds of a cycle that are there for streams, whatever plans need.
        credit_tokens: how far a stream may be ahead of its rate; infinite: as in paper 000, an
            engine that has time for it gives all of them more.
        util: share of what plans leave of the engine's time that may be promised to streams.
        spare_s: of a step of those that are not selected, or two steps of one row if that is more:
            so long a plan that arrives may wait.
    """

    even: bool = True
    cycle_s: float = CYCLE_S
    least_s: float = 0.1
    credit_tokens: float = 1.0
    util: float = 0.95
    spare_s: float = 0.05

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
        self._used: deque[tuple[float, int, float]] = deque()
        self._known: frozenset[str] = frozenset()
        self._cycle = PacedCycle([], -math.inf, 0.0, 0.0, 0.0, even=self.even)
        self._waiting: tuple[str, ...] = ()

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the plans that `Timely` takes, and the streams whose tokens are due."""
        while self._used and self._used[0][0] <= now - self.cycle_s:
            self._used.popleft()
        plans, streams = by_kind(generations)
        lent = sum(stream.kv_tokens for stream in streams)
        roomy = replace(capacity, free_tokens=capacity.free_tokens + lent)
        first = super().plan(now, plans, step_time, roomy)
        by_key = {plan.key: plan for plan in plans}
        batch = [by_key[key] for key, _ in first.entries]
        if not streams:
            self._known = frozenset()
            self._remember(now, batch, step_time)
            return first
        due, wake_s = self._due(now, streams, plans, batch, step_time, roomy)
        joined = self._allowed(due, batch, now, step_time) if due else []
        if not joined and not batch and self._waiting:
            return self._spare(now, streams, step_time, capacity, min(first.wake_s, wake_s))
        plan = pack([*batch, *joined], generations, capacity)
        self._remember(now, batch, step_time)
        # Streams that wait give up their memory before robots do.
        others = self._cycle.keys | by_key.keys()
        evictable = tuple(sorted(plan.evictable, key=others.__contains__))
        return StepPlan(plan.entries, evictable, min(first.wake_s, wake_s))

    def _due(
        self,
        now: float,
        streams: Sequence[StreamGeneration],
        plans: Sequence[PlanGeneration],
        batch: Sequence[PlanGeneration],
        step_time: StepTime,
        capacity: Capacity,
    ) -> tuple[list[StreamGeneration], float]:
        """Return the streams that should get a token now, and when to ask again if there is none.

        `batch` are the plans of this step; `capacity` counts the memory of streams as free.
        """
        keys = frozenset(stream.key for stream in streams)
        idle = not self._cycle.keys and not batch
        if keys != self._known or idle or self._cycle.over(now):
            self._known = keys
            tasks, left = self._select(now, streams, plans, step_time, capacity, alone=not batch)
            self._waiting = tuple(task.key for task in left)
            # A step may be on its way when a token should be begun.
            lead_s = 2.0 * step_time.predict_s(len(tasks) + len(batch))
            self._cycle = PacedCycle(
                tasks, now, self.cycle_s, self.credit_tokens, lead_s, even=self.even
            )
        if not self._cycle.keys and not batch:
            return [], math.inf  # not even one has enough memory
        return self._cycle.turn(streams, now, lazy=bool(self._waiting) and not batch)

    def _select(
        self,
        now: float,
        streams: Sequence[StreamGeneration],
        plans: Iterable[PlanGeneration],
        step_time: StepTime,
        capacity: Capacity,
        *,
        alone: bool,
    ) -> tuple[list[Task], list[Task]]:
        """Return the streams of a cycle, the fastest first, and the others, worth most first.

        With `alone`, there is at least one of a cycle.
        """
        later_s = now + self.cycle_s
        room = capacity.free_tokens + sum(p.kv_tokens for p in plans if p.due_s > later_s)
        one_s = step_time.predict_s(1)
        tasks: list[Task] = []
        rates: dict[str, float] = {}
        # One that is too much even for an empty cycle would end the selection of all others.
        too_much: list[Task] = []
        for stream in streams:
            request = stream.request
            task = Task(
                stream.key,
                request.slo.tpot_s,
                request.weight,
                kv_tokens=stream.to_compute + stream.kv_tokens,
            )
            rates[stream.key] = request.slo.rate
            (tasks if task.columns * one_s < self.cycle_s else too_much).append(task)
        taken, cycle_s = self._left(step_time)
        rows = max(capacity.max_rows - self.rows, 1)
        chosen, left = select(
            tasks, step_time.predict_s, cycle_s, rows=rows, room=room, taken=taken
        )
        begun = {stream.key for stream in streams if stream.kv_tokens}
        left = sorted(
            [*left, *too_much], key=lambda t: (t.key in begun, t.utility_rate), reverse=True
        )
        if left and len(chosen) < rows:
            share = EngineShare(
                step_time.predict_s,
                [
                    *(count / self.cycle_s for count in taken.elements()),
                    *(rates[task.key] for task in chosen),
                ],
            )
            room -= sum(task.kv_tokens for task in chosen)
            most = self.util * cycle_s / self.cycle_s
            for task in left.copy():
                if task.kv_tokens <= room and share.offer(rates[task.key], most):
                    room -= task.kv_tokens
                    chosen.append(task)
                    left.remove(task)
                    if len(chosen) == rows:
                        break
        if not chosen and alone:
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
    ) -> StepPlan:
        """Return a step of streams that are not selected, in time that nobody else needs."""
        by_key = {stream.key: stream for stream in streams}
        waiting = [by_key[key] for key in self._waiting]
        begins_s = [self._cycle.may_s(stream) for stream in waiting]
        # The selected ones must begin two steps before their tokens are due: one is left to spare.
        step_s = step_time.predict_s(max(len(self._cycle.keys), 1))
        longest_s = max(self.spare_s, 2.0 * step_time.predict_s(1))
        most_s = min(self._cycle.needed_s(streams) + step_s - now, longest_s)
        plan = fill(waiting, begins_s, now, most_s, step_time, capacity)
        return replace(plan, wake_s=min(plan.wake_s, wake_s))

    def _left(self, step_time: StepTime) -> tuple[Counter[int], float]:
        """Return columns that plans take, by how many plans do, and the seconds of the cycle."""
        steps = [rows for _, rows, _ in self._used]
        taken: Counter[int] = Counter()
        for rows in range(1, max(steps, default=0) + 1):
            taken[sum(1 for step in steps if step >= rows)] += 1
        prompts_s = sum(seconds for _, _, seconds in self._used)
        least_s = period_s(taken, step_time.predict_s) + self.least_s
        return taken, max(self.cycle_s - prompts_s, least_s)

    def _allowed(
        self,
        due: Iterable[StreamGeneration],
        batch: Sequence[PlanGeneration],
        now: float,
        step_time: StepTime,
    ) -> list[StreamGeneration]:
        """Return the streams that the most urgent plan of the step can afford, prompts last."""
        bound = WorstCase(batch, now, step_time, self.segment_tokens)
        joined = []
        for stream in sorted(due, key=lambda stream: stream.to_compute > 1):
            if not self.adaptive or bound.allows(stream):
                bound.add(stream)
                joined.append(stream)
        return joined

    def _remember(self, now: float, batch: Iterable[PlanGeneration], step_time: StepTime) -> None:
        """Enter what the plans of a step need of the engine."""
        needed = [plan for plan in batch if plan.first or plan.due_s <= now + self.cycle_s]
        if needed:
            prompts = sum(plan.to_compute for plan in needed if plan.to_compute > 1)
            prompts_s = step_time.predict_s(0, prompts) - step_time.predict_s(0)
            self._used.append((now, len(needed), prompts_s))
