"""The numbers of a run: what its robots measured, for urgent and normal requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timely_llm.core.request import ErrorCode
from timely_llm.demo.history import History
from timely_llm.demo.requests import Outcome, Request
from timely_llm.demo.talk_summary import TalkSummary, by_class
from timely_llm.demo.talks import Answered


@dataclass(frozen=True)
class ClassSummary:
    """One class of robots' requests; seconds, None where there is nothing to measure."""

    requests: int
    served: int
    p50_s: float | None
    p95_s: float | None
    waiting_s: float | None
    utility: float | None

    @classmethod
    def of(cls, requests: Sequence[Request]) -> ClassSummary:
        """Return the summary of some requests; one that never ended was never answered."""
        served = [r.outcome for r in requests if r.outcome and r.outcome.served]
        response_s = [outcome.response_s for outcome in served]
        utility = [outcome.utility for outcome in served] + [0.0] * (len(requests) - len(served))
        return cls(
            requests=len(requests),
            served=len(served),
            p50_s=_rounded(np.percentile(response_s, 50)) if served else None,
            p95_s=_rounded(np.percentile(response_s, 95)) if served else None,
            waiting_s=_rounded(np.mean([o.waiting_s for o in served])) if served else None,
            utility=_rounded(np.mean(utility)) if utility else None,
        )


@dataclass(frozen=True)
class Summary:
    """All of a run."""

    urgent: ClassSummary
    normal: ClassSummary
    segments: int
    recomputed_tokens: int
    error_messages: tuple[str, ...]
    conversations: dict[str, TalkSummary]

    @classmethod
    def of(cls, history: History) -> Summary:
        """Return the summary of a run."""
        asked = history.asked
        questions = history.questions
        outcomes: list[tuple[str, Outcome | Answered]] = [
            *((request.id, request.outcome) for request in asked if request.outcome),
            *((talk.id, talk.outcome) for talk in questions if talk.outcome),
        ]
        return cls(
            urgent=ClassSummary.of([r for r in asked if r.urgent]),
            normal=ClassSummary.of([r for r in asked if not r.urgent]),
            segments=len(history.published),
            recomputed_tokens=sum(outcome.recomputed_tokens for _, outcome in outcomes),
            error_messages=tuple(_message(i, o) for i, o in outcomes if o.is_error),
            conversations=by_class(questions),
        )

    @property
    def requests(self) -> int:
        """Requests asked."""
        return self.urgent.requests + self.normal.requests

    @property
    def served(self) -> int:
        """Requests whose first segment was executed."""
        return self.urgent.served + self.normal.served

    @property
    def share_served(self) -> float | None:
        """Served requests over requests; None without requests."""
        return round(self.served / self.requests, 4) if self.requests else None

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` writes; times in seconds."""
        classes = {"urgent": self.urgent, "normal": self.normal}
        return {
            "requests": self.requests,
            "served": self.served,
            "share_served": self.share_served,
            "segments": self.segments,
            "recomputed_tokens": self.recomputed_tokens,
            "response_s": {k: {"p50": c.p50_s, "p95": c.p95_s} for k, c in classes.items()},
            "waiting_s": {k: c.waiting_s for k, c in classes.items()},
            "utility": {k: c.utility for k, c in classes.items()},
            "conversations": {k: c.as_json() for k, c in self.conversations.items()},
            "errors": len(self.error_messages),
            "error_messages": list(self.error_messages),
        }


def _message(request_id: str, outcome: Outcome | Answered) -> str:
    try:
        code = ErrorCode(outcome.error_code).name
    except ValueError:
        code = f"error {outcome.error_code}"
    return f"{request_id}: {outcome.error_msg or outcome.kind} ({code})"


def _rounded(value: Any) -> float:
    return round(float(value), 4)
