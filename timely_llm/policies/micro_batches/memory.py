"""KV promised to all that has begun, so that nothing is evicted."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import replace

from timely_llm.core.generation import Generation, State, StreamGeneration
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.lengths import AnswerLengths

_SHARE = 0.9
"""Quantile of the learned lengths that is promised."""


class MemoryPromises:
    """Leaves out prompts of which the whole text has no room beside those that have begun.

    Each that has begun is promised KV to its end: to its declared bound, or to a high quantile of
    the lengths of its class once enough of them have ended. A token takes KV in every stage, so the
    smallest stage decides.

    Attributes:
        missing: KV tokens that each prompt lacks that must not begin now, by key.
    """

    def __init__(self) -> None:
        self.missing: dict[str, int] = {}
        self._lengths = AnswerLengths()
        self._known: dict[str, Generation] = {}
        self._room = 0
        self._begun = False

    def admitted(
        self, generations: Collection[Generation], capacity: Capacity
    ) -> Collection[Generation]:
        """Return all that has begun, and each prompt that could begin now if it were the only one.

        A policy that saw the others too might plan no other step.

        Args:
            generations: the pool.
            capacity: limits of the engine.
        """
        self._learn(generations)
        self._room, self._begun, self.missing = capacity.free_tokens, False, {}
        waiting = []
        for generation in generations:
            if generation.kv_tokens > 0:
                self._room -= self._to_come(generation)
                self._begun = True
            else:
                waiting.append(generation)
        if self._begun:
            for generation in waiting:
                missing = self._to_come(generation) - self._room
                if missing > 0:
                    self.missing[generation.key] = missing
        if not self.missing:
            return generations
        return [g for g in generations if g.key not in self.missing]

    def kept(self, plan: StepPlan) -> StepPlan:
        """Return a plan without the prompts that must not begin together, in the plan's order.

        Args:
            plan: the policy's, for what `admitted` has returned last.
        """
        room, begun, entries = self._room, self._begun, []
        for entry in plan.entries:
            generation = self._known[entry[0]]
            if generation.kv_tokens <= 0:
                needed = self._to_come(generation)
                if begun and needed > room:
                    self.missing[generation.key] = needed - room
                    continue
                room -= needed
                begun = True
            entries.append(entry)
        return plan if len(entries) == len(plan.entries) else replace(plan, entries=tuple(entries))

    def _to_come(self, generation: Generation) -> int:
        """Return the KV tokens that a generation takes from now to its end."""
        out = len(generation.token_ids)
        more = self._lengths.to_go(_class(generation), out, generation.max_tokens, _SHARE)
        return generation.to_compute - 1 + more

    def _learn(self, generations: Collection[Generation]) -> None:
        """Know the pool, and learn the length of each that has ended."""
        before, self._known = self._known, {g.key: g for g in generations}
        for key in before.keys() - self._known.keys():
            gone = before[key]
            if gone.state is not State.ENDED:
                self._known[key] = gone  # it executes, is blocked, or loads KV
            elif gone.token_ids:
                self._lengths.observe(_class(gone), len(gone.token_ids))


def _class(generation: Generation) -> Hashable:
    """Return what generations of like lengths have in common."""
    if isinstance(generation, StreamGeneration):
        return generation.request.slo, generation.request.weight
    return getattr(generation.request, "skill_set", None)
