"""Sequences of an engine: their tokens and progress, their pinned prefixes, their steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Generic, NamedTuple, TypeVar

from timely_llm.core.errors import EngineError
from timely_llm.core.step import SequenceProgress, StepPlan
from timely_llm.engines.contract import GREEDY, Decoding, Prefix


@dataclass(frozen=True)
class EngineLimits:
    """Limits of an engine.

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

    def for_model(self, max_positions: int) -> EngineLimits:
        """Return the limits for a model with at most `max_positions` tokens in a sequence."""
        return replace(self, max_model_len=min(self.max_model_len, max_positions))


def check_plan(
    plan: StepPlan,
    to_compute: Callable[[str], int | None],
    max_rows: int,
    max_step_tokens: int,
) -> None:
    """Check that a plan names known sequences and keeps the limits; KV is not checked.

    Args:
        plan: the plan.
        to_compute: returns the tokens that a step can compute of a sequence; None: unknown key.
        max_rows: most sequences in one step.
        max_step_tokens: most tokens in one step.

    Raises:
        EngineError: the plan is empty, breaks a limit, or names a sequence that is unknown, that is
            there twice, or that waits for a step in flight.
    """
    if not plan.entries:
        raise EngineError("an empty plan is no step")
    if len(plan.keys) < len(plan.entries):
        raise EngineError("a sequence can take part only once in a step")
    if len(plan.entries) > max_rows:
        raise EngineError(f"a step of {len(plan.entries)} sequences: at most {max_rows} fit")
    total = 0
    for key, tokens in plan.entries:
        left = to_compute(key)
        if left is None:
            raise EngineError(f"the plan names {key!r}, which the engine does not know")
        if left < 1:
            raise EngineError(f"the plan names {key!r}, which waits for a step in flight")
        if tokens < 1:
            raise EngineError(f"the plan gives {key!r} {tokens} tokens, at least 1 is needed")
        total += min(tokens, left)
    if total > max_step_tokens:
        raise EngineError(f"a step of {total} tokens: at most {max_step_tokens} fit")


@dataclass(eq=False)
class SequenceState:
    """State of one sequence. Its engine owns it.

    Attributes:
        key: name of the sequence.
        token_ids: prompt, answer and tool output so far.
        prefix: the pinned prefix that it begins with; None: it shares no KV.
        shared: tokens with KV of the pinned prefix.
        computed: tokens with KV, `shared` and tokens of steps in flight included.
        most_computed: tokens that were computed at least once.
        decoding: how its next tokens are chosen.
        newest_tokens: new tokens of its last step; the last of them has no KV yet.
        steps_in_flight: steps in flight that it takes part in.
        pending_tokens: new tokens expected from steps in flight.
        version: incremented by `invalidate`; in-flight steps of an older version are void.
        loading: tokens of `computed` with KV that is still being loaded; no step may use it.
    """

    key: str
    token_ids: list[int]
    prefix: Prefix | None
    shared: int
    computed: int
    most_computed: int
    decoding: Decoding = GREEDY
    newest_tokens: int = 0
    steps_in_flight: int = 0
    pending_tokens: int = 0
    version: int = 0
    loading: int = 0

    @property
    def to_compute(self) -> int:
        """Tokens without KV that no step in flight computes, pending tokens included."""
        return len(self.token_ids) + self.pending_tokens - self.computed

    @property
    def kv_tokens(self) -> int:
        """Tokens with KV of its own: an eviction frees them."""
        return self.computed - self.shared

    def progress(self, async_scheduling: bool) -> SequenceProgress:
        """Return the progress of the sequence.

        Args:
            async_scheduling: whether a step can compute pending tokens.
        """
        context = self.computed - self.loading
        tokens = len(self.token_ids) + (self.pending_tokens if async_scheduling else 0)
        return SequenceProgress(
            tokens - context, context, self.shared, self.pending_tokens, self.loading > 0
        )

    def invalidate(self) -> None:
        """Remove the sequence from steps in flight; their results for it are discarded."""
        if self.steps_in_flight:
            self.steps_in_flight = self.pending_tokens = 0
            self.version += 1
            self.computed = min(self.computed, len(self.token_ids) - 1)


