"""The serving loop itself in virtual time, with the times of tokens and segments written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from test.serving.scripted import Scene
from timely_llm.core.request import ChatMessage, Request, StreamChunk, StreamRequest
from timely_llm.core.segment import Segment
from timely_llm.core.slo import SloClass
from timely_llm.policies.contract import Policy

WORDS = "hello there my good friend. "


def asked(key: str, of_class: SloClass) -> StreamRequest:
    """Return a request for an answer."""
    words = (ChatMessage("user", "hello"),)
    return StreamRequest(key, f"agent-{key}", words, of_class.slo, of_class.weight)


class Lanes(Scene):
    """A scene that knows when tokens and segments came, seconds."""

    def __init__(self, answers: Mapping[str, str], policy: Policy, kv_tokens: int = 65_536) -> None:
        super().__init__(answers, policy, kv_tokens=kv_tokens)
        self.token_times_s: dict[str, list[float]] = {}
        self.segment_times_s: dict[str, list[float]] = {}
        self.sink.chunk = self._chunk  # type: ignore[method-assign]
        self.sink.segment = self._segment  # type: ignore[method-assign]

    def serve(self, requests: Iterable[tuple[float, Request]]) -> None:
        """Admit requests at their times, and turn until all have ended."""
        for at_s, request in requests:
            while self.clock.now() < at_s:
                turn = self.loop.turn()
                if not turn.stepped:
                    until_s = min(turn.wake_s, at_s)
                    self.clock.advance(max(until_s - self.clock.now(), 1e-9))
            self.loop.admit(request, at_s)
        self.run(50_000)

    def rate(self, key: str) -> float:
        """Return tokens a second after the first one."""
        times_s = self.token_times_s[key]
        return (len(times_s) - 1) / (times_s[-1] - times_s[0])

    def gaps_s(self, key: str) -> list[float]:
        """Return the seconds between tokens."""
        times_s = self.token_times_s[key]
        return [after - before for before, after in pairwise(times_s)]

    def _chunk(self, chunk: StreamChunk) -> None:
        self.token_times_s.setdefault(chunk.request_id, []).append(self.clock.now())
        self.sink.chunks.append(chunk)

    def _segment(self, segment: Segment) -> None:
        self.segment_times_s.setdefault(segment.request_id, []).append(self.clock.now())
        self.sink.segments.append(segment)
