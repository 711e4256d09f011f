"""A conversation of many turns with a server that may forget it: no ROS."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Protocol

from timely_llm.core.request import ErrorCode
from timely_llm.core.stream import ChatMessage, StreamResult
from timely_llm.ros.answer import Answer
from timely_llm.ros.pending import PlanClientError, PlanTimeout


class Ask(Protocol):
    """Asks for an answer, as `TalkClient.converse` does with all but these settled."""

    def __call__(self, said: Sequence[ChatMessage], /, *, conversation: str, turn: int) -> Answer:
        """Ask and return at once."""
        ...


class Dialogue:
    """Sends each time only what is new, and all of it when the server has forgotten the rest.

    Args:
        ask: asks the server.
        system: what the model is told before anybody says a word; empty: nothing.
    """

    def __init__(self, ask: Ask, system: str = "") -> None:
        self._ask = ask
        self._system = system
        self._answer: Answer | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what was said."""
        self._name = uuid.uuid4().hex
        self._said = [ChatMessage("system", self._system)] if self._system else []
        self._turns = 0

    def say(self, words: str, timeout_s: float = 30.0) -> Iterator[str]:
        """Say something and yield the answer as it comes, then `finish`.

        Args:
            words: the user's.
            timeout_s: how long to wait for each piece.

        Raises:
            RequestError: the words are too many, or none.
            PlanTimeout: the server or the next piece did not come in time.
            PlanClientError: the answer ended with an error; what was said does not count.
        """
        new = ChatMessage("user", words)
        if self._turns:
            try:
                yield from self._stream([new], new, timeout_s)
                return
            except PlanClientError as error:
                if error.code is not ErrorCode.UNKNOWN_CONVERSATION:
                    raise
        self._turns = 0
        yield from self._stream([*self._said, new], new, timeout_s)

    def finish(self, timeout_s: float = 10.0) -> StreamResult:
        """End the answer if it goes on, keep what was said, and return the answer's result.

        Raises:
            PlanTimeout: the server did not tell in time.
            PlanClientError: nothing was said, or the client was closed.
        """
        answer, self._answer = self._answer, None
        if answer is None:
            raise PlanClientError("nothing was said")
        answer.cancel(timeout_s)
        result = answer.result(timeout_s)
        if result.text:
            self._said += [self._new, ChatMessage("assistant", result.text)]
            self._turns += 1
        return result

    def _stream(
        self, said: Sequence[ChatMessage], new: ChatMessage, timeout_s: float
    ) -> Iterator[str]:
        self._new, self._answer = new, None
        self._answer = answer = self._ask(said, conversation=self._name, turn=self._turns)
        try:
            yield from answer.chunks(timeout_s)
        except PlanTimeout:
            with contextlib.suppress(PlanTimeout):
                answer.cancel(0.0)
            answer.close("given up")
            raise
