"""How much of the engine's time goes to prompts that are computed again after an eviction."""

from __future__ import annotations

import math


class Recomputing:
    """Keeps prompts that later segments compute again to half of the engine's time.

    After such prompts no later segment may evict others for as long as they took. So where memory
    lacks, a plan makes several segments for each prompt.
    """

    def __init__(self) -> None:
        self._evicts_from_s = -math.inf
        self._begun_s = self._prompts_s = 0.0

    def began(self, now: float, prompts_s: float) -> None:
        """Note a step that evicts others, and the predicted seconds of prompts computed again."""
        self._begun_s, self._prompts_s = now, prompts_s

    def may_evict(self, now: float) -> bool:
        """Return whether later segments may evict others, when the next step is planned."""
        took_s = min(self._prompts_s, now - self._begun_s)  # less if KV was loaded
        if took_s > 0.0:
            self._evicts_from_s = max(self._evicts_from_s, self._begun_s + took_s) + took_s
            self._prompts_s = 0.0
        return now >= self._evicts_from_s
