"""One answer of a conversation, as its client sees it: no ROS, usable from any thread."""

from __future__ import annotations

from collections.abc import Iterator

from timely_llm.core.request import ErrorCode
from timely_llm.core.stream import StreamChunk, StreamResult
from timely_llm.ros.pending import Canceler, Pending, PlanClientError


class Answer(Pending[StreamResult]):
    """An answer in the making; made by `TalkClient.converse`."""

    def __init__(self, request_id: str, agent: str, canceler: Canceler) -> None:
        super().__init__(request_id, agent, canceler)
        self._early: dict[int, str] = {}  # texts of pieces that came before others
        self._next = 0
        self._came = ""
        self._read = 0

    def chunks(self, timeout_s: float = 30.0) -> Iterator[str]:
        """Yield the text as it comes, until the answer is complete.

        Args:
            timeout_s: how long to wait for each piece.

        Raises:
            PlanTimeout: the next piece did not come in time.
            PlanClientError: the answer ended with an error, or the client was closed; what had come
                until then was yielded.
        """
        while text := self._take(timeout_s):
            yield text

    def offer(self, chunk: StreamChunk) -> None:
        """Take a piece; one that is known changes nothing."""
        with self._changed:
            if chunk.index >= self._next:
                self._early[chunk.index] = chunk.text
            while self._next in self._early:
                self._came += self._early.pop(self._next)
                self._next += 1
            self._changed.notify_all()

    def _take(self, timeout_s: float) -> str:
        """Wait for more text and return all that is there; empty: the answer is complete."""
        with self._changed:
            self._wait(lambda: len(self._came) > self._read or self.done, timeout_s, "sent nothing")
            # The result may be here before the last pieces, or some got lost on the way.
            whole = self._came if self._result is None else self._result.text
            text = whole[self._read :]
            self._read += len(text)
            if not text:
                result = self._ended()
                if result.error_code is not ErrorCode.NONE:
                    raise PlanClientError(result.error_msg, result.error_code)
            return text
