"""`slice-rate`: service levels met as tasks come faster (Zhou et al. 2025, Figure 11)."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.experiments.results.reported import FIGURE_11
from timely_llm.experiments.virtual.slice_sweep import TaskOptions, mix_experiment

RATES = (0.1, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Tasks a second. The paper has eight rates in this range and names four of them."""


@dataclass(frozen=True)
class RateOptions(TaskOptions):
    """Options of `slice-rate`."""

    rates: tuple[float, ...] = RATES
    seeds: int = 3


EXPERIMENT = mix_experiment(
    "slice-rate",
    "How many service levels are met as tasks come faster? (Zhou et al. 2025, Figure 11)",
    "rate",
    FIGURE_11,
    RateOptions(),
)
