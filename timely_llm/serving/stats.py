"""Counts and recent times of the serving loop."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from timely_llm.core.request import ErrorCode, PlanResult, Result
from timely_llm.core.stream import StreamResult
from timely_llm.engines.contract import StepResult

RECENT = 256

_NO_ANSWERS = frozenset(
    (
        ErrorCode.CANCELED, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_CONVERSATION,
        ErrorCode.CLIENT_SILENT,
    )
)  # fmt: skip
"""Ends of streams that say nothing about how well they were served: the client's doing."""


def _recent() -> deque[float]:
    return deque(maxlen=RECENT)


@dataclass
class Stats:
    """What a loop has done since it was made; times in seconds.

    Attributes:
        guessed_tokens: tokens that the engine guessed and computed; speculative decoding.
        right_guesses: of these, tokens that the model then said too.
        loaded_tokens: tokens whose KV was found or fetched instead of computed.
        chunks: tokens of answers that were told.
        duration_error: mean of |true - predicted| / true of the last segments that robots of one
            skill set executed, the one that was heard of last.
        duration_bias: mean of (true - predicted) / true of the same.
    """

    requests: int = 0
    ended: int = 0
    failed: int = 0
    expired: int = 0
    silent: int = 0
    replans: int = 0
    segments: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0
    loaded_tokens: int = 0
    evictions: int = 0
    guessed_tokens: int = 0
    right_guesses: int = 0
    chunks: int = 0
    duration_error: float = 0.0
    duration_bias: float = 0.0
    _step_s: deque[float] = field(default_factory=_recent)
    _response_s: deque[float] = field(default_factory=_recent)
    _utility: deque[float] = field(default_factory=_recent)
    _ttft_s: deque[float] = field(default_factory=_recent)
    _slo_met: deque[float] = field(default_factory=_recent)
    _stalled_s: deque[float] = field(default_factory=_recent)

    def step(self, result: StepResult) -> None:
        """Enter one step."""
        self.loaded_tokens += sum(result.loaded.values())
        self.evictions += len(result.evicted)
        if result.waited:
            return
        self.steps += 1
        self.generated_tokens += sum(len(tokens) for tokens in result.tokens.values())
        self.recomputed_tokens += sum(result.recomputed.values())
        self.guessed_tokens += sum(result.guessed.values())
        self.right_guesses += sum(len(result.tokens[key]) - 1 for key in result.guessed)
        if 0.0 <= result.duration_s < math.inf:  # a clock may have been set back
            self._step_s.append(result.duration_s)

    def predicted(self, error: float, bias: float) -> None:
        """Enter how well durations are predicted now."""
        self.duration_error, self.duration_bias = error, bias

    def end(self, result: Result) -> None:
        """Enter the end of a request; a canceled one is neither a success nor a failure."""
        if result.error_code is ErrorCode.NONE:
            self.ended += 1
        elif result.error_code is not ErrorCode.CANCELED:
            self.failed += 1
            self.expired += result.error_code is ErrorCode.EXPIRED
            self.silent += result.error_code is ErrorCode.CLIENT_SILENT
        if isinstance(result, PlanResult) and result.response_s >= 0:
            self._response_s.append(result.response_s)
            self._utility.append(result.utility)
        elif isinstance(result, StreamResult) and result.error_code not in _NO_ANSWERS:
            self._slo_met.append(result.slo_met)
            self._stalled_s.append(result.stalled_s)
            if result.ttft_s >= 0:
                self._ttft_s.append(result.ttft_s)

    @property
    def step_s(self) -> float:
        """Mean seconds of the last steps, 0 before the first."""
        return _mean(self._step_s)

    @property
    def utility(self) -> float:
        """Mean utility of the last requests, 0 before the first."""
        return _mean(self._utility)

    @property
    def slo_met(self) -> float:
        """Share of the last answers whose service level was kept, 0 before the first."""
        return _mean(self._slo_met)

    @property
    def stalled_s(self) -> float:
        """Mean seconds that listeners of the last answers had to wait for words."""
        return _mean(self._stalled_s)

    def response_s(self, percentile: float) -> float:
        """Return a percentile of the last response times, 0 before the first."""
        return _percentile(self._response_s, percentile)

    def ttft_s(self, percentile: float) -> float:
        """Return a percentile of the last times to a first token, 0 before the first."""
        return _percentile(self._ttft_s, percentile)


def _mean(values: deque[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _percentile(values: deque[float], percentile: float) -> float:
    return float(np.percentile(values, percentile)) if values else 0.0
