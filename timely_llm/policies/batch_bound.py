"""The rule of the bound of a batch, in its variants (Ling et al. 2024, §4.4)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from timely_llm.core.generation import Generation
from timely_llm.policies.sentences import Segmented
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

    `PaperBound` has the paper's values.

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
        """Take the batch of a step, to measure its speed."""
        self.measured.watch(batch, now)

    def step_ended(self, now: float) -> None:
        """Measure the speed of the last step, if tokens came."""
        self.measured.measure(now)

    def token_s(self, batch: Collection[Generation], step_time: StepTime) -> float:
        """Return the measured seconds of a token, or those predicted for the batch so far."""
        if not math.isnan(self.measured.token_s):
            return self.measured.token_s
        context = sum(generation.context_tokens for generation in batch)
        return step_time.predict_s(max(len(batch), 1), 0, context)


@dataclass(eq=False)
class PaperBound(BatchBound):
    """The rule of Ling et al. 2024, §4.4, to the letter.

    The paper has "the most urgent generation", "its remaining time budget" and "the time taken to
    generate the most recent tokens"; budget and urgency are as in the authors' released code.
    """

    budget: BudgetEnd = BudgetEnd.ERT
    urgent: MostUrgent = MostUrgent.LAXITY
    speed: SpeedSource = SpeedSource.MEASURED
