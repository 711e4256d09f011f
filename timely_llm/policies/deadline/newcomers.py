"""What newcomers cost the plans that a wave leaves behind, under the policy `deadline`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from timely_llm.core.generation import PlanGeneration
from timely_llm.policies.step_time import StepTime

EXPENSIVE = 2.0
"""Rows are expensive if a step of all takes more than this times one of one row."""

_WINDOW_S = 20.0  # of what is remembered
_ENOUGH = 0.1  # of the engine for prompts of newcomers, before they count
_FEW = 8  # rows that must be cheap
_MOST = 0.8  # of the engine: then all takes five times as long


class Newcomers:
    """Share of the engine for prompts of plans that come while others are left behind.

    Newcomers join before those that were left behind, or with them. If their prompts take a share
    `rho` of the engine, other work of `t` seconds takes `t / (1 - rho)`. They do not count where
    plans seldom wait, as after a burst, nor where a larger batch saves little: where rows are
    expensive, or where a prompt takes longer than a step of one row.

    Attributes:
        slowdown: `1 / (1 - rho)`.
    """

    def __init__(self) -> None:
        self.slowdown = 1.0
        self._last_s = -math.inf  # the last decision
        self._left_behind = False
        self._waited_s = self._prompts_s = 0.0

    def look(self, now: float, plans: Iterable[PlanGeneration], step_time: StepTime) -> None:
        """Note what has come since the last decision.

        Args:
            now: the time, seconds.
            plans: those that are needed soon.
            step_time: of steps.
        """
        last_s, self._last_s = self._last_s, now
        if last_s == -math.inf:
            return
        fade = math.exp((last_s - now) / _WINDOW_S)
        self._waited_s *= fade
        self._prompts_s *= fade
        if self._left_behind:
            self._waited_s += _WINDOW_S * (1.0 - fade)
            new = [g for g in plans if g.arrival_s > last_s and not g.segments]
            self._prompts_s += _shared_prompts_s(new, step_time) if new else 0.0
            self._left_behind = False
        share = 0.0
        if self._prompts_s > _ENOUGH * _WINDOW_S:
            share = self._prompts_s / max(self._waited_s, self._prompts_s)
        self.slowdown = 1.0 / (1.0 - min(share, _MOST))

    def leave_behind(self) -> None:
        """Note that this decision leaves plans behind."""
        self._left_behind = True


def _shared_prompts_s(plans: Iterable[PlanGeneration], step_time: StepTime) -> float:
    """Return the seconds of prompts that save time by sharing a step."""
    one_s, token_s = step_time.predict_s(1), step_time.coefficients[2]
    if step_time.predict_s(_FEW) > EXPENSIVE * one_s:
        return 0.0
    prompts_s = [token_s * plan.to_compute for plan in plans]
    return sum([seconds for seconds in prompts_s if seconds <= one_s])
