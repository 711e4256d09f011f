"""Simulated people: from a trace's conversations to what they ask and what they get."""

from __future__ import annotations

from dataclasses import dataclass, field

from timely_llm.core.listener import READING_WORDS_PER_S, SPEAKING_WORDS_PER_S
from timely_llm.core.slo import VOICE, Slo
from timely_llm.core.stream import ChatMessage, StreamChunk, StreamRequest, StreamResult
from timely_llm.experiments.outcome import Talk
from timely_llm.traces.model import Conversation

_WORDS = (" so", " fa", "r", " so")
"""The texts of tokens, again and again: three words in four tokens."""
_FILLER = "."  # one token, wherever it stands


def answer(tokens: int) -> list[str]:
    """Return an answer as its tokens, without the one that ends it."""
    return [_WORDS[place % len(_WORDS)] for place in range(tokens - 1)]


def request_for(conversation: Conversation, max_tokens: int) -> StreamRequest:
    """Return what a person asks.

    Args:
        conversation: its prompt has at least one token.
        max_tokens: most tokens of an answer, where the conversation says nothing.
    """
    prompt = _FILLER * max(conversation.prompt_tokens, 1)
    return StreamRequest(
        conversation.id,
        conversation.agent,
        (ChatMessage("user", prompt),),
        Slo(conversation.ttft_s, conversation.tpot_s, conversation.deadline_s),
        conversation.weight,
        words_per_s=_words_per_s(conversation),
        max_tokens=conversation.max_tokens or max_tokens,
    )


def _words_per_s(conversation: Conversation) -> float:
    """Return how fast its listener is: what comes as slowly as speech is heard, not read."""
    speech = conversation.tpot_s >= VOICE.slo.tpot_s
    return SPEAKING_WORDS_PER_S if speech else READING_WORDS_PER_S


@dataclass(eq=False)
class Talker:
    """One person with one question: remembers when the words came."""

    conversation: Conversation
    times_s: list[float] = field(default_factory=list)
    result: StreamResult | None = None

    def hear(self, chunk: StreamChunk, received_s: float) -> None:
        """Take a piece of the answer."""
        self.times_s.append(received_s)

    @property
    def outcome(self) -> Talk:
        """What came of it."""
        result = self.result
        finished = result is not None and result.error_code == 0
        stalled_s = result.stalled_s if result else 0.0
        return Talk(self.conversation, finished, tuple(self.times_s), stalled_s)
