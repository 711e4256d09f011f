"""Whether the most urgent running plan can afford longer steps (paper 001 §4.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from timely_llm.core.generation import Generation, PlanGeneration
from timely_llm.policies.step_time import StepTime


class WorstCase:
    """A batch, and the plan in it whose zero point comes first.

    That plan's budget is the time to its zero point, and it is taken to be as long as segments can
    be. Plans that have passed theirs have nothing left to lose and protect nobody.

    Args:
        batch: who takes part already.
        now: when the step begins, seconds.
        step_time: how long steps take.
        segment_tokens: the longest segment.
    """

    def __init__(
        self,
        batch: Iterable[Generation],
        now: float,
        step_time: StepTime,
        segment_tokens: int,
    ) -> None:
        self._now = now
        self._step_time = step_time
        self._segment_tokens = segment_tokens
        self._zero_s = math.inf
        self._left = 1
        self._rows = self._prefill = self._context = 0
        for generation in batch:
            self.add(generation)

    def add(self, generation: Generation) -> None:
        """Take note that a generation joins the batch."""
        self._rows += 1
        self._context += generation.context_tokens
        if generation.to_compute > 1:
            self._prefill += generation.to_compute
        if isinstance(generation, PlanGeneration):
            zero_s = generation.zero_s
            if self._now < zero_s < self._zero_s:
                self._zero_s = zero_s
                self._left = max(self._segment_tokens - generation.segment_tokens, 1)

    def allows(self, candidate: Generation) -> bool:
        """Return whether the batch can take one more."""
        if self._zero_s == math.inf:
            return True
        context = self._context + candidate.context_tokens
        prefill = self._prefill + (candidate.to_compute if candidate.to_compute > 1 else 0)
        first_s = self._step_time.predict_s(self._rows + 1, prefill, context)
        later_s = self._step_time.predict_s(self._rows + 1, 0, context + prefill)
        return self._now + first_s + (self._left - 1) * later_s <= self._zero_s
