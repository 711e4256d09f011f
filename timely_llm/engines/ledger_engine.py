"""The accounting of steps and their KV, and a base of engines that use it.

`KvLedger` decides what of a step plan fits, which sequences are evicted for it, and what each step
has changed. An engine with a model of its own computes in between. `LedgerEngine` does all that the
contract asks for but the computing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult
from timely_llm.engines.contract import GREEDY, Decoding, Prefix, Tokenizer
from timely_llm.engines.sequences import (
    AdmittedSequence,
    AdmittedStep,
    EngineLimits,
    InFlightSteps,
    Sequences,
    SequenceState,
    check_plan,
)


def rounded(tokens: int, block_tokens: int) -> int:
    """Return `tokens` rounded up to whole KV blocks."""
    return -(-tokens // block_tokens) * block_tokens


class KvBudget:
    """KV tokens that the rows of one step can still take.

    Args:
        free_tokens: free KV tokens when the plan was made; negative if rows of earlier steps began
            blocks beyond it.
        spare_tokens: tokens of spare blocks.
        block_tokens: tokens of a KV block.
        victims: sequences that can be evicted, the first victim first.
    """

    def __init__(
        self,
        free_tokens: int,
        spare_tokens: int,
        block_tokens: int,
        victims: Iterable[SequenceState],
    ) -> None:
        self._planned = max(free_tokens, 0)
        self._stored = free_tokens + spare_tokens
        self._block_tokens = block_tokens
        self._victims = list(victims)

    @property
    def tokens(self) -> int:
        """Most KV tokens that a row can get, evictions included."""
        return self._planned + sum(map(self._tokens_of, self._victims))

    def reserve(self, sequence: SequenceState, tokens: int) -> list[SequenceState] | None:
        """Take the KV for `tokens` more tokens of a sequence.

        Returns:
            The sequences that are evicted for it; None: even all evictions are not enough.
        """
        block = self._block_tokens
        kv_tokens = sequence.kv_tokens
        begun = rounded(kv_tokens + tokens, block) - rounded(kv_tokens, block)
        if not begun:  # the tokens fit into the sequence's last block
            return []
        cost = tokens if tokens < begun else begun  # plans count tokens, not blocks
        lacking = max(cost - self._planned, begun - self._stored)
        if lacking > 0 and lacking > sum(map(self._tokens_of, self._victims)):
            return None
        evicted = []
        while lacking > 0:
            victim = self._victims.pop(0)
            evicted.append(victim)
            freed = self._tokens_of(victim)
            lacking -= freed
            self._planned += freed
            self._stored += freed
        self._planned -= cost
        self._stored -= begun
        return evicted

    def _tokens_of(self, sequence: SequenceState) -> int:
        return rounded(sequence.kv_tokens, self._block_tokens)


def allowed_speculation(
    plan: StepPlan,
    admitted: AdmittedStep,
    offered: Mapping[str, int],
    limits: EngineLimits,
    block_tokens: int,
) -> dict[str, int]:
    """Return the speculative tokens that each sequence of a step computes; 0 is left out.

    They fill what the plan leaves of the step, and the KV block of the sequence's own token. So
    rejected tokens hold no block, and no sequence is evicted for speculation.

    Args:
        plan: the submitted plan.
        admitted: the part of it that is carried out.
        offered: drafted tokens by key.
        limits: limits of the engine.
        block_tokens: tokens of a KV block.
    """
    wanted = dict(plan.entries)
    left = limits.max_step_tokens - sum(part.tokens for part in admitted.sequences)
    speculative = {}
    for part in admitted.sequences:
        sequence = part.sequence
        if part.tokens > 1 or not part.finishes:
            continue
        in_block = -part.stop % block_tokens
        in_length = limits.max_model_len - 1 - len(sequence.token_ids)
        tokens = min(
            offered.get(sequence.key, 0), wanted[sequence.key] - 1, in_block, in_length, left
        )
        if tokens > 0:
            speculative[sequence.key] = tokens
            left -= tokens
    return speculative


class KvLedger:
    """Accounting of steps: which sequences take part, which are evicted, what has changed.

    Plans count tokens, not blocks: the rows of a plan may begin blocks that hold more than was
    free. One spare block per row absorbs this; it counts as taken in later steps.

    Args:
        sequences: the engine's sequences; the ledger changes their progress.
        speculative_tokens: most speculative tokens of a sequence in a step.
        async_scheduling: a sequence can take part in a step while its newest token is pending.
    """

    def __init__(
        self, sequences: Sequences, speculative_tokens: int = 0, async_scheduling: bool = False
    ) -> None:
        self._sequences = sequences
        self._speculative_tokens = speculative_tokens
        self._async_scheduling = async_scheduling
        limits = sequences.limits
        rows = min(limits.max_rows, limits.max_step_tokens)
        self._spare_tokens = rows * sequences.block_tokens
        self._evicted: list[str] = []
        self._shortened: list[str] = []

    @property
    def capacity(self) -> Capacity:
        """Limits of the next step."""
        limits = self._sequences.limits
        return Capacity(
            max(self._sequences.free_tokens, 0), limits.max_rows, limits.max_step_tokens,
            limits.max_model_len, self._speculative_tokens,
        )  # fmt: skip

    def progress(self, sequence: SequenceState) -> SequenceProgress:
        """Return the progress of a sequence."""
        return sequence.progress(self._async_scheduling)

    def planned(self, plan: StepPlan, admitted: AdmittedStep) -> dict[str, SequenceProgress]:
        """Return the progress of a plan's sequences, and of evicted ones, by key."""
        keys = [key for key, _ in plan.entries]
        keys += [sequence.key for sequence in admitted.evicted]
        return {key: self.progress(self._sequences[key]) for key in keys}

    def evict(self, sequence: SequenceState) -> None:
        """Record that the KV of a sequence is freed; the next result names it."""
        sequence.invalidate()
        sequence.computed = sequence.shared
        self._evicted.append(sequence.key)

    def shorten(self, sequence: SequenceState) -> None:
        """Record that a sequence keeps only whole blocks; the next result has its progress."""
        sequence.computed = self._sequences.whole_blocks(sequence.computed)
        self._shortened.append(sequence.key)

    def cut(self, sequence: SequenceState) -> None:
        """Record that a sequence goes on from its first tokens, and has lost the others."""

    def clear(self) -> None:
        """Remove all sequences and prefixes."""
        self._sequences.clear()
        self._evicted.clear()
        self._shortened.clear()

    def spare_tokens(self, plan: StepPlan) -> int:
        """Return the KV tokens that a plan leaves free, in whole blocks."""
        by_key, block = self._sequences.by_key, self._sequences.block_tokens
        planned = ((by_key.get(key), wanted) for key, wanted in plan.entries)
        needed = sum(
            rounded(min(wanted, sequence.to_compute), block)
            for sequence, wanted in planned
            if sequence is not None
        )
        return self._sequences.free_tokens - needed

    def admit(
        self,
        plan: StepPlan,
        fetch: Callable[[AdmittedSequence, int], AdmittedSequence | None] | None = None,
    ) -> AdmittedStep:
        """Return the part of a plan that fits, and evict no more sequences than it needs.

        A sequence with KV that is still being loaded is left out.

        Args:
            plan: the submitted plan.
            fetch: takes a part and the tokens of its entry; returns the part after a KV load, or
                None if the load finishes later. None: there are no KV loads.

        Raises:
            EngineError: the plan names an unknown sequence or one twice, or breaks a limit.
        """
        by_key, limits = self._sequences.by_key, self._sequences.limits
        check_plan(plan, self._to_compute, limits.max_rows, limits.max_step_tokens)
        victims = [
            by_key[key]
            for key in dict.fromkeys(plan.evictable)
            if key in by_key and key not in plan.keys and self._can_evict(by_key[key])
        ]
        sequences = self._sequences
        budget = KvBudget(
            sequences.free_tokens, self._spare_tokens, sequences.block_tokens, victims
        )
        admitted: list[AdmittedSequence] = []
        evicted: list[SequenceState] = []
        failures: dict[str, str] = {}
        for key, wanted in plan.entries:
            sequence = by_key[key]
            if sequence.loading:
                continue
            tokens = min(wanted, self._can_compute(sequence))
            if len(sequence.token_ids) + sequence.pending_tokens >= limits.max_model_len:
                most = limits.max_model_len
                failures[key] = f"the sequence has {most} tokens, the most a sequence may have"
                continue
            given_up = budget.reserve(sequence, tokens)
            if given_up is None:
                failures[key] = (
                    f"no room for the KV of {tokens} tokens: {budget.tokens} of {limits.kv_tokens}"
                    " can be had"
                )
                continue
            for victim in given_up:
                self.evict(victim)
            evicted += given_up
            asked = AdmittedSequence.of(sequence, sequence.computed, tokens)
            part = fetch(asked, wanted) if fetch else asked
            if part is not None:
                admitted.append(part)
        return AdmittedStep(tuple(admitted), tuple(evicted), failures)

    def start(self, admitted: AdmittedStep) -> None:
        """Record that a step is in flight, so that another one can be admitted before `commit`."""
        for sequence, _, tokens, finishes, _, loaded in admitted.sequences:
            sequence.computed += tokens + loaded
            sequence.steps_in_flight += 1
            sequence.pending_tokens += finishes

    def lose(self, part: AdmittedSequence) -> None:
        """Record that the KV load of an in-flight part has failed."""
        part.sequence.invalidate()
        part.sequence.computed = part.start - part.loaded

    def commit(
        self,
        admitted: AdmittedStep,
        new_tokens: Mapping[str, Sequence[int]],
        duration_s: float,
        speculative: Mapping[str, int] | None = None,
        loaded: Mapping[str, int] | None = None,
        loading: tuple[str, ...] = (),
    ) -> StepResult:
        """Record what a step did and return its result.

        Args:
            admitted: the step.
            new_tokens: by key, for each part that `finishes`: the accepted speculative tokens and
                one more.
            duration_s: seconds of the step.
            speculative: speculative tokens that were computed, by key.
            loaded: as `StepResult.loaded`.
            loading: as `StepResult.loading`.
        """
        by_key = self._sequences.by_key
        computed: dict[str, int] = {}
        recomputed = {}
        # Includes the evictions of an earlier step that failed and had no result.
        evicted, self._evicted = tuple(self._evicted), []
        shortened, self._shortened = self._shortened, []
        progress: dict[str, SequenceProgress] = {}
        for part in admitted.sequences:
            sequence, start, tokens, finishes, *_ = part
            if not part.live:
                if sequence.key in by_key:
                    progress[sequence.key] = self.progress(by_key[sequence.key])
                continue
            stop = start + tokens
            if sequence.steps_in_flight:
                sequence.steps_in_flight -= 1
                sequence.pending_tokens -= finishes
            if finishes:
                new_ids = new_tokens[sequence.key]
                sequence.token_ids += new_ids
                sequence.newest_tokens = len(new_ids)
                stop += len(new_ids) - 1
            if start < sequence.most_computed:
                recomputed[sequence.key] = min(stop, sequence.most_computed) - start
            sequence.computed = max(sequence.computed, stop)
            sequence.most_computed = max(sequence.most_computed, stop)
            computed[sequence.key] = stop - start
            progress[sequence.key] = sequence.progress(self._async_scheduling)
        for key in (*admitted.failures, *evicted, *shortened, *(loaded or ()), *loading):
            if key in by_key:
                progress[key] = by_key[key].progress(self._async_scheduling)
        return StepResult(
            tokens=new_tokens,
            computed=computed,
            duration_s=duration_s,
            recomputed=recomputed,
            evicted=evicted,
            failures=admitted.failures,
            speculative=speculative or {},
            loaded=loaded or {},
            loading=loading,
            progress=progress,
        )

    def _to_compute(self, key: str) -> int | None:
        sequence = self._sequences.by_key.get(key)
        return None if sequence is None else self._can_compute(sequence)

    def _can_compute(self, sequence: SequenceState) -> int:
        left = sequence.to_compute
        return left if self._async_scheduling else left - sequence.pending_tokens

    @staticmethod
    def _can_evict(sequence: SequenceState) -> bool:
        return sequence.kv_tokens > 0 and not (sequence.steps_in_flight or sequence.loading)


