"""What a dispatcher expects of a request: it has no tokenizer, and learns from what came."""

from __future__ import annotations

from collections.abc import Iterable

from timely_llm.core.request import PlanRequest, Request, Result, StreamRequest
from timely_llm.dispatch.contract import ServerView, Waiting
from timely_llm.policies.lengths import TYPICAL, AnswerLengths, task_type

CHARACTERS = 4
"""Characters of a token, about."""

FIRST_TOKENS = 40
"""Tokens of a plan or an answer, until enough of its type of task have come."""

SEGMENT_TOKENS = 8.0
"""Tokens of a first segment."""


class ExpectedLengths:
    """Learns the lengths of whole plans and answers; the median of a type of task is expected."""

    def __init__(self) -> None:
        self._lengths = AnswerLengths()

    def ended(self, request: Request, result: Result) -> None:
        """Learn from a plan or an answer that came to its end; one without tokens has no length."""
        generated = int(getattr(result, "generated_tokens", 0))
        if generated > 0:
            self._lengths.observe(task_type(request), generated)

    def waiting(self, request: Request, now: float, servers: Iterable[ServerView]) -> Waiting:
        """Return a request as rules see it.

        Args:
            request: with all messages of its conversation, if it has one.
            now: when it was asked, seconds on the dispatcher's clock.
            servers: know the lengths of shared prompts.
        """
        answer = float(self._answer_tokens(request))
        if isinstance(request, StreamRequest):
            characters = sum(len(message.content) for message in request.messages)
            return Waiting(request, now, characters // CHARACTERS + 1, 1.0, answer)
        assert isinstance(request, PlanRequest)
        shared = max((one.skill_sets.get(request.skill_set, 0) for one in servers), default=0)
        own = len(request.task) // CHARACTERS + 1
        return Waiting(request, now, shared + own, min(SEGMENT_TOKENS, answer), answer)

    def _answer_tokens(self, request: Request) -> int:
        of_class, most = task_type(request), request.max_tokens
        if not self._lengths.knows(of_class):
            return min(FIRST_TOKENS, most)
        return self._lengths.to_go(of_class, 0, most, TYPICAL)
