"""A step that plans and streams share, under the policy `deadline`."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from timely_llm.core.generation import Generation, StreamGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.policies.deadline.moment import AHEAD, Moment
from timely_llm.policies.deadline.stream_state import StreamState
from timely_llm.policies.deadline.wave import LONGEST_SEGMENT, Deliverable

_LEAST_CHUNK = 16  # fewer prompt tokens are not worth a step


class SharedStep:
    """A step that plans and streams share, while streams join it one by one.

    Args:
        moment: the moment.
        first: the plans in the step.
        wave: those of them that are needed.

    Attributes:
        rows: of the step.
        joined: the streams in the step.
        tokens: tokens of the streams in the step.
        limit_s: longest that the step may become for the streams in it, seconds.
    """

    def __init__(
        self, moment: Moment, first: Sequence[Generation], wave: Sequence[Deliverable]
    ) -> None:
        self.rows = rows = len(first)
        self.joined: list[StreamGeneration] = []
        self.tokens = 0
        self.limit_s = math.inf
        self._predict_s, self._why = moment.step_time.predict_s, moment.why
        _, self._row_s, self._token_s, _ = moment.step_time.coefficients
        self._max_rows = moment.capacity.max_rows
        self._prompts = prompts = sum([g.to_compute for g in first if g.to_compute > 1])
        self._context = context = sum([g.context_tokens for g in first])
        self._free_tokens = moment.capacity.free_tokens - prompts - rows * LONGEST_SEGMENT
        self._chunked = False  # a prompt fills the rest of the step
        step_s = self._predict_s(rows, 0, context)
        # The prompts lengthen this step alone; in a pipeline, what they add to a cycle counts.
        prompts_s = self._predict_s(rows, prompts, context) - step_s
        least_s = step_s * (1.0 + AHEAD)
        self._worth = [-one.density for one in wave]
        own_s = [max(one.own_step_s(moment.now), least_s) + prompts_s for one in wave]
        self._limits_s = list(accumulate(own_s, min, initial=math.inf))

    def limit_for(self, density: float) -> float:
        """Return the longest step for streams in it, and for plans that are worth more."""
        limit_s = self._limits_s[bisect_left(self._worth, -density)]
        return limit_s if limit_s < self.limit_s else self.limit_s

    def join(self, state: StreamState, limit_s: float) -> bool:
        """Add a stream if the step stays within a limit, or is empty; return whether it joined."""
        generation, token_s, why = state.generation, self._token_s, self._why
        rows, tokens = self.rows + 1, generation.to_compute
        context = self._context + generation.context_tokens
        seconds = self._predict_s(rows, self._prompts, context)
        if state.rate and token_s * tokens > self._row_s:
            # A prompt is paid once, unlike a row: it may lengthen a step to begin in time. So may a
            # row that is cheaper than a prompt's token.
            limit_s = max(limit_s, state.start_s)
        refusal: tuple[Cause, float | None] | None = None
        if rows > self._max_rows:
            refusal = Cause.ROWS, self._max_rows
        elif self.rows and seconds > limit_s:
            refusal = Cause.STEP_TIME, limit_s
        elif tokens > 1:
            tokens, refusal = self._chunk(state, limit_s - seconds, limit_s)
        if refusal is not None:
            if why is not None:
                why[generation.key] = Reason(*refusal)
            return False
        self.joined.append(generation)
        self.rows, self._context = rows, context
        self.tokens += tokens
        self._free_tokens -= generation.to_compute + state.tokens_to_go
        if why is not None:
            why[generation.key] = (
                Reason(Cause.PROMISED, state.rate) if state.rate else Reason(Cause.SPARE)
            )
        return True

    def _chunk(
        self, state: StreamState, left_s: float, limit_s: float
    ) -> tuple[int, tuple[Cause, float | None] | None]:
        """Return the tokens of a prompt that join, and why none do.

        Args:
            state: of the stream.
            left_s: seconds that they may add to the step.
            limit_s: longest step, seconds.
        """
        whole, token_s = state.generation.to_compute, self._token_s
        needed = whole + state.tokens_to_go
        if self.rows and needed > self._free_tokens:
            return 0, (Cause.MEMORY, needed - self._free_tokens)
        if self._chunked:
            return 0, (Cause.OTHER_PROMPT, None)
        tokens, chunked = whole, token_s * whole > left_s
        if chunked:
            tokens = int(max(left_s, 0.0) / token_s) if token_s else 0
        if tokens < min(_LEAST_CHUNK, whole):
            if self.rows:
                return 0, (Cause.STEP_TIME, limit_s)
            tokens = _LEAST_CHUNK
        self._chunked = chunked
        self._prompts += tokens
        return tokens, None