class LedgerEngine:
    """An engine without the computing: a subclass writes `compute`.

    A pinned prefix is not computed by itself: the first step of a sequence begins after it.

    Args:
        tokenizer: tokenizer of the model.
        limits: limits of the engine.
        in_flight: steps that can be submitted before one is collected; `collect` computes.
        async_scheduling: a sequence can take part in a step while its newest token is pending.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        limits: EngineLimits,
        in_flight: int = 1,
        async_scheduling: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.in_flight = in_flight
        self.async_scheduling = async_scheduling
        self._sequences = Sequences(limits)
        self._ledger = KvLedger(self._sequences, async_scheduling=async_scheduling)
        self._in_flight = InFlightSteps[AdmittedStep](in_flight)

    def compute(self, parts: Sequence[AdmittedSequence]) -> Mapping[str, Sequence[int]]:
        """Compute a step.

        Args:
            parts: the tokens from `start` to `stop` of each sequence. The tokens before `start`
                have KV, but for those of a pinned prefix.

        Returns:
            The new token of each part that `finishes`, by key.

        Raises:
            EngineError: the step cannot be computed; its sequences are evicted.
        """
        raise NotImplementedError

    def changed(self, sequence: SequenceState) -> None:
        """Handle a sequence that is new or has got tool output; does nothing by default."""

    def drop_kv(self, key: str) -> None:
        """Free the KV of a sequence that was evicted, removed or renamed, or that failed."""

    def ended(self, key: str) -> None:
        """Free what else is kept of a sequence that was removed or renamed."""

    @property
    def capacity(self) -> Capacity:
        """Limits of the next step."""
        return self._ledger.capacity

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Keep a prefix; see `Engine.pin_prefix`."""
        known = self._sequences.prefix(token_ids)
        if known is None:
            self._sequences.reserve(token_ids)
            known = self._sequences.pin(token_ids)
        return known

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Reserve the KV of a prefix; see `Engine.prepare_prefix`. It leaves nothing to compute."""
        if self._sequences.prefix(token_ids) is None:
            self._sequences.reserve(token_ids)
        return 0

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Free a prefix; see `Engine.unpin_prefix`."""
        self._sequences.unpin(token_ids)

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> SequenceProgress:
        """Add a sequence; see `Engine.add`."""
        return self._noted(self._sequences.add(key, token_ids, prefix, decoding))

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        """Start a step; see `Engine.submit`."""
        self._in_flight.check_capacity()
        admitted = self._ledger.admit(plan)
        for sequence in admitted.evicted:
            self.drop_kv(sequence.key)
        self._ledger.start(admitted)
        self._in_flight.add(admitted)
        return self._ledger.planned(plan, admitted) if self.in_flight > 1 else {}

    def collect(self) -> StepResult:
        """Compute the oldest step and return its result; see `Engine.collect`."""
        admitted = self._in_flight.pop_oldest()
        begin_s = time.perf_counter()
        live = [part for part in admitted.sequences if part.live]
        try:
            new_tokens = self.compute(live) if live else {}
        except Exception:
            for part in live:
                self._ledger.evict(part.sequence)
                self.drop_kv(part.sequence.key)
            raise
        elapsed_s = time.perf_counter() - begin_s
        return self._ledger.commit(admitted, new_tokens, self.step_s(admitted, elapsed_s))

    def step_s(self, admitted: AdmittedStep, elapsed_s: float) -> float:
        """Return the duration of a step, seconds.

        Args:
            admitted: the step.
            elapsed_s: seconds that `compute` took.
        """
        return elapsed_s

    def take_back(self, key: str, tokens: int) -> SequenceProgress:
        """Remove the newest tokens of a sequence; see `Engine.take_back`."""
        return self._ledger.progress(self._sequences.take_back(key, tokens))

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> SequenceProgress:
        """Add tool output; see `Engine.append`."""
        return self._noted(self._sequences.append(key, token_ids, drop))

    def resume(
        self, key: str, new_key: str, token_ids: Sequence[int],
        decoding: Decoding = GREEDY, keep: int | None = None,
    ) -> SequenceProgress:  # fmt: skip
        """Rename a sequence and add tokens; see `Engine.resume`."""
        sequence = self._sequences.resume(key, new_key, token_ids, decoding, keep)
        self._ledger.cut(sequence)
        self._drop(key)
        return self._noted(sequence)

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._sequences.remove(key)
        self._drop(key)

    def close(self) -> None:
        """Free the engine."""
        for key in self._sequences.by_key:
            self._drop(key)
        self._ledger.clear()
        self._in_flight.clear()

    def _drop(self, key: str) -> None:
        self.drop_kv(key)
        self.ended(key)

    def _noted(self, sequence: SequenceState) -> SequenceProgress:
        self.changed(sequence)
        return self._ledger.progress(sequence)
