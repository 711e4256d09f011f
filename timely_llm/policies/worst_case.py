"""Whether the most urgent running request can afford a larger batch (Ling et al. 2024, §4.4)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from timely_llm.core.generation import Generation, PlanGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.policies.sentences import Segmented, SentenceGeneration
from timely_llm.policies.step_time import StepTime


class BudgetEnd(StrEnum):
    """When the time budget of a running segment ends."""

    ZERO = "zero"
    ERT = "ert"


class MostUrgent(StrEnum):
    """Which running request is the most urgent one."""

    ZERO = "zero"
    LAXITY = "laxity"


class SpeedSource(StrEnum):
    """Where the seconds of a token come from."""

    PREDICTED = "predicted"
    MEASURED = "measured"


class DecodeSpeed:
    """Seconds of a token, measured on the newest tokens of the running batch.

    Needs no profile, and lags by one step: a generation that joins counts from the next step on
    (Ling et al. 2024, §4.4).

    Attributes:
        token_s: seconds of a token of the last step; NaN before the first one.
    """

    def __init__(self) -> None:
        self.token_s = math.nan
        self._since_s = 0.0
        self._watched: list[tuple[list[int], int]] = []

    def measure(self, now: float) -> None:
        """Measure the tokens that came since the batch was watched, if there are any."""
        tokens = max((len(ids) - before for ids, before in self._watched), default=0)
        if tokens > 0:
            self.token_s = (now - self._since_s) / tokens
            self._watched = []

    def watch(self, batch: Iterable[Segmented], now: float) -> None:
        """Watch the batch of a step that begins now, unless the last one's tokens have to come."""
        token_ids = [generation.token_ids for generation in batch]
        if not any(ids is watched for watched, _ in self._watched for ids in token_ids):
            self._watched = [(ids, len(ids)) for ids in token_ids]
            self._since_s = now


@dataclass(eq=False)
class BatchBound:
    """The rule of the worst-case check.

    The paper's values are `ert`, `laxity` and `measured`, in a policy's text
    `budget=ert:urgent=laxity:speed=measured`. The paper has "the most urgent generation", "its
    remaining time budget" and "the time taken to generate the most recent tokens"; budget and
    urgency are as in the authors' released code.

    Attributes:
        budget: end of a segment's time budget. `zero`: its zero point. `ert`: its due time, which
            is the expected response time, or the time at which its robot will be idle.
        urgent: the request that must make its budget. `zero`: the one with the earliest zero point;
            one past its zero point has nothing left to lose and bounds no batch. `laxity`: the one
            with the least budget after its remaining tokens; one past its budget lets no other
            join until its segment ends.
        speed: seconds of a token. `predicted`: for the batch with the candidate and its prompt.
            `measured`: of the last step, whatever the candidate; before the first token as
            predicted for the batch without it.
    """

    budget: BudgetEnd = BudgetEnd.ZERO
    urgent: MostUrgent = MostUrgent.ZERO
    speed: SpeedSource = SpeedSource.PREDICTED
    measured: DecodeSpeed = field(default_factory=DecodeSpeed, init=False, repr=False)

    def step_begins(self, batch: Iterable[Segmented], now: float) -> None:
        """Take the batch of a step, for the measured speed."""
        if self.speed is SpeedSource.MEASURED:
            self.measured.watch(batch, now)

    def step_ended(self, now: float) -> None:
        """Measure the speed of the last step, if tokens came."""
        if self.speed is SpeedSource.MEASURED:
            self.measured.measure(now)

    def worst_case(
        self, batch: Collection[Generation], now: float, step_time: StepTime, segment_tokens: int
    ) -> WorstCase:
        """Return the check of a batch by this rule; see `WorstCase`."""
        if self.speed is SpeedSource.PREDICTED:
            token_s = math.nan
        elif math.isnan(token_s := self.measured.token_s):
            token_s = step_time.predict_s(
                max(len(batch), 1), 0, sum(generation.context_tokens for generation in batch)
            )
        return WorstCase(batch, now, step_time, segment_tokens, self.budget, self.urgent, token_s)


class WorstCase:
    """Worst-case check of a batch: its most urgent running segment must still make its budget.

    The check assumes the longest segment for that request; see `BatchBound` for the rule.

    Args:
        batch: generations of the batch so far.
        now: start of the step, seconds.
        step_time: predicted seconds of steps.
        segment_tokens: tokens of the longest segment.
        budget: end of a segment's time budget.
        urgent: which request is the most urgent one.
        token_s: measured seconds of a token; NaN: as predicted for the larger batch.
    """

    def __init__(
        self,
        batch: Iterable[Generation],
        now: float,
        step_time: StepTime,
        segment_tokens: int,
        budget: BudgetEnd = BudgetEnd.ZERO,
        urgent: MostUrgent = MostUrgent.ZERO,
        token_s: float = math.nan,
    ) -> None:
        self._now = now
        self._step_time = step_time
        self._segment_tokens = segment_tokens
        self._budget = budget
        self._urgent = urgent
        self._token_s = token_s
        self._zero_s = math.inf
        self._protected: list[tuple[float, int]] = []  # (end of the budget, tokens left)
        self._rows = self._prefill = self._context = 0
        for generation in batch:
            self.add(generation)

    def add(self, generation: Generation) -> None:
        """Add a generation to the batch."""
        self._rows += 1
        self._context += generation.context_tokens
        if generation.to_compute > 1:
            self._prefill += generation.to_compute
        if not isinstance(generation, PlanGeneration | SentenceGeneration):
            return
        zero_s = generation.zero_s
        end_s = zero_s if self._budget is BudgetEnd.ZERO else generation.due_s
        protected = end_s, max(self._segment_tokens - generation.segment_tokens, 1)
        if self._urgent is MostUrgent.LAXITY:
            self._protected.append(protected)
        elif self._now < zero_s < self._zero_s:
            self._zero_s = zero_s
            self._protected = [protected]

    @property
    def refusal(self) -> Reason:
        """Why `allows` is false: the time that the most urgent request has."""
        end_s = min((end_s for end_s, _ in self._protected), default=math.inf)
        return Reason(Cause.WORST_CASE, end_s - self._now)

    def allows(self, candidate: Generation) -> bool:
        """Return whether the batch can take one more generation."""
        if not self._protected:
            return True
        first_s = later_s = self._token_s
        if math.isnan(later_s):
            context = self._context + candidate.context_tokens
            prefill = self._prefill + (candidate.to_compute if candidate.to_compute > 1 else 0)
            first_s = self._step_time.predict_s(self._rows + 1, prefill, context)
            later_s = self._step_time.predict_s(self._rows + 1, 0, context + prefill)
        # Seconds of a token are the same for all: if the least laxity suffices, all others do.
        return all(
            self._now + first_s + (left - 1) * later_s <= end_s for end_s, left in self._protected
        )
