"""What an engine's books are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import GREEDY, Decoding, Prefix


@dataclass(frozen=True)
class Limits:
    """What an engine can take.

    Attributes:
        max_model_len: most tokens of one sequence, prompt and answer.
        kv_tokens: tokens of KV, pinned prefixes and sequences together.
        max_rows: most sequences in one step.
        max_step_tokens: most tokens computed in one step.

    Raises:
        EngineError: a limit is below 1.
    """

    max_model_len: int = 2048
    kv_tokens: int = 131_072
    max_rows: int = 64
    max_step_tokens: int = 2048

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value < 1:
                raise EngineError(f"{limit.name} must be at least 1, not {value}")

    def for_model(self, max_positions: int) -> Limits:
        """Return these limits for a model that was made for sequences of `max_positions`."""
        return replace(self, max_model_len=min(self.max_model_len, max_positions))


@dataclass(eq=False)
class Track:
    """One sequence.

    Attributes:
        token_ids: prompt, answer and outside words so far.
        shared: tokens of its pinned prefix.
        computed: tokens whose KV is there, the prefix included.
        reached: tokens that were computed at least once.
        decoding: how its tokens are chosen.
        fresh: how many of its newest tokens the last step generated; the last one of them is not
            computed yet.
        under_way: steps in flight that it takes part in.
        coming: new tokens that these will bring.
        era: counts how often it was struck out of steps in flight.
        loading: of the computed tokens, those whose KV is still on its way; nobody may touch it.
    """

    key: str
    token_ids: list[int]
    prefix: Prefix | None
    shared: int
    computed: int
    reached: int
    decoding: Decoding = GREEDY
    fresh: int = 0
    under_way: int = 0
    coming: int = 0
    era: int = 0
    loading: int = 0

    @property
    def to_compute(self) -> int:
        """Tokens whose KV is not there, nor in the making; those to come are among them."""
        return len(self.token_ids) + self.coming - self.computed

    @property
    def kv_tokens(self) -> int:
        """Tokens whose KV is its own."""
        return self.computed - self.shared

    def strike_out(self) -> None:
        """Have no part in steps in flight any more: what they bring is for nobody."""
        if self.under_way:
            self.under_way = self.coming = 0
            self.era += 1
            self.computed = min(self.computed, len(self.token_ids) - 1)


class Part(NamedTuple):
    """What one sequence computes in a step.

    Attributes:
        track: the sequence.
        start: tokens whose KV is there before it.
        tokens: tokens that it computes.
        finishes: whether nothing is left to compute after it, so that a new token comes of it.
        era: the sequence's when it was admitted.
        loaded: tokens before `start` that are not computed but found or fetched.
    """

    track: Track
    start: int
    tokens: int
    finishes: bool
    era: int
    loaded: int = 0

    @classmethod
    def of(cls, track: Track, start: int, tokens: int, loaded: int = 0) -> Part:
        """Return a part of a sequence as that is now."""
        finishes = start + tokens == len(track.token_ids) + track.coming
        return cls(track, start, tokens, finishes, track.era, loaded)

    @property
    def stop(self) -> int:
        """Tokens whose KV is there when the step is done."""
        return self.start + self.tokens

    @property
    def live(self) -> bool:
        """Whether its sequence still has part in the step."""
        return self.era == self.track.era


@dataclass(frozen=True)
class Admission:
    """What of a plan is carried out.

    Attributes:
        parts: what to compute, in the plan's order.
        evicted: sequences whose KV was given up.
        failures: key -> one sentence, for entries that are left out.
    """

    parts: tuple[Part, ...]
    evicted: tuple[Track, ...]
    failures: Mapping[str, str]

    def without(self, failures: Mapping[str, str]) -> Admission:
        """Return it for a step in which some more sequences failed."""
        parts = tuple(part for part in self.parts if part.track.key not in failures)
        return replace(self, parts=parts, failures={**self.failures, **failures})
