"""Simulated people: from a trace's conversations to what they ask and what they get."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from timely_llm.core.request import MAX_TOKENS
from timely_llm.core.stream import StreamRequest, StreamResult
from timely_llm.experiments.outcome import Talk
from timely_llm.traces.model import Conversation
from timely_llm.traces.streams import request_of

_WORDS = (" so", " fa", "r", " so")
"""The texts of tokens, again and again: three words in four tokens."""


def answer(tokens: int) -> list[str]:
    """Return an answer as its tokens, without the one that ends it."""
    return [_WORDS[place % len(_WORDS)] for place in range(tokens - 1)]


def request_for(conversation: Conversation, max_tokens: int) -> StreamRequest:
    """Return what a person asks: a prompt of as many tokens as the conversation's.

    Args:
        conversation: its prompt has at least one token.
        max_tokens: most tokens of an answer, where the conversation says nothing.
    """
    most = min(conversation.max_tokens or max_tokens, MAX_TOKENS)
    return replace(request_of(replace(conversation, text="", output_tokens=1)), max_tokens=most)


@dataclass(eq=False)
class Talker:
    """One person with one question: remembers when the words came."""

    conversation: Conversation
    times_s: list[float] = field(default_factory=list)
    result: StreamResult | None = None

    def hear(self, received_s: float) -> None:
        """Take note that a token came."""
        self.times_s.append(received_s)

    @property
    def outcome(self) -> Talk:
        """What came of it."""
        result = self.result
        finished = result is not None and result.error_code == 0
        stalled_s = result.stalled_s if result else 0.0
        return Talk(self.conversation, finished, tuple(self.times_s), stalled_s)
