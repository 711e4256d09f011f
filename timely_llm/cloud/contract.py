"""The contract of a cloud: questions in, words and ends out; no call blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from timely_llm.core.request import ChatMessage


@dataclass(frozen=True)
class CloudQuestion:
    """What a cloud is asked.

    Attributes:
        key: name of the question; unique among those that have not ended.
        messages: the chat; the last message is the user's.
        max_tokens: most tokens of the answer.
        timeout_s: longest time to the end of the answer, seconds.
    """

    key: str
    messages: tuple[ChatMessage, ...]
    max_tokens: int
    timeout_s: float


@dataclass(frozen=True)
class CloudWords:
    """The next words of an answer.

    Attributes:
        key: of the question.
        text: the words; not empty, and without control characters but tabs and line ends. They may
            spell anything else, such as a control token of a model.
        at_s: when they arrived, on the clock of `poll`, seconds.
    """

    key: str
    text: str
    at_s: float


@dataclass(frozen=True)
class CloudEnd:
    """The end of a question; nothing follows.

    Attributes:
        key: of the question.
        at_s: when it ended, on the clock of `poll`, seconds.
        prompt_tokens: tokens of the question, as the cloud counts them; 0: it did not say.
        tokens: tokens of the answer, as the cloud counts them; the number of its `CloudWords` if it
            did not say.
        error: why there is no whole answer, in one sentence; empty: there is one.
    """

    key: str
    at_s: float
    prompt_tokens: int = 0
    tokens: int = 0
    error: str = ""


CloudEvent = CloudWords | CloudEnd


class Cloud(Protocol):
    """Answers questions; any number at a time.

    One thread calls it. Each question that was asked and not canceled has exactly one `CloudEnd`,
    within its timeout, whatever the network does.
    """

    def ask(self, question: CloudQuestion, now: float) -> None:
        """Begin a question; returns at once. Its `CloudEnd` has the error.

        Args:
            question: to be answered.
            now: seconds on the caller's clock.

        Raises:
            ValueError: a question with its key has not ended.
        """
        ...

    def poll(self, now: float) -> Sequence[CloudEvent]:
        """Return what arrived since the last call, in order."""
        ...

    def cancel(self, key: str) -> None:
        """Give a question up; it has no more events. An unknown one is not an error."""
        ...

    def next_s(self) -> float:
        """Return when `poll` may have something new, on its clock, seconds.

        Infinite for a cloud that calls `wake` instead, from a thread of its own.
        """
        ...

    def close(self) -> None:
        """Cancel all questions and free what is held; a later question ends with an error."""
        ...
