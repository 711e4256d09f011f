"""A simulated engine that fails when it is asked to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import EngineError, EngineLost
from timely_llm.engines.sequences import AdmittedSequence, AdmittedStep
from timely_llm.engines.simulated import Profile, Script, SimulatedEngine

Breaks = Callable[[], None]
SPARE_TOKENS = 60
"""Free tokens of KV of an engine without memory: a prompt has more."""


class FailingEngine(SimulatedEngine):
    """Lets a step fail, end the engine, or hang; forgets sequences.

    Attributes:
        failure: raised by the next step; None: it goes well.
        hang: called in the next step, and lets its time pass; None: it takes its usual time.
        lose: the next step begins with one sequence fewer, the one at this place.
    """

    def __init__(self, profile: Profile, script: Script, clock: VirtualClock) -> None:
        super().__init__(profile, script, clock)
        self.failure: EngineError | None = None
        self.hang: Breaks | None = None
        self.lose: int | None = None

    def take_kv(self) -> int:
        """Take all free KV but a few tokens away; return how much was taken."""
        taken = max(self._sequences.free_tokens - SPARE_TOKENS, 0)
        self._sequences._pinned_tokens += taken
        return taken

    def give_kv(self, taken: int) -> None:
        """Give KV back that was taken."""
        self._sequences._pinned_tokens -= taken

    @property
    def keys(self) -> list[str]:
        """The keys of its sequences."""
        return list(self._sequences.by_key)

    def compute(self, parts: Sequence[AdmittedSequence]) -> dict[str, tuple[int]]:
        """Return the next token of each answer, or fail."""
        failure = self.failure
        if failure is not None:
            if not isinstance(failure, EngineLost):
                self.failure = None
            raise failure
        made = super().compute(parts)
        if self.lose is not None and self.keys:
            self.remove(self.keys[self.lose % len(self.keys)])
            self.lose = None
        return made

    def step_s(self, admitted: AdmittedStep, elapsed_s: float) -> float:
        """Let the time of a step pass, or hang."""
        if self.hang is not None:
            hang, self.hang = self.hang, None
            hang()
        return super().step_s(admitted, elapsed_s)
