"""The numbers of a run's conversations: what its people got, by service level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from timely_llm.demo.talks import Talk

DIGITS = 4


@dataclass(frozen=True)
class TalkSummary:
    """Questions of one service level; None where there is nothing to measure.

    Attributes:
        slo_attainment: share of the questions whose answer is complete and kept its service level;
            those that were canceled when the people went are left out.
        ttft_p50_s, ttft_p95_s: from asking to the first token, over answers.
        tokens_per_s: mean over answers with two tokens or more.
        largest_gap_s: the longest time between two tokens of any answer.
        stalls, stalled_s: how often and for how long people had no word to take in.
    """

    asked: int
    answered: int
    slo_attainment: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tokens_per_s: float | None
    largest_gap_s: float | None
    stalls: int
    stalled_s: float

    @classmethod
    def of(cls, talks: Sequence[Talk]) -> TalkSummary:
        """Return the summary of some questions; one that never ended was never answered."""
        answers = [talk.outcome for talk in talks if talk.answered and talk.outcome]
        judged = [t for t in talks if not (t.outcome and t.outcome.kind == "canceled")]
        ttft_s = [answer.ttft_s for answer in answers]
        rates = [1.0 / answer.tpot_s for answer in answers if answer.tpot_s]
        kept = sum(answer.slo_met for answer in answers)
        return cls(
            asked=len(talks),
            answered=len(answers),
            slo_attainment=round(kept / len(judged), DIGITS) if judged else None,
            ttft_p50_s=_rounded(np.percentile(ttft_s, 50)) if ttft_s else None,
            ttft_p95_s=_rounded(np.percentile(ttft_s, 95)) if ttft_s else None,
            tokens_per_s=_rounded(np.mean(rates)) if rates else None,
            largest_gap_s=_rounded(max(a.largest_gap_s for a in answers)) if answers else None,
            stalls=sum(answer.stalls for answer in answers),
            stalled_s=_rounded(sum(answer.stalled_s for answer in answers)),
        )

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` writes; times in seconds."""
        return asdict(self)


def by_class(talks: Sequence[Talk]) -> dict[str, TalkSummary]:
    """Return the summary of each service level that was asked for, in order of their names."""
    names = sorted({talk.slo_class for talk in talks})
    return {name: TalkSummary.of([t for t in talks if t.slo_class == name]) for name in names}


def _rounded(value: Any) -> float:
    return round(float(value), DIGITS)