class AdmittedSequence(NamedTuple):
    """The part of a sequence that one step computes.

    Attributes:
        sequence: the sequence.
        start: tokens with KV before the part.
        tokens: tokens of the part.
        finishes: whether nothing is left to compute after the part, so that a new token follows.
        version: the sequence's version when the part was admitted.
        loaded: tokens right before `start` with KV that is found or loaded by this step.
    """

    sequence: SequenceState
    start: int
    tokens: int
    finishes: bool
    version: int
    loaded: int = 0

    @classmethod
    def of(
        cls, sequence: SequenceState, start: int, tokens: int, loaded: int = 0
    ) -> AdmittedSequence:
        """Return a part of a sequence in its present state."""
        finishes = start + tokens == len(sequence.token_ids) + sequence.pending_tokens
        return cls(sequence, start, tokens, finishes, sequence.version, loaded)

    @property
    def stop(self) -> int:
        """Tokens with KV after the step."""
        return self.start + self.tokens

    @property
    def live(self) -> bool:
        """Whether the part still counts: its sequence was not invalidated."""
        return self.version == self.sequence.version


@dataclass(frozen=True)
class AdmittedStep:
    """The part of a plan that an engine carries out.

    Attributes:
        sequences: what to compute, in the plan's order.
        evicted: sequences that were evicted for it.
        failures: key -> one sentence, for entries that are left out.
    """

    sequences: tuple[AdmittedSequence, ...]
    evicted: tuple[SequenceState, ...]
    failures: Mapping[str, str]

    def without(self, failures: Mapping[str, str]) -> AdmittedStep:
        """Return the step after more sequences have failed."""
        parts = tuple(part for part in self.sequences if part.sequence.key not in failures)
        return replace(self, sequences=parts, failures={**self.failures, **failures})


T = TypeVar("T")


class InFlightSteps(Generic[T]):
    """What an engine keeps of each step in flight, the oldest step first.

    Args:
        most: steps that can be in flight.
    """

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._steps: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[T]:
        return iter(self._steps)

    @property
    def oldest(self) -> T:
        """The oldest step.

        Raises:
            EngineError: there is none.
        """
        if not self._steps:
            raise EngineError("there is no step to collect")
        return self._steps[0]

    @property
    def newest(self) -> T:
        """The newest step; there is one."""
        return self._steps[-1]

    def check_capacity(self) -> None:
        """Check that another step can be submitted.

        Raises:
            EngineError: one must be collected first.
        """
        if len(self._steps) >= self._most:
            raise EngineError("collect the submitted step before another one is submitted")

    def add(self, step: T) -> None:
        """Add a submitted step."""
        self._steps.append(step)

    def pop_oldest(self) -> T:
        """Remove the oldest step and return it.

        Raises:
            EngineError: there is none.
        """
        if not self._steps:
            raise EngineError("there is no step to collect")
        return self._steps.popleft()

    def clear(self) -> None:
        """Remove all steps."""
        self._steps.clear()


