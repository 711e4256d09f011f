"""A step that streams join one after the other, each with a limit for how long it may become."""

from __future__ import annotations

import math
from dataclasses import dataclass

from timely_llm.core.generation import StreamGeneration
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.talk import Talk

_LEAST_CHUNK = 16
"""Tokens of a prompt: to begin with fewer is not worth a step."""


@dataclass(frozen=True)
class Beside:
    """What plans take of the step that is being planned.

    Attributes:
        rows, prefill_tokens, context_tokens: of those that take part.
        longest_s: what they can afford, seconds.
        needs: tokens a second of each of those who decode or wait.
        free_tokens: of KV, that plans leave.
        max_rows: most that may take part.
    """

    rows: int = 0
    prefill_tokens: int = 0
    context_tokens: int = 0
    longest_s: float = math.inf
    needs: tuple[float, ...] = ()
    free_tokens: int = 1 << 60
    max_rows: int = 1 << 60


class StreamStep:
    """Who takes part so far.

    Attributes:
        decoding, starting: streams that make a token, and those whose prompt is computed.
        tokens: of all streams in it.
        seconds: how long it takes.
        limit_s: how long it may become.
    """

    def __init__(self, beside: Beside, step_time: StepTime, mean_context: float) -> None:
        self.decoding: list[StreamGeneration] = []
        self.starting: list[StreamGeneration] = []
        self.tokens = 0
        self.limit_s = beside.longest_s
        self._step_time = step_time
        self._mean_context = mean_context
        self._rows = beside.rows
        self._max_rows = beside.max_rows
        self._prefill_tokens = beside.prefill_tokens
        self._context_tokens = float(beside.context_tokens)
        self._free_tokens = beside.free_tokens
        self._chunked = False
        self.seconds = self._seconds(self._rows, self._prefill_tokens, self._context_tokens)

    @property
    def empty(self) -> bool:
        """Whether nobody takes part, not even a plan."""
        return not self._rows

    def join(self, talk: Talk, limit_s: float) -> bool:
        """Take one more if the step stays within a limit, or it is the only one; return whether."""
        generation = talk.generation
        rows = self._rows + 1
        if rows > self._max_rows:
            return False
        context = self._context_tokens + self._mean_context
        seconds = self._seconds(rows, self._prefill_tokens, context)
        if generation.to_compute == 1:
            if seconds > limit_s and self._rows:
                return False
            self.decoding.append(generation)
            self.tokens += 1
            self._free_tokens -= talk.tokens_to_go
        else:
            chunk = self._chunk(generation, limit_s - seconds)
            room = generation.to_compute + talk.tokens_to_go <= self._free_tokens
            if self._rows and not (chunk and room):
                return False
            chunk = chunk or _LEAST_CHUNK
            self.starting.append(generation)
            self.tokens += chunk
            self._prefill_tokens += chunk
            self._free_tokens -= generation.to_compute + talk.tokens_to_go
            self._chunked = chunk < generation.to_compute
            seconds = self._seconds(rows, self._prefill_tokens, context)
        self._rows, self._context_tokens, self.seconds = rows, context, seconds
        return True

    def _chunk(self, generation: StreamGeneration, left_s: float) -> int:
        """Return how much of a prompt can be computed in a time; 0 if that is not worth while."""
        if self._chunked:
            return 0
        token_s = self._step_time.coefficients[2]
        most = generation.to_compute
        if token_s * most > left_s:
            most = int(max(left_s, 0.0) / token_s) if token_s else 0
        return most if most >= min(generation.to_compute, _LEAST_CHUNK) else 0

    def _seconds(self, rows: int, prefill_tokens: int, context: float) -> float:
        return self._step_time.predict_s(rows, prefill_tokens, int(context))
