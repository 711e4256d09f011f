"""SLICE (paper 000): the tasks that are worth most a token, each at its own rate."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, replace

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation, PlanGeneration, StreamGeneration
from timely_llm.policies.contract import Capacity, StepPlan
from timely_llm.policies.decode_mask import (
    CYCLE_S,
    Task,
    by_rate,
    decode_mask,
    filling,
    keep_running,
    select,
    shorter_first,
    tpot_of_deadline,
)
from timely_llm.policies.packing import pack
from timely_llm.policies.segment_length import SegmentLength
from timely_llm.policies.step_time import StepTime

REAL_TIME_UTILITY = 100.0
"""What a real-time task is worth beside a conversation (paper 000 gives no figure)."""


@dataclass(eq=False)
class Slice:
    """SLICE online (Algorithm 4): select tasks, scan the columns of their decode mask.

    Tasks come and go: each time, and at the end of each cycle, all are selected anew and the scan
    begins at column 1. Who is not selected waits, for ever if the load stays: the paper promises
    nothing else. Streams are tasks of their declared TPOT and weight, also those with a deadline
    (§IV-A): how long an answer gets is not known before. The next segment of a plan is a real-time
    task: its mean tokens in the time until it is due.

    A prompt is computed, and the first token made, in the first column of its task. A step that
    cannot take a whole column is followed by others with the rest of it. If one task alone is too
    much for a cycle and nobody is selected, the best one runs alone.

    Who does not fit gets nothing, also where a cycle is shorter than `cycle_s` (Algorithm 2 ends at
    the first task that is too much): beside one stream of a token in 2 s, a stream of 50 tokens/s
    waits until that one ends, which has far more than it asked for. With `fill`, which the paper
    does not have, such a task takes part in as many columns as there is time for.

    Attributes:
        even: tasks are spread over the columns of a cycle; else they are in front (the paper).
        charge_prefill: prompts count in the time of a cycle; in the paper they are free.
        cycle_s: seconds that a cycle must be shorter than.
        fill: what is left of a cycle goes to tasks that do not fit; in the paper to nobody.
        half_life_tokens: after so many tokens a task is worth half; infinite: always the same.
        keep: by how much a selected task is worth more than one that waits; 1: by nothing.
        mean_segment_tokens: of a plan's segment, until segments were seen.
    """

    even: bool = False
    charge_prefill: bool = False
    cycle_s: float = CYCLE_S
    fill: bool = False
    half_life_tokens: float = math.inf
    keep: float = 1.0
    mean_segment_tokens: float = 4.0
    whole_plans = False

    def __post_init__(self) -> None:
        if not self.half_life_tokens > 0.0:
            raise ConfigurationError(
                f"slice: half_life_tokens must be above 0, not {self.half_life_tokens:g}"
            )
        for name in ("cycle_s", "keep", "mean_segment_tokens"):
            value = getattr(self, name)
            if not 0.0 < value < math.inf:
                raise ConfigurationError(f"slice: {name} must be above 0 and finite, not {value:g}")
        self._segment_length = SegmentLength(self.mean_segment_tokens)
        self._known: list[Hashable] = []
        self._selected: frozenset[str] = frozenset()
        self._columns: Iterator[list[str]] = iter(())
        self._column: list[str] = []  # who is still to come in the column that is scanned

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the next column, or what the last step left of one."""
        known = [_deliverable(generation) for generation in generations]
        if known != self._known:
            self._known = known
            self._schedule(now, generations, step_time, capacity)
        by_key = {generation.key: generation for generation in generations}
        if not self._column and not self._next_column():
            self._schedule(now, generations, step_time, capacity)
            self._next_column()
        plan = self._scan(by_key, capacity)
        if not plan and generations:
            self._schedule(now, generations, step_time, capacity)
            self._next_column()
            plan = self._scan(by_key, capacity)
        self._segment_length.watch(
            g for key in plan.keys if isinstance(g := by_key[key], PlanGeneration)
        )
        return plan

    def _next_column(self) -> bool:
        """Take the next column of the cycle; return whether there is one."""
        self._column = next(self._columns, [])
        return bool(self._column)

    def _scan(self, by_key: dict[str, Generation], capacity: Capacity) -> StepPlan:
        """Return as much of the column as the engine can take, and keep the rest."""
        # Prompts come last: a long one would leave no tokens of the step for others.
        order = sorted((by_key[key] for key in self._column), key=_is_prompt)
        plan = pack(order, by_key.values(), capacity)
        done = {key for key, tokens in plan.entries if tokens == by_key[key].to_compute}
        self._column = [key for key in self._column if key not in done]
        # Those who are not selected give up their memory first.
        return replace(
            plan, evictable=tuple(sorted(plan.evictable, key=self._selected.__contains__))
        )

    def _schedule(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> None:
        """Select tasks (Algorithm 2) and make their mask (Algorithm 3)."""
        tasks = self._tasks(now, generations, step_time)
        room = capacity.free_tokens + sum(generation.kv_tokens for generation in generations)
        chosen, left = select(
            tasks, step_time.predict_s, self.cycle_s, rows=capacity.max_rows, room=room
        )
        if not chosen:
            chosen = [task for task in left if task.kv_tokens <= room][:1]
        elif self.fill and len(chosen) < capacity.max_rows:
            room -= sum(task.kv_tokens for task in chosen)
            most = capacity.max_rows - len(chosen)
            chosen += filling(chosen, left, step_time.predict_s, self.cycle_s, room)[:most]
        chosen = by_rate(chosen)
        mask = decode_mask([task.columns for task in chosen], even=self.even)
        keys = [task.key for task in chosen]
        self._selected = frozenset(keys)
        self._column = []
        self._columns = (
            [key for key, row in zip(keys, mask, strict=True) if row[column]]
            for column in range(len(mask[0]) if mask else 0)
        )

    def _tasks(
        self, now: float, generations: Collection[Generation], step_time: StepTime
    ) -> list[Task]:
        one_s = step_time.predict_s(1)
        segment_tokens = max(self._segment_length.mean_tokens, 1.0)
        adapts = self.half_life_tokens < math.inf or self.keep != 1.0
        tasks = []
        for generation in generations:
            if isinstance(generation, StreamGeneration):
                tpot_s, utility = generation.request.slo.tpot_s, generation.request.weight
            elif isinstance(generation, PlanGeneration):
                time_s = max(_segment_s(generation, now), one_s)
                tpot_s = tpot_of_deadline(time_s, segment_tokens)
                utility = REAL_TIME_UTILITY * generation.request.time_utility.beta
            if adapts:
                utility = self._adapted(utility, generation)
            to_compute = generation.to_compute
            prefill_s = 0.0
            if self.charge_prefill and to_compute > 1:
                prefill_s = step_time.predict_s(0, to_compute) - step_time.predict_s(0)
            kv_tokens = to_compute + generation.kv_tokens
            tasks.append(Task(generation.key, tpot_s, utility, prefill_s, kv_tokens))
        return tasks

    def _adapted(self, utility: float, generation: Generation) -> float:
        """Return a utility changed by the two UTILITYADAPTORs of §IV-E."""
        utility = shorter_first(utility, len(generation.token_ids), self.half_life_tokens)
        return keep_running(utility, generation.key in self._selected, self.keep)


def _segment_s(generation: PlanGeneration, now: float) -> float:
    """Return the time that a plan's next segment has: until its robot is idle.

    It is not less than the expected response time: one that is late asks for no more than a new
    one.
    """
    ert_s = generation.request.time_utility.ert_s
    return max(ert_s, generation.robot_free_s - now) if generation.segments else ert_s


def _deliverable(generation: Generation) -> Hashable:
    """Return what a task is: a stream, or one segment of a plan."""
    if isinstance(generation, PlanGeneration):
        return generation.key, generation.epoch, len(generation.segments)
    return generation.key


def _is_prompt(generation: Generation) -> bool:
    return generation.to_compute > 1
