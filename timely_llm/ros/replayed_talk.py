"""One conversation of a trace being replayed: who asked hears the tokens as they come."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from timely_llm.core.listener import Listener
from timely_llm.core.request import ErrorCode
from timely_llm.core.stream import StreamChunk, StreamRequest, StreamResult
from timely_llm.experiments.outcome import Talk
from timely_llm.ros.replayed_request import LAST_S, ReplayedRequest
from timely_llm.traces.model import Conversation


class ReplayedTalk(ReplayedRequest[StreamRequest, StreamResult]):
    """A conversation as it is asked and heard; times on the monotonic clock.

    Args:
        conversation: due at `arrival_s` after the replay's start.
        request: what is asked.
    """

    def __init__(self, conversation: Conversation, request: StreamRequest) -> None:
        super().__init__(conversation, request)
        self._conversation = conversation
        self._listener = Listener(request.words_per_s)
        self._times_s: list[float] = []
        self._next = 0
        self._end_s = math.inf

    @property
    def finished(self) -> bool:
        """Whether it ended without an error."""
        return self.result is not None and self.result.error_code is ErrorCode.NONE

    @property
    def wake_s(self) -> float:
        """When nothing more is waited for; infinite before the result."""
        return self._end_s

    @property
    def done(self) -> bool:
        """Whether nothing more will happen."""
        if self.lost or self.result is None:
            return self.lost
        whole = len(self._times_s) >= self.result.generated_tokens
        return whole or not self.finished or time.monotonic() >= self._end_s

    def outcome(self, start_s: float) -> Talk:
        """Return what was heard, in seconds after `start_s`, the replay's start."""
        asked = replace(self._conversation, arrival_s=self.asked_s - start_s)
        times_s = tuple(time_s - start_s for time_s in self._times_s)
        return Talk(asked, self.finished and bool(times_s), times_s, self._listener.stalled_s)

    def offer(self, chunk: StreamChunk) -> None:
        """Take a token; one that is known changes nothing."""
        if chunk.index >= self._next:
            now = time.monotonic()
            self._next = chunk.index + 1
            self._times_s.append(now)
            self._listener.hear(chunk.text, now)

    def finish(self, result: StreamResult) -> None:
        """Take the result; only the first one counts."""
        if self.result is None:
            self.result = result
            self._end_s = time.monotonic() + LAST_S

    def tick(self, now: float) -> None:
        """Do nothing: whether it is done depends on the time alone."""
