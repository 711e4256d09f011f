"""Conversations: what people ask, the pieces of an answer, and how it ends."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from timely_llm.core.echo import quoted
from timely_llm.core.errors import RequestError
from timely_llm.core.listener import (
    FASTEST_WORDS_PER_S,
    READING_WORDS_PER_S,
    SLOWEST_WORDS_PER_S,
)
from timely_llm.core.request import ErrorCode, Request, Result, check_name, check_text
from timely_llm.core.slo import MAX_WEIGHT, Slo

MAX_MESSAGES = 256
MAX_MESSAGE_CHARACTERS = 65_536
Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class ChatMessage:
    """Who said what.

    Raises:
        RequestError: nobody has such a role.
    """

    role: str
    content: str

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            allowed = ", ".join(get_args(Role))
            raise RequestError(
                f"the role of a message must be one of {allowed}, not {quoted(self.role)}"
            )


def check_messages(number: int) -> None:
    """Find out whether a request may have so many messages.

    Raises:
        RequestError: it may not.
    """
    if not 1 <= number <= MAX_MESSAGES:
        raise RequestError(f"there must be 1 to {MAX_MESSAGES} messages, not {number}")


@dataclass(frozen=True)
class StreamRequest(Request):
    """A person's, or a machine's, request for an answer that comes token by token.

    Attributes:
        messages: what was said; the last one is the user's. In a later turn of a conversation that
            the server keeps: only what is new.
        slo: when its tokens are due.
        weight: what it is worth to meet that, beside others; no unit.
        conversation: name of a conversation that the server shall keep for its next turn; empty:
            none.
        turn: turns of the conversation so far; 0 begins it anew.
        words_per_s: speed at which its listener reads or hears.

    Raises:
        RequestError: a field is empty, too long or out of its range.
    """

    messages: tuple[ChatMessage, ...]
    slo: Slo = field(default_factory=Slo)
    weight: float = 1.0
    conversation: str = ""
    turn: int = 0
    words_per_s: float = READING_WORDS_PER_S

    def __post_init__(self) -> None:
        super().__post_init__()
        check_messages(len(self.messages))
        last = self.messages[-1]
        if last.role != "user" or not last.content.strip():
            raise RequestError("the last message must be the user's and say something")
        characters = sum(len(message.content) for message in self.messages)
        if characters > MAX_MESSAGE_CHARACTERS:
            raise RequestError(
                f"the messages have {characters} characters,"
                f" at most {MAX_MESSAGE_CHARACTERS} are allowed"
            )
        for number, message in enumerate(self.messages):
            check_text(f"message {number}", message.content)
        if not 0.0 <= self.weight <= MAX_WEIGHT:
            raise RequestError(f"weight must be 0 to {MAX_WEIGHT:g}, not {self.weight:g}")
        if self.conversation:
            check_name("the name of a conversation", self.conversation)
        if self.turn < 0 or (self.turn and not self.conversation):
            raise RequestError("a later turn needs the name of its conversation")
        if not SLOWEST_WORDS_PER_S <= self.words_per_s <= FASTEST_WORDS_PER_S:
            raise RequestError(
                f"words_per_s must be {SLOWEST_WORDS_PER_S:g} to {FASTEST_WORDS_PER_S:g}, not"
                f" {self.words_per_s:g}"
            )

    def refused(self, code: ErrorCode, message: str) -> StreamResult:
        """Return its result when it is ended before anything was computed."""
        return StreamResult(self.request_id, self.agent, code, message)


@dataclass(frozen=True)
class StreamChunk:
    """A piece of an answer, the moment it is there.

    Attributes:
        index: counts the pieces, from 0; none is left out.
        text: whole characters; empty while one is incomplete.
        final: the answer is complete.
    """

    request_id: str
    agent: str
    index: int
    text: str
    final: bool = False


@dataclass(frozen=True)
class StreamResult(Result):
    """How a stream request ended.

    Attributes:
        text: the answer as far as it came.
        cut: whether the answer reached its most tokens before the model ended it.
        ttft_s: from arrival to the first token, seconds; negative if none came.
        tpot_s: mean seconds between its tokens, 0 with fewer than two.
        largest_gap_s: the longest time between two of its tokens, seconds.
        completion_s: from arrival to the last token, seconds; negative if it is not complete.
        stalled_s: time in which its listener had to wait for words, seconds.
        slo_met: whether it is complete, and its service level was kept.
        prompt_tokens, generated_tokens, recomputed_tokens: counts of tokens.
        kept_tokens: of the prompt, tokens whose KV was there from earlier turns.
    """

    text: str = ""
    cut: bool = False
    ttft_s: float = -1.0
    tpot_s: float = 0.0
    largest_gap_s: float = 0.0
    completion_s: float = -1.0
    stalled_s: float = 0.0
    slo_met: bool = False
    prompt_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0
    kept_tokens: int = 0


def mean_gap_s(first_s: float, last_s: float, tokens: int) -> float:
    """Return the mean seconds between tokens, 0 with fewer than two (TPOT)."""
    if tokens < 2 or math.isnan(first_s):
        return 0.0
    return (last_s - first_s) / (tokens - 1)
