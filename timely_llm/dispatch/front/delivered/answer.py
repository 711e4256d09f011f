"""What the client of an answer has got."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from timely_llm.core.request import ErrorCode, Result, StreamChunk, StreamResult, mean_gap_s
from timely_llm.core.slo import Listener
from timely_llm.dispatch.contract import Waiting
from timely_llm.dispatch.front.delivered.recovery import Recovery, asked_first
from timely_llm.dispatch.link import Found


@dataclass(eq=False)
class DeliveredAnswer:
    """The tokens that a client has got from all servers that had its request.

    They begin with the request's `first_token`: what was before is part of its prompt.

    Attributes:
        waiting: the request, as it was asked first.
        asked_s: when it was.
        whole: the client has all of it.
    """

    waiting: Waiting
    asked_s: float
    whole: bool = False
    _texts: list[str] = field(default_factory=list)
    _before: int = 0  # tokens of earlier servers
    _listener: Listener = field(init=False)
    _first_s: float = math.nan
    _last_s: float = math.nan
    _gap_s: float = 0.0

    def __post_init__(self) -> None:
        self._listener = Listener(self.waiting.stream.words_per_s)

    @property
    def begun(self) -> bool:
        """Whether the client got a token."""
        return bool(self._texts)

    @property
    def count(self) -> int:
        """Number of tokens that the client got."""
        return len(self._texts)

    @property
    def text(self) -> str:
        """Text of these tokens."""
        return "".join(self._texts)

    @property
    def due_s(self) -> float:
        """When the client needs the next token, on the dispatcher's clock."""
        slo = self.waiting.stream.slo
        if not self.begun:
            return self.asked_s + slo.ttft_s
        return self._first_s + len(self._texts) * slo.tpot_s

    def take(self, chunk: StreamChunk, now: float) -> bool:
        """Record a token; return whether it is the next one."""
        if chunk.index != self.waiting.stream.first_token + len(self._texts):
            return False
        self._texts.append(chunk.text)
        self._listener.receive(chunk.text, now)
        if math.isnan(self._first_s):
            self._first_s = now
        else:
            self._gap_s = max(self._gap_s, now - self._last_s)
        self._last_s = now
        self.whole = chunk.final
        return True

    def adopt(self, found: Found, now: float) -> None:
        """Record what was delivered before: by earlier servers, and by the one that has it."""
        self._before = found.first_token - self.waiting.stream.first_token
        said = ((asked_first(found.request)[1], self._before), (found.text, found.tokens))
        self._texts = [word for text, count in said for word in [text, *[""] * count][:count]]
        self._first_s = self._last_s = now if self._texts else math.nan

    def is_behind(self, found: Found) -> bool:
        """Return whether a server goes on with the answer from a later token on."""
        return found.first_token > self.waiting.stream.first_token + self._before

    def has_come(self, result: Result) -> bool:
        """Return whether all tokens of the present server have come."""
        text = "".join(self._texts[self._before :])
        return not isinstance(result, StreamResult) or text == result.text

    def rest(self, recovery: Recovery, now: float) -> Waiting:
        """Return the request for the rest of the answer.

        Raises:
            RequestError: no server admits such a request.
        """
        self._before = tokens = len(self._texts)
        request = recovery.answer(self.waiting.stream, self.text, tokens)
        left = max(self.waiting.answer_tokens - tokens, 1.0)
        first = self.waiting.stream.first_token + tokens
        return replace(
            self.waiting, request=replace(request, first_token=first), answer_tokens=left
        )

    def merged(self, result: Result, moved: bool = False) -> Result:
        """Return a result as the client gets it: with what earlier servers delivered.

        Args:
            result: the present server's; or one that has nothing but an error, if none has it.
            moved: no server has the request.
        """
        if not (self._before or (moved and self.begun)) or not isinstance(result, StreamResult):
            return result
        complete = result.error_code is ErrorCode.NONE
        ttft_s = self._first_s - self.asked_s
        tpot_s = mean_gap_s(self._first_s, self._last_s, len(self._texts))
        completion_s = self._last_s - self.asked_s if complete else -1.0
        return replace(
            result,
            text=self.text,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            largest_gap_s=self._gap_s,
            completion_s=completion_s,
            stalled_s=self._listener.stalled_s,
            slo_met=complete and self.waiting.stream.slo.met(ttft_s, tpot_s, completion_s),
            generated_tokens=max(result.generated_tokens + self._before, len(self._texts)),
        )
