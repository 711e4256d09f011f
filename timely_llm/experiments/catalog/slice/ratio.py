"""`slice-ratio`: service levels met by share of real-time tasks (Zhou et al. 2025, Figure 10)."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.experiments.results.reported import FIGURE_10
from timely_llm.experiments.virtual.slice_sweep import TaskOptions, mix_experiment

RATIOS = tuple(tenths / 10 for tenths in range(1, 10))


@dataclass(frozen=True)
class RatioOptions(TaskOptions):
    """Options of `slice-ratio`."""

    ratios: tuple[float, ...] = RATIOS
    seeds: int = 3


EXPERIMENT = mix_experiment(
    "slice-ratio",
    "How many service levels are met with more or fewer real-time tasks?"
    " (Zhou et al. 2025, Figure 10)",
    "rt_ratio",
    FIGURE_10,
    RatioOptions(),
)