class Sequences:
    """The sequences and pinned prefixes of an engine, and the KV that both hold.

    Args:
        limits: limits of the engine.
        block_tokens: tokens of a KV block: KV is stored, shared and freed in whole blocks.

    Attributes:
        by_key: the sequences.
    """

    def __init__(self, limits: EngineLimits, block_tokens: int = 1) -> None:
        self.limits = limits
        self.block_tokens = block_tokens
        self.by_key: dict[str, SequenceState] = {}
        self._prefixes: dict[tuple[int, ...], Prefix] = {}
        self._pinned_tokens = 0
        self._prepared: tuple[int, ...] | None = None

    def __getitem__(self, key: str) -> SequenceState:
        if key not in self.by_key:
            raise EngineError(f"the engine knows no sequence {key!r}")
        return self.by_key[key]

    @property
    def free_tokens(self) -> int:
        """KV tokens that neither a sequence nor a prefix holds; negative if blocks are owed."""
        block, blocks = self.block_tokens, 0
        for sequence in self.by_key.values():
            blocks -= (sequence.shared - sequence.computed) // block
        return self.limits.kv_tokens - self._pinned_tokens - blocks * block

    def prefix(self, token_ids: Sequence[int]) -> Prefix | None:
        """Return the pinned prefix of these tokens; None: there is none."""
        return self._prefixes.get(tuple(token_ids))

    def reserve(self, token_ids: Sequence[int]) -> None:
        """Take the KV of a prefix that will be pinned; a second call for it does nothing.

        Raises:
            EngineError: it is too long, there is no room for its KV, or another prefix is being
                prepared.
        """
        ids, tokens = tuple(token_ids), len(token_ids)
        if ids == self._prepared:
            return
        if self._prepared is not None:
            raise EngineError("another prefix is being prepared: pin it or give it up first")
        if tokens >= self.limits.max_model_len:
            raise EngineError(
                f"a prefix of {tokens} tokens leaves no room for a task: it must be shorter than"
                f" max_model_len, {self.limits.max_model_len}"
            )
        free = self.free_tokens
        if tokens > free:
            raise EngineError(
                f"no room to pin a prefix of {tokens} tokens, {free} are free:"
                f" raise kv_tokens, now {self.limits.kv_tokens}"
            )
        self._pinned_tokens += self.whole_blocks(tokens)
        self._prepared = ids

    def pin(self, token_ids: Sequence[int]) -> Prefix:
        """Pin a prefix after `reserve`; return it."""
        prefix = Prefix(tuple(token_ids))
        self._prefixes[prefix.token_ids] = prefix
        self._prepared = None
        return prefix

    def unpin(self, token_ids: Sequence[int]) -> Prefix | None:
        """Free the KV of a pinned or reserved prefix; return it if it was pinned.

        Raises:
            EngineError: a sequence begins with it.
        """
        ids = tuple(token_ids)
        prefix = self._prefixes.get(ids)
        users = sum(one.prefix == prefix for one in self.by_key.values()) if prefix else 0
        if users:
            raise EngineError(f"{users} sequences begin with the prefix: remove them first")
        if prefix is None and ids != self._prepared:
            return None
        if prefix is None:
            self._prepared = None
        self._prefixes.pop(ids, None)
        self._pinned_tokens -= self.whole_blocks(len(ids))
        return prefix

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None,
        decoding: Decoding = GREEDY,
    ) -> SequenceState:
        """Add a sequence.

        Raises:
            EngineError: the key is taken, the prompt is too short or too long, the prefix is not
                pinned here or not its beginning, or the temperature is impossible.
        """
        if key in self.by_key:
            raise EngineError(f"the engine has a sequence {key!r} already")
        begins = len(prefix.token_ids) if prefix else 0
        if prefix and begins and prefix.token_ids not in self._prefixes:
            raise EngineError(f"the prefix of {key!r} is not pinned in this engine")
        if prefix and tuple(token_ids[:begins]) != prefix.token_ids:
            raise EngineError(f"the prompt of {key!r} does not begin with its prefix")
        if len(token_ids) <= begins:
            raise EngineError(
                f"the prompt of {key!r} has {len(token_ids)} tokens, it must have more than the"
                f" {begins} of its prefix"
            )
        _check_decoding(decoding)
        self._check_length(f"the prompt of {key!r}", len(token_ids))
        shared = self.whole_blocks(begins)
        own = prefix if shared else None
        sequence = SequenceState(key, list(token_ids), own, shared, shared, begins, decoding)
        self.by_key[key] = sequence
        return sequence

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> SequenceState:
        """Add tool output to a sequence; with `drop` 1 it replaces the newest token.

        Raises:
            EngineError: the key is unknown, the sequence would be too long, or its newest token
                was computed or not generated.
        """
        sequence = self[key]
        if drop not in (0, 1):
            raise EngineError(f"only the newest token can be dropped, not {drop} tokens")
        if drop and not (sequence.newest_tokens and token_ids):
            raise EngineError(
                f"{key!r} has no generated token that was not computed, to put words in its place"
            )
        tokens = len(sequence.token_ids) - drop + len(token_ids)
        self._check_length(f"{key!r} with what it is given", tokens)
        sequence.invalidate()
        sequence.token_ids[len(sequence.token_ids) - drop :] = token_ids
        if token_ids:
            sequence.newest_tokens = 0
        return sequence

    def take_back(self, key: str, tokens: int) -> SequenceState:
        """Remove the newest tokens of a sequence, and invalidate it in steps in flight.

        The token before them is computed again.

        Raises:
            EngineError: the key is unknown, or its last step has not generated more tokens.
        """
        sequence = self[key]
        if tokens and not 0 < tokens < sequence.newest_tokens:
            raise EngineError(
                f"{tokens} tokens of {key!r} cannot be taken back: its last step has"
                f" {sequence.newest_tokens} new ones, of which one must stay"
            )
        sequence.invalidate()
        if tokens:
            del sequence.token_ids[-tokens:]
            sequence.newest_tokens -= tokens
            sequence.computed = min(sequence.computed, len(sequence.token_ids) - 1)
            sequence.most_computed = min(sequence.most_computed, len(sequence.token_ids))
        return sequence

    def resume(
        self,
        key: str,
        new_key: str,
        token_ids: Sequence[int],
        decoding: Decoding,
        keep: int | None = None,
    ) -> SequenceState:
        """Keep the first tokens of a sequence, all by default, add tokens, and rename it.

        Raises:
            EngineError: the key is unknown, the new one is taken, there are no tokens, the sequence
                would be too long, `keep` is out of its range, or the decoding is impossible;
                nothing has changed then.
        """
        if new_key in self.by_key:
            raise EngineError(f"the engine has a sequence {new_key!r} already")
        if not token_ids:
            raise EngineError(f"{key!r} cannot go on without words")
        _check_decoding(decoding)
        sequence = self[key]
        if keep is not None:
            least, most = sequence.shared, len(sequence.token_ids)
            if not least <= keep <= most:
                raise EngineError(f"{key!r} can keep {least} to {most} of its tokens, not {keep}")
            self._check_length(f"{key!r} with what it is given", keep + len(token_ids))
            sequence.invalidate()
            del sequence.token_ids[keep:]
            sequence.computed = min(sequence.computed, keep)
            sequence.most_computed = min(sequence.most_computed, keep)
        self.append(key, token_ids)
        del self.by_key[key]
        self.by_key[new_key] = sequence
        sequence.key, sequence.decoding = new_key, decoding
        return sequence

    def remove(self, key: str) -> None:
        """Remove a sequence; an unknown key is not an error."""
        sequence = self.by_key.pop(key, None)
        if sequence is not None:
            sequence.invalidate()

    def clear(self) -> None:
        """Remove all sequences and prefixes."""
        self.by_key.clear()
        self._prefixes.clear()
        self._pinned_tokens = 0
        self._prepared = None

    def whole_blocks(self, tokens: int) -> int:
        """Return the part of `tokens` that fills whole blocks; only whole blocks are shared."""
        return tokens // self.block_tokens * self.block_tokens

    def _check_length(self, what: str, tokens: int) -> None:
        if tokens >= self.limits.max_model_len:
            raise EngineError(
                f"{what} has {tokens} tokens, it must have fewer than max_model_len,"
                f" {self.limits.max_model_len}"
            )


def _check_decoding(decoding: Decoding) -> None:
    if not (math.isfinite(decoding.temperature) and decoding.temperature >= 0):
        raise EngineError(f"the temperature must be 0 or more, not {decoding.temperature}")
