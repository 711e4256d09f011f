"""What the serving loop asks of an engine. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from timely_llm.engines.tokenizer_contract import Tokenizer
from timely_llm.policies.contract import Capacity, StepPlan


@dataclass(frozen=True)
class Prefix:
    """A pinned, shared beginning of prompts: computed once, kept until it is unpinned."""

    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Decoding:
    """How a sequence's next token is chosen.

    Attributes:
        temperature: 0 for the most likely token; else logits are divided by it and a token drawn.
        seed: of the drawing, one stream for each sequence: who shares its steps changes nothing.
        grammar: in Lark's notation; only tokens that it allows are chosen. None: all are.
    """

    temperature: float = 0.0
    seed: int = 0
    grammar: str | None = None


GREEDY = Decoding()


@dataclass(frozen=True)
class StepResult:
    """What one step did.

    Attributes:
        tokens: new token ids by key; only sequences with nothing left to compute get one, and
            more where guesses were right.
        computed: tokens computed by key, right guesses included; not of those struck out.
        recomputed: of these, tokens whose KV had been there before and was given up, by key.
        evicted: keys whose KV was given up for this step; their token ids are kept.
        failures: key -> one sentence, for sequences that this step could not serve.
        duration_s: seconds the step took from when it was submitted, or, where sequences take part
            ahead, from the end of the step before if that was later.
        guessed: tokens that were guessed and computed beside what the plan asked for, by key; those
            that were right are in `tokens`, the others left nothing behind.
        loaded: tokens whose KV was found or fetched instead of computed, by key. Also those of
            sequences that were `loading` and are not any longer: 0 if their KV did not come.
        loading: keys of the plan that computed nothing, since their KV is on its way. They are
            named in `loaded` of a later step, unless they are removed.
    """

    tokens: Mapping[str, Sequence[int]]
    computed: Mapping[str, int]
    duration_s: float
    recomputed: Mapping[str, int] = field(default_factory=dict)
    evicted: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    guessed: Mapping[str, int] = field(default_factory=dict)
    loaded: Mapping[str, int] = field(default_factory=dict)
    loading: tuple[str, ...] = ()

    @property
    def rested(self) -> Set[str]:
        """Keys that computed nothing since their KV is on its way, or has just come."""
        return (self.loaded.keys() - self.computed.keys()).union(self.loading)

    @property
    def waited(self) -> bool:
        """Whether this was no forward pass: the engine only looked for KV that is on its way."""
        return not self.computed and bool(self.rested)

    @property
    def planned(self) -> list[int]:
        """How many of its tokens each sequence computed, guesses left out: 1 if it decoded."""
        if not self.guessed:
            return list(self.computed.values())
        return [
            tokens - (len(self.tokens[key]) - 1 if key in self.guessed else 0)
            for key, tokens in self.computed.items()
        ]


class Engine(Protocol):
    """Runs steps over named sequences.

    One thread owns an engine. The loop calls `add`, then any number of `submit`/`collect`, then
    `remove`. A sequence that is left out of a step keeps its KV: that is all suspension is.

    At most `in_flight` steps may be submitted before one is collected; they are collected in order.
    Until then a step is in flight. A sequence that takes part in it keeps its KV, and can take part
    in the next step with tokens that are known; if the engine goes `ahead`, also with the one that
    is still to come. What is done to such a sequence (`take_back`, `append`, `resume`, `remove`)
    strikes it out of the steps in flight: what they bring is lost, and no result tells of it.

    Raises EngineError, from any method, when the engine as a whole cannot go on with what it was
    given; the sequences of that step are then still known and can be removed. Other steps in
    flight may be lost with it: `collect` then says that there is none.
    Raises EngineLost, also from `capacity`, when it has ended by itself, such as by the end of a
    process that it needs; only `remove` and `close` mean something then, and raise nothing.
    """

    in_flight: int
    ahead: bool

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's words."""
        ...

    @property
    def capacity(self) -> Capacity:
        """What the next step can take."""
        ...

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute `token_ids` once and keep their KV; asking again returns the same prefix.

        Raises:
            EngineError: it is too long, there is no room for its KV, or a step is in flight.
        """
        ...

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute a part of a prefix that is pinned later, so that steps can be made in between.

        Room for all of its KV is taken with the first part. One prefix is prepared at a time.

        Args:
            token_ids: the whole prefix.
            tokens: the most to compute now, at least 1.

        Returns:
            How many tokens `pin_prefix` has left to compute.

        Raises:
            EngineError: as `pin_prefix`, or another prefix is being prepared; nothing of it is kept
                then.
        """
        ...

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Free the KV of a prefix that is pinned or prepared; an unknown one is not an error.

        Raises:
            EngineError: a sequence begins with it; it stays pinned then.
        """
        ...

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> int:
        """Make a sequence known; nothing is computed yet.

        Args:
            key: its name; must be new.
            token_ids: the whole prompt, the prefix included.
            prefix: a pinned prefix that the prompt begins with, and is longer than.
            decoding: how its tokens are chosen.

        Returns:
            How many of its tokens are left to compute.

        Raises:
            EngineError: the key is taken, the prompt leaves no room for an answer, the prefix is
                not its beginning or not this engine's, the temperature is not possible, or the
                grammar cannot be used.
        """
        ...

    def submit(self, plan: StepPlan) -> None:
        """Start one forward pass over the plan's sequences.

        An entry's tokens are the most it computes; with fewer left, it computes those. Of
        `evictable`, the engine gives up no more than it needs; keys that it does not know or that
        take part are passed over. A sequence that cannot be served (no room for its KV, at the
        most tokens a sequence may have, no next token) fails alone, and can be in a later plan.

        An entry of more tokens than 1 for a sequence that decodes lets an engine guess its next
        tokens and compute them in the same step, as far as the plan leaves tokens of a step and
        room for KV: nobody gives up KV for a guess.

        An engine may find KV of the same tokens, or fetch it from elsewhere, instead of computing
        it, beyond what an entry asks for if there is room to spare. If it comes later, its sequence
        computes nothing, in this step and in others until it is there; its memory is taken, and not
        evictable. A plan of such sequences alone is no forward pass: it only looks whether KV has
        come.

        Raises:
            EngineError: the plan is empty, is larger than `capacity` allows, or names a sequence
                that is unknown, that is there twice, or that waits for a step in flight.
        """
        ...

    def collect(self) -> StepResult:
        """Wait for the oldest submitted step and return what it did."""
        ...

    def take_back(self, key: str, tokens: int) -> int:
        """Forget the newest tokens of a sequence, as if its last step had not guessed them.

        Args:
            key: the sequence; since its last step it was given no words.
            tokens: how many; fewer than that step's new ones. 0: only what steps in flight bring.

        Returns:
            How many of its tokens are left to compute.

        Raises:
            EngineError: the key is unknown, or there are too few such tokens.
        """
        ...

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> int:
        """Add outside words (a skill's return value) to a sequence; they are computed later.

        A grammar does not see them, but for what they and a dropped token begin with alike: the
        part of its text that is kept.

        Args:
            key: the sequence.
            token_ids: the words.
            drop: 1 if they take the place of the newest token, which was generated but not
                computed yet: a token may say more than its plan's last statement.

        Returns:
            How many of its tokens are left to compute.

        Raises:
            EngineError: the key is unknown, the sequence would be too long, or what is to be
                dropped was computed.
        """
        ...

    def resume(
        self, key: str, new_key: str, token_ids: Sequence[int], decoding: Decoding = GREEDY
    ) -> int:
        """Go on with a sequence under another name: a conversation's next turn.

        Args:
            key: the sequence; it is not known by this name any more.
            new_key: must be new.
            token_ids: outside words that follow all that it has, at least one.
            decoding: how its tokens are chosen from now on, without a grammar.

        Returns:
            How many of its tokens are left to compute.

        Raises:
            EngineError: as in `add` and `append`, or there is a grammar; nothing has changed then.
        """
        ...

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        ...

    def close(self) -> None:
        """Free the engine."""
        ...
