"""KV promised to all that has begun, so that nothing is evicted."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import replace

from timely_llm.core.generation import Generation, State, StreamGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.lengths import AnswerLengths

_SHARE = 0.9
"""Quantile of the learned lengths that is promised."""


class MemoryPromises:
    """Leaves out prompts of which the whole text has no room beside those that have begun.

    Each that has begun is promised KV to its end: to its declared bound, or to a high quantile of
    the lengths of its class once enough of them have ended. A token takes KV in every stage, so the
    smallest stage decides.
    """

    def __init__(self) -> None:
        self._lengths = AnswerLengths()
        self._known: dict[str, Generation] = {}

    def kept(
        self, plan: StepPlan, generations: Collection[Generation], capacity: Capacity
    ) -> StepPlan:
        """Return a plan without the prompts that must not begin now, in the plan's order.

        Args:
            plan: the policy's.
            generations: the pool.
            capacity: limits of the engine.
        """
        self._learn(generations)
        room = capacity.free_tokens
        begun = False
        for generation in generations:
            if generation.kv_tokens > 0:
                room -= self._to_come(generation)
                begun = True
        entries = []
        why: dict[str, Reason] = {}
        for entry in plan.entries:
            generation = self._known[entry[0]]
            if generation.kv_tokens <= 0:
                needed = self._to_come(generation)
                if begun and needed > room:
                    why[generation.key] = Reason(Cause.MEMORY, needed - room)
                    continue
                room -= needed
                begun = True
            entries.append(entry)
        if not why:
            return plan
        reasons = tuple((dict(plan.reasons) | why).items()) if plan.reasons else ()
        return replace(plan, entries=tuple(entries), reasons=reasons)

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
