"""Conversations in plain Python: ask, and read the answer as it comes.

    with TalkClient("ann") as client:
        answer = client.converse("What can a drone see?")
        for text in answer.chunks():
            print(text, end="", flush=True)

Your code may block, use several threads, and be an rclpy application itself.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Protocol

from timely_llm import msg
from timely_llm.action import Converse
from timely_llm.core.arguments import kind, number, seconds, text
from timely_llm.core.errors import RequestError
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    StreamChunk,
    StreamRequest,
    StreamResult,
    check_text,
)
from timely_llm.core.slo import FASTEST_WORDS_PER_S, MAX_WEIGHT, READING_WORDS_PER_S, Slo
from timely_llm.core.text import quoted
from timely_llm.robots.client.pending import (
    Canceler,
    Pending,
    PlanClientError,
    PlanTimeout,
    ServerLost,
    failed,
)
from timely_llm.robots.client.taking_up import AnswerTakingUp
from timely_llm.ros.client.node import TalkNode
from timely_llm.ros.client.session import ServerClient, check_mode, check_sampling
from timely_llm.ros.conversions import SLO, STREAM_REQUEST


class Answer(Pending[StreamResult]):
    """An answer that was asked for; made by `TalkClient.converse`."""

    def __init__(self, request_id: str, agent: str, canceler: Canceler) -> None:
        super().__init__(request_id, agent, canceler)
        self._early: dict[int, str] = {}  # texts of chunks that came out of order
        self._next = 0
        self._came = ""
        self._read = 0

    def chunks(self, timeout_s: float = 30.0) -> Iterator[str]:
        """Yield the text as it comes, until the answer is complete.

        Args:
            timeout_s: longest wait for each chunk.

        Raises:
            PlanTimeout: the next chunk did not come in time.
            PlanClientError: the answer ended with an error, or the client was closed; the text that
                had come was yielded.
        """
        return self._texts(seconds("timeout_s", timeout_s, error=PlanClientError))

    def _texts(self, timeout_s: float) -> Iterator[str]:
        while text := self._take(timeout_s):
            yield text

    def offer(self, chunk: StreamChunk) -> None:
        """Take a chunk; a known one changes nothing."""
        with self._changed:
            if chunk.index >= self._next:
                self._early[chunk.index] = chunk.text
            self._join()

    def adopt(self, text: str, tokens: int) -> None:
        """Take all of the text that was made so far, unless another text has come.

        Args:
            text: from the first token on.
            tokens: number of its tokens.
        """
        with self._changed:
            if tokens > self._next and text.startswith(self._came):
                self._came, self._next = text, tokens
                self._early = {i: text for i, text in self._early.items() if i >= tokens}
                self._join()

    def _join(self) -> None:
        """Append the chunks that follow."""
        while self._next in self._early:
            self._came += self._early.pop(self._next)
            self._next += 1
        self._changed.notify_all()

    def _take(self, timeout_s: float) -> str:
        """Wait for more text and return all unread text; empty: the answer is complete."""
        with self._changed:
            self._wait(lambda: len(self._came) > self._read or self.done, timeout_s, "sent nothing")
            # The result may come before the last chunks, and chunks may get lost.
            whole = self._came if self._result is None else self._result.text
            text = whole[self._read :]
            self._read += len(text)
            if not text:
                result = self._ended()
                if result.error_code is not ErrorCode.NONE:
                    raise failed(result)
            return text


class AskFunction(Protocol):
    """Asks for an answer, as `TalkClient.converse` with all other arguments bound."""

    def __call__(self, said: Sequence[ChatMessage], /, *, conversation: str, turn: int) -> Answer:
        """Ask and return at once."""
        ...


class Dialogue:
    """Sends only new messages in each turn, and all of them when the server has forgotten the rest.

    Args:
        ask: asks the server.
        system: instruction for the model, before the first message; empty: none.
    """

    def __init__(self, ask: AskFunction, system: str = "") -> None:
        self._ask = ask
        self._system = system
        self._answer: Answer | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all messages."""
        self._name = uuid.uuid4().hex
        self._said = [ChatMessage("system", self._system)] if self._system else []
        self._turns = 0

    def say(self, words: str, timeout_s: float = 30.0) -> Iterator[str]:
        """Send a message and yield the answer as it comes; then call `finish`.

        Args:
            words: the user's message.
            timeout_s: longest wait for each chunk.

        Raises:
            RequestError: the message is empty or too long.
            PlanTimeout: the server or the next chunk did not come in time.
            PlanClientError: the answer ended with an error; the message does not count.
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
        """End the answer if it still comes, keep its text, and return its result.

        Raises:
            PlanTimeout: the server did not answer in time.
            PlanClientError: no message was sent, or the client was closed.
        """
        answer, self._answer = self._answer, None
        if answer is None:
            raise PlanClientError("no message was sent")
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


__all__ = ["Answer", "PlanClientError", "PlanTimeout", "ServerLost", "TalkClient"]


class TalkClient(ServerClient[TalkNode, Answer, StreamResult]):
    """Asks one plan server for answers to one person or machine; arguments as in `ServerClient`."""

    NODE, KIND, RESULT = TalkNode, msg.RequestStatus.ANSWER, StreamResult
    TAKING_UP = AnswerTakingUp

    def converse(
        self,
        said: str | Sequence[ChatMessage],
        slo_class: str = "",
        *,
        slo: Slo | None = None,
        weight: float = 0.0,
        conversation: str = "",
        turn: int = 0,
        words_per_s: float = 0.0,
        max_tokens: int = 0,
        temperature: float = 0.0,
        seed: int = 0,
        request_id: str = "",
        mode: str = "direct",
    ) -> Answer:
        """Ask for an answer and return at once; a refusal comes with its text or its result.

        Args:
            said: the user's message, or all messages, the last one the user's. In a later turn of a
                conversation that the server keeps: only the new messages.
            slo_class: a service level of the server; empty: text.
            slo: a service level of your own instead.
            weight: worth of meeting the service level, relative to other requests, above 0; 0: that
                of the service level.
            conversation: name of a conversation that the server keeps for its next turn; each agent
                has its own names.
            turn: turns of the conversation so far; 0 begins it anew. A server that does not keep
                these turns ends the request with the code UNKNOWN_CONVERSATION: then send all
                messages with turn 0.
            words_per_s: speed of the listener; 0: of speech for voice, else of reading.
            max_tokens: most tokens of the answer; 0: the server's default.
            temperature: 0: always the most likely token; up to 2.
            seed: with a temperature, the same seed gives the same answer.
            request_id: unique; empty: one is made.
            mode: the answer's author: `direct`: the server alone; `progressive`: a cloud sketches
                it, and the server expands the parts; `auto`: the server chooses. Without a cloud
                the server writes all alone, and `fallback` of the result says why.

        Raises:
            RequestError: a field is empty, too large or not a sane number.
            PlanTimeout: there is no server.
            PlanClientError: a request of this id is open, or the client is closed.
        """
        max_tokens, temperature, seed = check_sampling(max_tokens, temperature, seed)
        weight = number("weight", weight, 0, MAX_WEIGHT)
        words_per_s = number("words_per_s", words_per_s, 0, FASTEST_WORDS_PER_S)
        check_text("slo_class", slo_class)
        text("request_id", request_id)
        if slo is not None:
            kind("slo", slo, Slo)
        if not isinstance(said, (str, Sequence)):
            raise RequestError(f"said must be a text or a list of messages, not {quoted(said)}")
        messages = (ChatMessage("user", said),) if isinstance(said, str) else tuple(said)
        request = StreamRequest(
            request_id or uuid.uuid4().hex, self.agent, messages, slo or Slo(), weight,
            conversation, turn, words_per_s or READING_WORDS_PER_S,
            max_tokens=max_tokens or 1, temperature=temperature, seed=seed,
            mode=check_mode(mode),
        )  # fmt: skip
        # The server chooses values that are not given.
        left_open = {"max_tokens": max_tokens, "words_per_s": words_per_s, "slo_class": slo_class}
        own = {} if slo is None else SLO.fields(slo)

        def send() -> None:
            goal = Converse.Goal(**(STREAM_REQUEST.fields(request) | left_open | own))
            self._node.send(goal, request, made)

        made = Answer(request.request_id, self.agent, self)
        return self._open(made, send)
