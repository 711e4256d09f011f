"""What a dispatcher expects of a request: it has no tokenizer, and learns from what came."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from timely_llm.core.request import PlanRequest, PlanResult, Request, Result, StreamRequest
from timely_llm.dispatch.contract import ServerView, Waiting

CHARACTERS = 4
"""Characters of a token, about."""

RECENT = 64
"""Number of the last plans and answers from which the length of the next one is expected."""

FIRST_TOKENS = 40.0
"""Tokens of a plan or an answer, until one has come."""

SEGMENT_TOKENS = 8.0
"""Tokens of a first segment."""


class ExpectedLengths:
    """Learns the lengths of plans and answers, each in the mean of the last `RECENT`."""

    def __init__(self) -> None:
        self._plans: deque[int] = deque(maxlen=RECENT)
        self._answers: deque[int] = deque(maxlen=RECENT)

    def ended(self, result: Result) -> None:
        """Learn from a plan or an answer that came to its end."""
        generated = int(getattr(result, "generated_tokens", 0))
        (self._plans if isinstance(result, PlanResult) else self._answers).append(generated)

    def waiting(self, request: Request, now: float, servers: Iterable[ServerView]) -> Waiting:
        """Return a request as rules see it.

        Args:
            request: with all messages of its conversation, if it has one.
            now: when it was asked, seconds on the dispatcher's clock.
            servers: know the lengths of shared prompts.
        """
        if isinstance(request, StreamRequest):
            characters = sum(len(message.content) for message in request.messages)
            answer = _mean(self._answers, request)
            return Waiting(request, now, characters // CHARACTERS + 1, 1.0, answer)
        assert isinstance(request, PlanRequest)
        answer = _mean(self._plans, request)
        shared = max((one.skill_sets.get(request.skill_set, 0) for one in servers), default=0)
        own = len(request.task) // CHARACTERS + 1
        return Waiting(request, now, shared + own, min(SEGMENT_TOKENS, answer), answer)


def _mean(lengths: deque[int], request: Request) -> float:
    expected = sum(lengths) / len(lengths) if lengths else FIRST_TOKENS
    return max(min(expected, float(request.max_tokens)), 1.0)
