"""Counts and recent times of the serving loop."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from timely_llm.core.request import ErrorCode, PlanResult

RECENT = 256


def _recent() -> deque[float]:
    return deque(maxlen=RECENT)


@dataclass
class Stats:
    """What a loop has done since it was made; times in seconds."""

    requests: int = 0
    ended: int = 0
    failed: int = 0
    segments: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0
    _step_s: deque[float] = field(default_factory=_recent)
    _response_s: deque[float] = field(default_factory=_recent)
    _utility: deque[float] = field(default_factory=_recent)

    def step(self, duration_s: float, generated: int, recomputed: int) -> None:
        """Enter one step."""
        self.steps += 1
        self.generated_tokens += generated
        self.recomputed_tokens += recomputed
        self._step_s.append(duration_s)

    def end(self, result: PlanResult) -> None:
        """Enter the end of a request; a canceled one is neither a success nor a failure."""
        if result.error_code is ErrorCode.NONE:
            self.ended += 1
        elif result.error_code is not ErrorCode.CANCELED:
            self.failed += 1
        if result.response_s >= 0:
            self._response_s.append(result.response_s)
            self._utility.append(result.utility)

    @property
    def step_s(self) -> float:
        """Mean seconds of the last steps, 0 before the first."""
        return float(np.mean(self._step_s)) if self._step_s else 0.0

    @property
    def utility(self) -> float:
        """Mean utility of the last requests, 0 before the first."""
        return float(np.mean(self._utility)) if self._utility else 0.0

    def response_s(self, percentile: float) -> float:
        """Return a percentile of the last response times, 0 before the first."""
        return float(np.percentile(self._response_s, percentile)) if self._response_s else 0.0
