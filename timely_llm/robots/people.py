"""One simulated person in conversations: pure logic, with the time as argument."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from timely_llm.core.request import ChatMessage, ErrorCode, StreamResult
from timely_llm.core.slo import READING_WORDS_PER_S, SPEAKING_WORDS_PER_S, TEXT, VOICE, Listener
from timely_llm.robots.questions import QuestionSet

MOST_TURNS = 4
"""Most turns of a conversation."""


@dataclass(frozen=True)
class Manner:
    """How a person takes an answer: the service level and the speed, words per second."""

    slo_class: str
    words_per_s: float


MANNERS = (Manner(VOICE.name, SPEAKING_WORDS_PER_S), Manner(TEXT.name, READING_WORDS_PER_S))


@dataclass(frozen=True)
class Question:
    """What a person asks.

    Attributes:
        text: the question itself.
        messages: what the server is sent, the question last.
        conversation, turn: as in `StreamRequest`.
        seed: of the answer's tokens.
    """

    text: str
    messages: tuple[ChatMessage, ...]
    conversation: str
    turn: int
    seed: int


@dataclass
class _OpenConversation:
    name: str
    turns_left: int
    said: list[ChatMessage]
    turns: int = 0  # that the server should know


class Person:
    """Asks, takes in the answer, pauses, and asks again.

    Args:
        agent: the name.
        manner: hears or reads.
        questions: what may be asked.
        rng: randomness of this person's alone.
        pause_s: mean seconds from the last word taken in to the next question.
        now: when the first pause begins.

    Attributes:
        next_s: when the next question is asked; infinite while an answer is awaited.
        stalls: how often the answer had no further word when the last one was taken in.
    """

    def __init__(
        self, agent: str, manner: Manner, questions: QuestionSet, rng: np.random.Generator,
        pause_s: float, now: float,
    ) -> None:  # fmt: skip
        self.agent = agent
        self.manner = manner
        self._questions = questions
        self._rng = rng
        self._pause_s = pause_s
        self._conversations = 0
        self._begin()
        self._asked: Question | None = None
        self._forgotten = False
        self._listener, self.stalls = Listener(manner.words_per_s), 0
        self.next_s = self._after_pause(now)

    @property
    def stalled_s(self) -> float:
        """Seconds for which this person waited for words, since the first one of the answer."""
        return self._listener.stalled_s

    def ask(self) -> Question:
        """Ask the question that is due, of this conversation or of a new one."""
        self.next_s = math.inf
        self._listener, self.stalls = Listener(self.manner.words_per_s), 0
        if self._asked is not None and self._forgotten:
            messages = (*self._conversation.said, self._asked.messages[-1])
            self._asked = replace(self._asked, messages=messages, turn=0)
        else:
            self._asked = self._new_question()
        self._forgotten = False
        return self._asked

    def receive(self, text: str, now: float) -> None:
        """Take a piece of the answer that came at `now`."""
        stalled_s = self.stalled_s
        self._listener.receive(text, now)
        self.stalls += self.stalled_s > stalled_s

    def take(self, result: StreamResult, now: float) -> None:
        """Take the end of the answer, and settle when to ask next.

        A server that has forgotten the conversation gets all of it at once. Any other error ends
        the conversation.
        """
        if self._asked is None:
            return
        talk = self._conversation
        if result.error_code is ErrorCode.UNKNOWN_CONVERSATION and self._asked.turn:
            self._forgotten, talk.turns = True, 0
            self.next_s = now
            return
        talk.said += [self._asked.messages[-1], ChatMessage("assistant", result.text)]
        talk.turns += 1
        talk.turns_left -= 1
        if result.error_code is not ErrorCode.NONE or not talk.turns_left:
            self._begin()
        self.next_s = self._after_pause(now + max(self._listener.credit_s(now), 0.0))

    def _begin(self) -> None:
        """Begin a conversation."""
        self._conversations += 1
        system = self._questions.system
        self._conversation = _OpenConversation(
            f"{self.agent}/{self._conversations}",
            int(self._rng.integers(1, MOST_TURNS + 1)),
            [ChatMessage("system", system)] if system else [],
        )

    def _new_question(self) -> Question:
        talk = self._conversation
        text = self._questions.draw(not talk.turns, self._rng)
        said = ChatMessage("user", text)
        messages = (said,) if talk.turns else (*talk.said, said)
        return Question(text, messages, talk.name, talk.turns, int(self._rng.integers(2**31)))

    def _after_pause(self, begin_s: float) -> float:
        return begin_s + float(self._rng.exponential(self._pause_s))


def people(
    count: int, questions: QuestionSet, seed: int, pause_s: float, now: float
) -> Sequence[Person]:
    """Return people; every second one hears the answers and the others read them.

    Args:
        count: number of people.
        questions: the questions that they ask.
        seed: seed of all random choices; each person has a stream of its own, so that one's pauses
            do not change the questions of another.
        pause_s: as in `Person`.
        now: when their first pause begins.
    """
    streams = np.random.default_rng(seed).spawn(count)
    return [
        Person(f"person_{i}", MANNERS[i % len(MANNERS)], questions, rng, pause_s, now)
        for i, rng in enumerate(streams)
    ]
