"""One simulated person at a server: asks, hears the answer, and writes down how it came."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from timely_llm.core.journal import Journal
from timely_llm.core.request import ErrorCode, ExecutionReport, ReportState
from timely_llm.core.stream import StreamChunk, StreamRequest, StreamResult
from timely_llm.robots.people import Person

ALIVE_PERIOD_S = 1.0
SILENCE_S = 30.0
"""A person who hears nothing for so long hangs up."""


class Line(Protocol):
    """What a person needs of the server."""

    def ask(self, request: StreamRequest, slo_class: str, talker: Talker) -> None:
        """Send a request of a service level; what comes of it goes to the talker."""
        ...

    def cancel(self, request_id: str) -> None:
        """End a request."""
        ...

    def report(self, report: ExecutionReport) -> None:
        """Tell the server something, such as that the person is still there."""
        ...


class Talker:
    """A person, and the request that is open.

    Args:
        person: what is asked when.
        line: to the server.
        journal: takes what happens.
        clock: seconds.
        max_tokens, temperature: of each answer.
    """

    def __init__(
        self, person: Person, line: Line, journal: Journal, clock: Callable[[], float],
        max_tokens: int, temperature: float,
    ) -> None:  # fmt: skip
        self._person = person
        self._line = line
        self._journal = journal
        self._clock = clock
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._count = 0
        self._request: StreamRequest | None = None
        self._heard = ""
        self._alive_s = self._last_s = -math.inf
        manner = person.manner
        journal.write(
            "person", clock(), agent=person.agent, slo_class=manner.slo_class,
            words_per_s=manner.words_per_s,
        )  # fmt: skip

    @property
    def agent(self) -> str:
        """Who asks."""
        return self._person.agent

    @property
    def request_id(self) -> str:
        """The open request; empty without one."""
        return self._request.request_id if self._request else ""

    @property
    def wake_s(self) -> float:
        """When something is due; infinite if nothing is but signs of life."""
        return self._person.next_s

    def tick(self, asks: bool) -> None:
        """Do what is due: a sign of life, hanging up, and if this person still asks, a question."""
        now = self._clock()
        if self._request is None:
            if asks and now >= self._person.next_s:
                self._ask(now)
            return
        if now >= self._alive_s + ALIVE_PERIOD_S:
            self._alive_s = now
            self._line.report(ExecutionReport("", self._person.agent, ReportState.ALIVE))
        if now >= self._last_s + SILENCE_S:
            self._line.cancel(self.request_id)
            reason = f"nothing came for {SILENCE_S:g} s"
            self.finish(self._request.refused(ErrorCode.NO_ANSWER, reason))

    def offer(self, chunk: StreamChunk) -> None:
        """Take a piece of an answer."""
        if chunk.request_id == self.request_id:
            self._hear(chunk.index, chunk.text)

    def finish(self, result: StreamResult) -> None:
        """Take how a request ended; of one that is not open any more, it changes nothing."""
        if result.request_id != self.request_id:
            return
        # The result may be here before the last pieces.
        if len(result.text) > len(self._heard):
            self._hear(result.generated_tokens - 1, result.text[len(self._heard) :])
        self._request = None
        self._person.take(result, self._clock())
        self._journal.write(
            "answered", self._clock(), id=result.request_id, agent=result.agent,
            outcome=_outcome(result.error_code), error_code=int(result.error_code),
            error_msg=result.error_msg, ttft_s=round(result.ttft_s, 6),
            tpot_s=round(result.tpot_s, 6), largest_gap_s=round(result.largest_gap_s, 6),
            completion_s=round(result.completion_s, 6), slo_met=result.slo_met,
            stalls=self._person.stalls, stalled_s=round(self._person.stalled_s, 6),
            tokens=result.generated_tokens, cut=result.cut, kept_tokens=result.kept_tokens,
            recomputed_tokens=result.recomputed_tokens,
        )  # fmt: skip

    def cancel(self) -> None:
        """End the open request; its end comes as of any other."""
        if self._request is not None:
            self._line.cancel(self.request_id)

    def hang_up(self) -> None:
        """Wait for the open request no longer."""
        if self._request is not None:
            self.finish(self._request.refused(ErrorCode.CANCELED, "the talkers ended"))

    def _ask(self, now: float) -> None:
        person, asked = self._person, self._person.ask()
        self._count += 1
        self._request = StreamRequest(
            f"{person.agent}-{self._count}", person.agent, asked.messages,
            conversation=asked.conversation, turn=asked.turn,
            words_per_s=person.manner.words_per_s, max_tokens=self._max_tokens,
            temperature=self._temperature, seed=asked.seed,
        )  # fmt: skip
        self._heard, self._alive_s, self._last_s = "", -math.inf, now
        self._journal.write(
            "question", now, id=self.request_id, agent=person.agent, text=asked.text,
            slo_class=person.manner.slo_class, conversation=asked.conversation, turn=asked.turn,
        )  # fmt: skip
        self._line.ask(self._request, person.manner.slo_class, self)

    def _hear(self, index: int, text: str) -> None:
        now = self._last_s = self._clock()
        self._heard += text
        self._person.hear(text, now)
        self._journal.write("heard", now, id=self.request_id, index=index, text=text)


def _outcome(code: ErrorCode) -> str:
    """Return in one word how an answer ended."""
    words = {
        ErrorCode.NONE: "answered",
        ErrorCode.CANCELED: "canceled",
        ErrorCode.UNKNOWN_CONVERSATION: "forgotten",
    }
    return words.get(code, "error")
