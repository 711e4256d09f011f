"""What a step of the policy `deadline` is planned from, and the room in memory for its plans."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from timely_llm.core.generation import Generation, PlanGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity
from timely_llm.policies.deadline.wave import LONGEST_SEGMENT, Deliverable
from timely_llm.policies.packing import Memory
from timely_llm.policies.step_time import StepTime

LOOK_AT = 32
"""Most plans that may join a step with their prompts."""


class Moment(NamedTuple):
    """What a step is planned from.

    Attributes:
        now: the time, seconds.
        generations: the pool.
        step_time: predicted seconds of steps.
        one_s: predicted seconds of a step of one row.
        capacity: limits of the engine.
        why: takes the reasons by key; None: no reasons.
    """

    now: float
    generations: Collection[Generation]
    step_time: StepTime
    one_s: float
    capacity: Capacity
    why: dict[str, Reason] | None

    def explain(
        self, some: Iterable[Generation], cause: Cause, number: float | None = math.nan
    ) -> None:
        """Give some generations a reason, if reasons are asked for.

        Args:
            some: the generations.
            cause: the reason's.
            number: the reason's; not a number: the seconds until the generation is due.
        """
        if self.why is None:
            return
        for one in some:
            due = number is not None and math.isnan(number)
            self.why[one.key] = Reason(cause, one.due_s - self.now if due else number)

    def fitting(
        self, line: Sequence[Deliverable], ahead: Sequence[PlanGeneration]
    ) -> tuple[Sequence[Deliverable], bool]:
        """Return a line without waiting plans for which memory lacks, and whether none lacks."""
        waiting = [place for place, one in enumerate(line) if one.generation.to_compute > 1]
        if len(waiting) > LOOK_AT:
            line = line[: waiting[LOOK_AT]]
        tokens = sum([one.generation.to_compute for one in line])
        rows = len(line) + len(ahead)
        if tokens + rows * LONGEST_SEGMENT <= self.capacity.free_tokens:
            return line, True
        running = [one.generation for one in line if one.generation.to_compute <= 1]
        memory = self._memory([*running, *ahead])
        fitting, all_fit = [], True
        for one in line:
            generation = one.generation
            if generation.to_compute > 1:
                if not memory.has_room(generation, self.now):
                    all_fit = False
                    if self.why is not None:
                        self.why[generation.key] = memory.refusal(generation)
                    continue
                memory.promise(generation)
            fitting.append(one)
        return fitting, all_fit

    def alone(self, needed: Sequence[PlanGeneration]) -> tuple[list[PlanGeneration], float]:
        """Return the first plan that fits alone, and when another one may evict others."""
        memory = self._memory([])
        for generation in needed:
            if memory.has_room_alone(generation, self.now):
                self.explain([generation], Cause.ALONE, None)
                return [generation], math.inf
        return [], memory.next_start_s(needed, self.now)

    def _memory(self, running: Sequence[Generation]) -> Memory:
        keys = {generation.key for generation in running}
        resting = [generation for generation in self.generations if generation.key not in keys]
        return Memory(running, resting, self.capacity, self.step_time, LONGEST_SEGMENT)
