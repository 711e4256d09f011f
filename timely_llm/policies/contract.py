"""What a policy is given and what it answers."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from timely_llm.core.generation import Generation
from timely_llm.policies.step_time import StepTime


@dataclass(frozen=True)
class Capacity:
    """What one step of an engine can take.

    Attributes:
        free_tokens: tokens of KV that can still be stored without an eviction.
        max_rows: most sequences in one step.
        max_step_tokens: most tokens computed in one step.
        max_model_len: most tokens of one sequence, prompt and answer.
        guesses: most tokens that the engine guesses for a sequence that decodes, if an entry of a
            plan leaves room for them; 0 if it guesses none.
    """

    free_tokens: int
    max_rows: int
    max_step_tokens: int
    max_model_len: int = 1 << 30
    guesses: int = 0


@dataclass(frozen=True)
class StepPlan:
    """Who takes part in one forward pass.

    Attributes:
        entries: (key, tokens) in order: 1 to decode, n to prefill a chunk of n. Policies need not
            leave room for guesses: the serving loop does.
        evictable: keys whose KV the engine may give up, first victim first; policies leave
            it empty where the free tokens are enough.
        wake_s: when to ask again although nothing happened, on the clock of `plan`'s `now`; for
            policies that let the engine rest while requests are there.
    """

    entries: tuple[tuple[str, int], ...] = ()
    evictable: tuple[str, ...] = ()
    wake_s: float = math.inf

    def __bool__(self) -> bool:
        return bool(self.entries)

    @cached_property
    def keys(self) -> frozenset[str]:
        """The sequences that take part."""
        return frozenset(key for key, _ in self.entries)


class Policy(Protocol):
    """Decides each step. No clock, no I/O, no engine in sight.

    The serving loop calls `plan` once before every step, from one thread. The generations are
    those that could take part: blocked and ended ones are left out. A policy may keep state
    between calls but must not change a generation.
    """

    whole_plans: bool
    """Deliver a plan only when all of it is there (what continuous batching does)."""

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return who takes part in the next step; an empty plan means that nobody should."""
        ...
