"""What answers and plans with help have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from timely_llm.cloud.contract import CloudEnd, CloudQuestion
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanResult,
    Rejected,
    Request,
    RequestMode,
    Result,
    StreamChunk,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.progressive.settings import HelpSettings
from timely_llm.progressive.sketch import Part, SketchReader

AGAIN_S, GIVE_UP_S = 0.5, 30.0
"""Pause before a refused part is tried again, and the longest time for which it is, seconds."""
HOSTILE = "the cloud's sketch spells control tokens of a model"
"""Why no further word of a sketch is used."""
LATE = "the edge had finished before the cloud's help came"
"""Why a complete answer or plan has nothing of the cloud."""
ENDS = frozenset(
    {
        ErrorCode.CANCELED, ErrorCode.ENGINE_FAILED, ErrorCode.SHUTTING_DOWN,
        ErrorCode.CLIENT_SILENT, ErrorCode.INACTIVE,
    }
)  # fmt: skip
"""Ends of a part that end its request: no other part would fare better."""
Asked = TypeVar("Asked", bound=Request)
Made = TypeVar("Made", StreamChunk, Segment)
PieceResult = TypeVar("PieceResult", StreamResult, PlanResult)


class Outlets(Protocol):
    """Takes what a request with help needs, and what comes of it."""

    def ask_edge(self, parent: str, request: Request) -> None:
        """Submit the request of a part to the edge; a refusal comes back by `refused`."""
        ...

    def has_room(self) -> bool:
        """Return whether the edge has room for more than one expansion of a part."""
        ...

    def end_part(self, request_id: str) -> None:
        """End a request at the edge."""
        ...

    def pass_report(self, report: ExecutionReport) -> None:
        """Pass a robot's report on to the edge."""
        ...

    def forget(self, key: str) -> None:
        """Give up the question to the cloud."""
        ...

    def deliver(self, made: StreamChunk | Segment) -> None:
        """Pass a chunk or a segment on to the client."""
        ...

    def finish(self, result: Result) -> None:
        """Pass on how the request ended."""
        ...


class HelpedRequest(ABC, Generic[Asked, Made, PieceResult]):
    """One request of a client, served by several requests to the edge.

    The edge begins at once with the *opening*, which has the id of the request and is what it would
    be without help. The cloud's sketch comes in parts; each is expanded by a request of its own.
    All calls of one object come one at a time. It has no clock and no I/O.

    Args:
        request: of the client.
        outlets: take what is to be done.
        settings: of the help.
        chat: with which the cloud is asked.
        now: seconds on the clock of all calls.

    Attributes:
        request: of the client.
        parts: the parts of the sketch that have come, in order.
        result: how it ended; None: it has not.
    """

    def __init__(
        self,
        request: Asked,
        outlets: Outlets,
        settings: HelpSettings,
        chat: tuple[ChatMessage, ...],
        now: float,
    ) -> None:
        self.request = request
        self.parts: list[Part] = []
        self.result: Result | None = None
        self._outlets = outlets
        self._settings = settings
        self._reader = SketchReader()
        self._chat = chat
        self._asked_s = now
        self._cloud_open = True
        self._cloud_s = 0.0
        self._cloud_tokens = 0
        self._problem = ""
        self._again_s = -math.inf
        self._refused_s = math.inf

    @property
    def key(self) -> str:
        """The request's id, and that of its opening and of the question to the cloud."""
        return self.request.request_id

    @property
    def question(self) -> CloudQuestion:
        """What the cloud is asked."""
        settings = self._settings
        return CloudQuestion(self.key, self._chat, settings.sketch_tokens, settings.timeout_s)

    @property
    @abstractmethod
    def opening(self) -> Asked:
        """The request that begins at the edge, without a mode."""

    @property
    @abstractmethod
    def delivered(self) -> int:
        """Chunks of an answer, or segments of a plan's newest epoch, that were delivered."""

    @property
    def begun(self) -> bool:
        """Whether something was delivered."""
        return self.delivered > 0

    @abstractmethod
    def due_in_s(self, now: float) -> float:
        """Return the seconds until the next deliverable is needed."""

    @abstractmethod
    def wake_s(self, now: float) -> float:
        """Return when `tick` is needed at the latest."""

    @abstractmethod
    def tick(self, now: float) -> None:
        """Expand the parts that are due."""

    @abstractmethod
    def made(self, what: Made, now: float) -> None:
        """Take what the edge has made for one of the requests."""

    @abstractmethod
    def piece_ended(self, result: PieceResult, now: float) -> None:
        """Take the end of one of the requests to the edge."""

    @abstractmethod
    def refused(self, request_id: str, error: Rejected, now: float) -> None:
        """Take the refusal of the request of a part."""

    @abstractmethod
    def cancel(self, code: ErrorCode, reason: str, now: float) -> None:
        """End all that is open, and the request."""

    def cloud_words(self, text: str, now: float) -> None:
        """Read the next piece of the sketch."""
        if self.result is not None or not self._cloud_open:
            return
        self._cloud_tokens += 1  # a stream has about a token a piece
        parts = self._reader.feed(text)
        if self._reader.is_hostile:
            self._stop_asking(HOSTILE, now)
            self._sketch_over(True, now)
        else:
            self._take(parts, now)

    def cloud_ended(self, end: CloudEnd, now: float) -> None:
        """Take the end of the cloud's words."""
        if self.result is not None or not self._cloud_open:
            return
        self._cloud_open = False
        self._cloud_s = now - self._asked_s
        self._cloud_tokens = end.tokens or self._cloud_tokens
        parts = self._reader.end()
        broke = end.error or (HOSTILE if self._reader.is_hostile else "")
        if broke:
            self._problem = broke
        else:
            self._take(parts, now)
            if not self.parts:
                self._problem = self._problem or "the cloud's sketch has no parts"
        if self.result is None:
            self._sketch_over(bool(broke), now)

    def _stop_asking(self, problem: str, now: float) -> None:
        """Give the cloud up."""
        self._cloud_open = False
        self._cloud_s = now - self._asked_s
        self._problem = problem
        self._outlets.forget(self.key)

    def _tries_again(self, error: Rejected, now: float) -> bool:
        """Return whether a part that the edge refuses is tried again; else the request ends."""
        self._refused_s = min(self._refused_s, now)
        if error.code in ENDS or now >= self._refused_s + GIVE_UP_S:
            self.cancel(error.code, str(error), now)
            return False
        self._again_s = now + max(error.retry_after_s, AGAIN_S)
        return True

    def _leave_out(self, why: str) -> None:
        """Go on without a part."""
        self._problem = self._problem or f"a part was left out: {why}"

    def _take(self, parts: Sequence[Part], now: float) -> None:
        if parts:
            self.parts += parts
            self._sketched(now)

    @abstractmethod
    def _sketched(self, now: float) -> None:
        """Go on with new parts."""

    @abstractmethod
    def _sketch_over(self, broke: bool, now: float) -> None:
        """Go on without further parts; the sketch is whole, or it broke off."""

    def _end(self, result: Result, used: bool, now: float) -> None:
        """End the request.

        Args:
            result: of the edge's work, in the name of the request.
            used: whether parts of the sketch are in what was delivered.
            now: seconds.
        """
        if self._cloud_open:
            self._stop_asking(self._problem if used else LATE, now)
        elif not (used or self._problem):
            self._problem = LATE
        self.result = replace(
            result,
            mode_used=RequestMode.PROGRESSIVE if used else RequestMode.DIRECT,
            cloud_tokens=self._cloud_tokens,
            cloud_time_s=self._cloud_s,
            fallback=self._problem,
        )
        self._outlets.finish(self.result)
