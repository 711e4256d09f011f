"""A step of plans: who decodes in it, and what it costs them if others join."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from timely_llm.core.generation import Generation, PlanGeneration
from timely_llm.policies.contract import Capacity
from timely_llm.policies.deliverable import Deliverable
from timely_llm.policies.memory import Memory
from timely_llm.policies.step_time import StepTime

LONGEST_SEGMENT = 16
_LOOK_AT = 32


class PlanStep:
    """The step that is being planned, with those who decode in it.

    Args:
        now: when it begins.
        rows: who decodes and is needed soon.
        ahead: who decodes and is not.
        everyone: all generations.
        step_time: how long steps take.
        capacity: what the engine can take.
    """

    def __init__(
        self,
        now: float,
        rows: Sequence[Deliverable],
        ahead: Sequence[PlanGeneration],
        everyone: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> None:
        self.now = now
        self.rows = rows
        self.running = [*(row.generation for row in rows), *ahead]
        _, self._row_s, self._prefill_token_s, self._context_token_s = step_time.coefficients
        context = sum(generation.context_tokens for generation in self.running)
        self.step_s = step_time.predict_s(len(self.running), 0, context)
        self.max_tokens = capacity.max_step_tokens
        keys = {generation.key for generation in self.running}
        resting = [generation for generation in everyone if generation.key not in keys]
        self._memory = Memory(self.running, resting, capacity, step_time, LONGEST_SEGMENT)

    def possible(self, queue: Sequence[Deliverable]) -> list[Deliverable]:
        """Return the first of a queue that the memory can hold."""
        found: list[Deliverable] = []
        for candidate in queue:
            if len(found) == _LOOK_AT:
                break
            if self._memory.has_room(candidate.generation, self.now):
                self._memory.promise(candidate.generation)
                found.append(candidate)
        return found

    def alone(self, queue: Sequence[Deliverable]) -> list[PlanGeneration]:
        """Return the first of a queue that can be the only one, if there is one."""
        for candidate in queue:
            if self._memory.has_room_alone(candidate.generation, self.now):
                return [candidate.generation]
        return []

    def next_start_s(self, queue: Sequence[Deliverable]) -> float:
        """Return when somebody of a queue may take the memory of others."""
        return self._memory.next_start_s((d.generation for d in queue), self.now)

    def loses(self, row: Deliverable) -> bool:
        """Return whether a longer step can cost it something."""
        return row.generation.first or self.now + row.tokens_to_go * self.step_s > row.due_s

    def cost_s(self, candidate: Deliverable) -> float:
        """Return the seconds by which others are later if it joins."""
        prompt = candidate.generation.to_compute
        context = candidate.generation.context_tokens
        prompt_s = self._prefill_token_s * prompt + self._context_token_s * context
        row_s = self._row_s + self._context_token_s * (context + prompt)
        return prompt_s + row_s * (candidate.tokens_to_go - 1)
