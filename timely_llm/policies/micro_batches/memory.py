"""KV promised to all that has begun; a prompt may begin without a promise if that pays."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from timely_llm.core.generation import Generation, State, StreamGeneration
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.lengths import AnswerLengths

LOOK_AT = 32
"""Most waiting prompts that a policy sees where memory is tight."""

_SHARE = 0.9
"""Quantile of the learned lengths that is promised."""


_APART = 2.0
"""What a token without a promise is worth, over its share of a cycle: sequences that begin one
after the other also end so, and leave no memory empty at once. With 64/256/256 and overlapping
links of 100 Mbit/s in `pipeline-offline`, 1 is 14 % slower and 10 is 4 % slower."""


class Price(NamedTuple):
    """What a sequence more in each cycle gains, and what its eviction costs.

    Attributes:
        fixed_s: seconds of a cycle that no token makes longer: they are shared by its sequences.
        token_s: seconds that each computed token keeps the busiest stage or link.
    """

    fixed_s: float
    token_s: float

    def pays(self, prompt_tokens: int, cycles: float, rows: int) -> bool:
        """Return whether a sequence that is evicted after some cycles still saves time.

        Args:
            prompt_tokens: tokens of its prompt.
            cycles: cycles until it is evicted, a token each.
            rows: sequences of a cycle, with this one.
        """
        gain_s = _APART * cycles * self.fixed_s / rows
        return gain_s > (prompt_tokens + cycles) * self.token_s


class MemoryPromises:
    """Leaves out prompts of which the whole text has no room beside those that have begun.

    Each that has begun is promised KV to its end: to its declared bound, or to a high quantile of
    the lengths of its class once enough of them have ended. All grow by a token a cycle, and one
    that ends frees its KV for the others, so the largest sum of the future decides, as in Gong et
    al. 2025. A token takes KV in every stage, so the smallest stage decides. Where links are fast
    an eviction costs less than a cycle with fewer sequences: then a prompt begins without a
    promise, if its `Price` says so.

    Attributes:
        missing: KV tokens that each prompt lacks that must not begin now, by key.
    """

    def __init__(self) -> None:
        self.missing: dict[str, int] = {}
        self._lengths = AnswerLengths()
        self._known: dict[str, Generation] = {}
        self._free = self._total = 0
        self._futures: list[tuple[int, int]] = []
        self._price: Price | None = None

    def admitted(
        self, generations: Collection[Generation], capacity: Capacity, price: Price | None = None
    ) -> Collection[Generation]:
        """Return all that has begun, and each prompt that could begin now if it were the only one.

        A policy that saw the others too might plan no other step.

        Args:
            generations: the pool, in order of arrival.
            capacity: limits of the engine.
            price: of an eviction; None: nothing begins without a promise.
        """
        self._learn(generations)
        self._price, self._futures, self.missing = price, [], {}
        self._free = self._total = capacity.free_tokens
        to_say_all, waiting = 0, []
        for generation in generations:
            if generation.kv_tokens <= 0:
                waiting.append(generation)
                continue
            to_compute, to_say = max(generation.to_compute - 1, 0), self.to_say(generation)
            self._total += generation.kv_tokens
            self._free -= to_compute
            to_say_all += to_say
            self._futures.append((-to_say, generation.kv_tokens + to_compute))
        self._futures.sort()
        looked_at = 0
        for generation in waiting:
            to_come = generation.to_compute - 1 + self.to_say(generation)
            if to_say_all + to_come <= self._free:
                continue  # even if none of the others ended before it
            looked_at += 1
            if looked_at > LOOK_AT or self._with(generation) is None:
                self.missing.setdefault(generation.key, to_say_all + to_come - self._free)
        if not self.missing:
            return generations
        return [g for g in generations if g.key not in self.missing]

    def kept(self, plan: StepPlan) -> StepPlan:
        """Return a plan without the prompts that must not begin together, in the plan's order.

        The prompts behind the first one that is left out wait too.

        Args:
            plan: the policy's, for what `admitted` has returned last.
        """
        entries, full = [], False
        for entry in plan.entries:
            generation = self._known[entry[0]]
            if generation.kv_tokens <= 0:
                futures = None if full else self._with(generation)
                if futures is None:
                    full = True
                    self.missing.setdefault(generation.key, generation.to_compute)
                    continue
                self._futures = futures
                self._free -= generation.to_compute - 1
            entries.append(entry)
        return replace(plan, entries=tuple(entries)) if full else plan

    def _with(self, generation: Generation) -> list[tuple[int, int]] | None:
        """Return the futures with a prompt that begins now; None: it must not."""
        prompt, to_say = generation.to_compute - 1, self.to_say(generation)
        futures = self._futures.copy()
        insort(futures, (-to_say, prompt))
        missing = _largest(futures) - self._total
        if self._futures and missing > 0:
            rows = len(futures)
            cycles = min((self._free - prompt) / rows, to_say)
            if self._price is None or not self._price.pays(prompt, cycles, rows):
                self.missing[generation.key] = missing
                return None
        return futures

    def to_say(self, generation: Generation) -> int:
        """Return the tokens that a generation still says."""
        out = len(generation.token_ids)
        return self._lengths.to_go(_class(generation), out, generation.max_tokens, _SHARE)

    def _learn(self, generations: Collection[Generation]) -> None:
        """Know the pool, and learn the length of each text that came to its own end."""
        before, self._known = self._known, {g.key: g for g in generations}
        for key in before.keys() - self._known.keys():
            gone = before[key]
            if gone.state is not State.ENDED:
                self._known[key] = gone  # it executes, is blocked, or loads KV
            elif gone.complete:
                self._lengths.observe(_class(gone), len(gone.token_ids))


def _largest(futures: Sequence[tuple[int, int]]) -> int:
    """Return the most KV tokens at any time from now on.

    Args:
        futures: of each sequence, the negative of the tokens that it still says, and the tokens
            that it holds; sorted.
    """
    held = accumulate(tokens for _, tokens in futures)
    return max(
        tokens - count * to_say
        for count, (tokens, (to_say, _)) in enumerate(zip(held, futures, strict=True), 1)
    )


def _class(generation: Generation) -> Hashable:
    """Return what generations of like lengths have in common."""
    if isinstance(generation, StreamGeneration):
        return generation.request.slo, generation.request.weight
    return getattr(generation.request, "skill_set", None)
