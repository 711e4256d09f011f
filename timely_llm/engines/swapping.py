"""The simulated engine with host memory: evicted KV is copied there and loaded again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from timely_llm.core.clock import Clock
from timely_llm.core.errors import EngineError
from timely_llm.core.step import StepPlan, StepResult
from timely_llm.engines.ledger_engine import KvLedger
from timely_llm.engines.sequences import (
    AdmittedSequence,
    AdmittedStep,
    EngineLimits,
    Sequences,
    SequenceState,
)
from timely_llm.engines.simulated import PROFILES, Profile, Script, SimulatedEngine


def check_swaps(profile: Profile) -> None:
    """Check that a profile has times of transfers.

    Raises:
        EngineError: it has none.
    """
    if not profile.swap_token_s:
        known = ", ".join(name for name, one in PROFILES.items() if one.swap_token_s)
        raise EngineError(
            f"the profile {profile.name} does not say how long KV takes to host memory and back:"
            f" choose one of {known}, or measured:FILE with a swap_token_s"
        )


class SwapLedger(KvLedger):
    """A ledger that copies the KV of evicted sequences to host memory (Ling et al. 2024, §4.1).

    The next part of such a sequence begins with a load. An entry of fewer tokens than the sequence
    lacks loads only into KV that the plan leaves free, and computes the rest. Host memory has no
    limit, and keeps its copy until the sequence is removed: only tokens beyond the copy are copied
    by the next eviction.

    Args:
        sequences: the engine's sequences.
        async_scheduling: a sequence can take part in a step while its newest token is pending.
    """

    def __init__(self, sequences: Sequences, async_scheduling: bool = False) -> None:
        super().__init__(sequences, async_scheduling=async_scheduling)
        self._copied: WeakKeyDictionary[SequenceState, int] = WeakKeyDictionary()
        self._copied_now = 0

    def take_copied(self) -> int:
        """Return the tokens copied to the host since the last call."""
        tokens, self._copied_now = self._copied_now, 0
        return tokens

    def cut(self, sequence: SequenceState) -> None:
        """Forget the copies of tokens that a sequence has lost."""
        if sequence in self._copied:
            self._copied[sequence] = min(self._copied[sequence], sequence.most_computed)

    def evict(self, sequence: SequenceState) -> None:
        """Copy the KV of a sequence to the host, and free it on the device."""
        copied = self._copied.get(sequence, sequence.shared)
        if sequence.computed > copied:
            self._copied_now += sequence.computed - copied
            self._copied[sequence] = sequence.computed
        super().evict(sequence)

    def admit(
        self,
        plan: StepPlan,
        fetch: Callable[[AdmittedSequence, int], AdmittedSequence | None] | None = None,
    ) -> AdmittedStep:
        """Return the part of a plan that fits, with loads from the host; see `KvLedger.admit`."""
        spare = max(self.spare_tokens(plan), 0)

        def loaded(part: AdmittedSequence, wanted: int) -> AdmittedSequence:
            nonlocal spare
            made = self._loaded(part, wanted, spare)
            spare -= made.stop - part.stop
            return made

        return super().admit(plan, loaded)

    def commit(
        self,
        admitted: AdmittedStep,
        new_tokens: Mapping[str, Sequence[int]],
        duration_s: float,
        speculative: Mapping[str, int] | None = None,
        loaded: Mapping[str, int] | None = None,
        loading: tuple[str, ...] = (),
    ) -> StepResult:
        """Record what a step computed and loaded; see `KvLedger.commit`."""
        loaded = {p.sequence.key: p.loaded for p in admitted.sequences if p.loaded and p.live}
        return super().commit(admitted, new_tokens, duration_s, speculative, loaded, loading)

    def _loaded(self, part: AdmittedSequence, wanted: int, spare: int) -> AdmittedSequence:
        """Return a part with as much of its KV loaded from the host as fits.

        Args:
            part: the part, with KV reserved for its tokens.
            wanted: tokens of its entry.
            spare: KV tokens that can be taken beyond.
        """
        sequence, lacking = part.sequence, self._can_compute(part.sequence)
        tokens = min(self._copied.get(sequence, 0) - part.start, lacking - 1)
        if wanted < lacking and tokens + min(wanted, lacking - tokens) > part.tokens + spare:
            tokens = min(tokens, spare)
        if tokens <= 0:
            return part
        more = min(wanted, lacking - tokens)
        return AdmittedSequence.of(sequence, part.start + tokens, more, tokens)


class SwappingEngine(SimulatedEngine):
    """The simulated engine with swap to host memory.

    A step takes `swap_token_s` of the profile longer for each token of KV that it copies to the
    host or loads from it: the transfer and the forward pass do not overlap. Results say how long it
    took, so that the model of step times does not learn it as computing. A policy sees a swapped
    sequence as one to prefill, as it does with KV offload in vLLM: its memory is planned exactly,
    its time too long.

    Args:
        profile: seconds of steps and of transfers.
        script: answers of the model; see `SimulatedEngine`.
        clock: see `SimulatedEngine`.
        limits: limits of the engine; None: the defaults.
        in_flight: steps that can be submitted before one is collected.
        async_scheduling: a sequence can take part in a step while its newest token is pending.

    Raises:
        EngineError: the profile has no time of transfers.
    """

    def __init__(
        self,
        profile: Profile,
        script: Script,
        clock: Clock | None = None,
        limits: EngineLimits | None = None,
        in_flight: int = 1,
        async_scheduling: bool = False,
    ) -> None:
        check_swaps(profile)
        super().__init__(profile, script, clock, limits, in_flight, async_scheduling)
        self._ledger = self._swap = SwapLedger(self._sequences, async_scheduling)
        self._transfer_s = 0.0  # of the last step

    def collect(self) -> StepResult:
        """Return the result of the oldest step, with the seconds of its transfers."""
        return replace(super().collect(), transfer_s=self._transfer_s)

    def step_s(self, admitted: AdmittedStep, elapsed_s: float) -> float:
        """Let the seconds of a step and of its transfers pass, and return them."""
        tokens = self._swap.take_copied() + sum(part.loaded for part in admitted.sequences)
        self._transfer_s = transfer_s = self._profile.swap_token_s * tokens
        self._pass_time(transfer_s)
        return transfer_s + super().step_s(admitted, elapsed_s)
