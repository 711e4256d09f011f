"""Baselines with segments: other orders in TimelyLLM's scheduler (paper 001 §7.3.2).

A suspended generation keeps the priority it had when it arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.core.generation import PlanGeneration
from timely_llm.policies.timely import Timely


@dataclass(eq=False)
class FcfsSegments(Timely):
    """First come, first served, one segment at a time."""

    def priority(self, generation: PlanGeneration, now: float, segment_s: float) -> float:
        """Return the higher, the earlier it arrived."""
        return -generation.arrival_s


@dataclass(eq=False)
class Edf(Timely):
    """Earliest deadline first: the deadline is the expected response time."""

    def priority(self, generation: PlanGeneration, now: float, segment_s: float) -> float:
        """Return the higher, the earlier its first segment was due."""
        return -(generation.arrival_s + generation.request.time_utility.ert_s)
