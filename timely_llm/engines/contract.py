"""The contract of engines: what the serving loop calls. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult


@dataclass(frozen=True)
class Prefix:
    """A pinned beginning of prompts: computed once, shared, kept until it is unpinned."""

    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Decoding:
    """How a sequence's next token is chosen.

    Attributes:
        temperature: 0 for the most likely token; above 0, logits are divided by it and the token is
            sampled.
        seed: seed of the sampling. Each sequence samples by itself: other sequences in its steps
            change nothing.
        grammar: in Lark's notation; only tokens that it allows are chosen. None: all are allowed.
        read: tokens that the grammar has read when the sequence is added. Another engine generated
            them, and they are a part of the prompt.
        logprobs: whether `StepResult.logprobs` has the sequence's new tokens.
    """

    temperature: float = 0.0
    seed: int = 0
    grammar: str | None = None
    read: tuple[int, ...] = ()
    logprobs: bool = False


GREEDY = Decoding()


class Engine(Protocol):
    """Runs steps over named sequences.

    One thread owns an engine. The loop calls `add`, then any number of `submit` and `collect`, then
    `remove`. A sequence that is left out of a step keeps its KV: suspension is nothing else.

    *Steps in flight.* A step is in flight from `submit` to `collect`. At most `in_flight` steps are
    in flight; they are collected in order. A sequence of a step in flight keeps its KV. It can take
    part in the next step to compute tokens that are known (a prompt). Only with `async_scheduling`
    may it also decode before its newest token is known. `take_back`, `append`, `resume` and
    `remove` invalidate the sequence in steps in flight: the results of these steps leave it out.

    *Progress.* The engine alone counts the progress of its sequences. Every method that changes a
    sequence returns its `SequenceProgress`, and so does `collect`.

    Attributes:
        in_flight: most steps in flight.
        async_scheduling: whether a sequence can take part in a step while its newest token is
            pending.

    Raises:
        EngineError: from any method, if the engine cannot carry out the call. The sequences of a
            failed step stay known and can be removed. Other steps in flight may be lost with it;
            `collect` then raises that there is none.
        EngineLost: from any method, also `capacity`, if the engine has ended by itself, for example
            because a process that it needs has ended. Only `remove` and `close` can be called
            after it; they raise nothing.
    """

    in_flight: int
    async_scheduling: bool

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the model."""
        ...

    @property
    def capacity(self) -> Capacity:
        """Limits of the next step."""
        ...

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute a prefix once and keep its KV; a second call returns the same prefix.

        Raises:
            EngineError: it is too long, there is no room for its KV, or a step is in flight.
        """
        ...

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute a part of a prefix that is pinned later, so that steps can run in between.

        The first part takes the KV of the whole prefix. One prefix is prepared at a time.

        Args:
            token_ids: the whole prefix.
            tokens: most tokens to compute now, at least 1.

        Returns:
            The tokens that `pin_prefix` has left to compute.

        Raises:
            EngineError: as `pin_prefix`, or another prefix is being prepared; no part of it is kept
                then.
        """
        ...

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Free the KV of a pinned or prepared prefix; an unknown one is not an error.

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
    ) -> SequenceProgress:
        """Add a sequence; nothing is computed yet.

        Args:
            key: name of the sequence; must be new.
            token_ids: the whole prompt, the prefix included.
            prefix: a pinned prefix that the prompt begins with; the prompt is longer. None: the
                sequence shares no KV.
            decoding: how its tokens are chosen.

        Returns:
            Progress of the sequence.

        Raises:
            EngineError: the key is taken, the prompt leaves no room for an answer, the prefix is
                not its beginning or not this engine's, the temperature is impossible, or the
                grammar cannot be used.
        """
        ...

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        """Start one forward pass over the plan's sequences.

        An entry has the most tokens that its sequence computes in this step. The engine evicts no
        more sequences of `evictable` than the step needs. Unknown keys, and sequences that the plan
        itself names, are skipped. A sequence that cannot be served fails alone and can be in a
        later plan: its KV has no room, it is as long as a sequence may be, or its grammar allows no
        next token.

        *Speculative decoding.* An entry with more than 1 token for a decoding sequence allows the
        engine to draft its next tokens and to compute them in the same step. Drafted tokens take
        only what the plan leaves of the step and of the KV: no sequence is evicted for them.

        *KV loads.* An engine may find KV of the same tokens, or load it from elsewhere, instead of
        computing it. It may load more tokens than the entry has if there is KV to spare. A load
        that finishes later keeps its sequence out of this step and of later ones until it is done;
        its KV cannot be evicted meanwhile. A plan that has only such sequences is no forward pass:
        it only polls the loads.

        Returns:
            Progress of each of the plan's sequences with this step in flight, and of each that was
            evicted for it, for the next plan; empty if only one step can be in flight.

        Raises:
            EngineError: the plan is empty, exceeds `capacity`, or names a sequence that is unknown,
                that is there twice, or that waits for a step in flight.
        """
        ...

    def collect(self) -> StepResult:
        """Wait for the oldest step in flight and return its result."""
        ...

    def take_back(self, key: str, tokens: int) -> SequenceProgress:
        """Remove the newest tokens of a sequence: accepted speculative tokens of its last step.

        Args:
            key: the sequence; it got no tool output since its last step.
            tokens: number of tokens, fewer than the last step's new ones. 0: the sequence is only
                invalidated in steps in flight.

        Returns:
            Progress of the sequence.

        Raises:
            EngineError: the key is unknown, or there are too few such tokens.
        """
        ...

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> SequenceProgress:
        """Add tool output (a skill's return value) to a sequence; later steps compute it.

        A grammar reads no tool output. If the newest token is dropped, the grammar reads only the
        beginning that its text has in common with the tool output.

        Args:
            key: the sequence.
            token_ids: the tool output.
            drop: 1: the tool output replaces the newest token, which is not computed yet. It is
                needed when that token's text goes beyond the last statement. 0: it follows.

        Returns:
            Progress of the sequence.

        Raises:
            EngineError: the key is unknown, the sequence would be too long, or the newest token was
                computed.
        """
        ...

    def resume(
        self,
        key: str,
        new_key: str,
        token_ids: Sequence[int],
        decoding: Decoding = GREEDY,
        keep: int | None = None,
    ) -> SequenceProgress:
        """Rename a sequence and add tokens to it: the next turn of a conversation.

        With `keep` it goes on from its first tokens: a prompt that begins like an earlier one. The
        tokens after them are forgotten, and their KV is free at once.

        Args:
            key: the sequence; the engine does not know this name any more.
            new_key: must be new.
            token_ids: tokens that follow, at least one.
            decoding: how its next tokens are chosen; a grammar begins with the next one.
            keep: tokens of the sequence that stay, its shared ones at least; None: all.

        Returns:
            Progress of the sequence.

        Raises:
            EngineError: as in `add` and `append`, or `keep` is out of its range; nothing has
                changed then.
        """
        ...

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        ...

    def close(self) -> None:
        """Free the engine."""
        ...


Message = Mapping[str, str]
"""One chat message: {"role": "system" | "user" | "assistant", "content": text}."""


class TextStream(Protocol):
    """Decodes token ids into text one by one."""

    def push(self, token_id: int) -> str:
        """Return the text that `token_id` completes; empty while a character is incomplete."""
        ...


class Tokenizer(Protocol):
    """Converts text to token ids and back.

    Attributes:
        eos_ids: tokens that end an answer.
    """

    eos_ids: frozenset[int]

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the prompt's token ids, generation prompt included, by the model's template.

        Raises:
            RequestError: the template does not take the messages.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """Return the token ids of bare text, nothing added; none is a control token."""
        ...

    def control_text(self, text: str) -> str | None:
        """Return the first control token that a text spells; None: it spells none.

        A control token in a chat message could end a turn.
        """
        ...

    def stream(self) -> TextStream:
        """Return a new decoder for one generation."""
        ...
