"""When events happen: bursts of tasks at Poisson times (paper 001 §6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Burst:
    """An event that hits several robots at once.

    Attributes:
        time_s: seconds after the start.
        urgent: for each robot it hits, whether its task is urgent.
    """

    time_s: float
    urgent: tuple[bool, ...]


def bursts(
    rng: np.random.Generator, events_per_s: float, max_tasks: int, urgent_share: float
) -> Iterator[Burst]:
    """Yield bursts for ever: exponential gaps, 1 to `max_tasks` tasks each.

    Args:
        rng: randomness.
        events_per_s: mean events per second (EPS of paper 001 Table 3).
        max_tasks: most tasks of one event (Max TPE).
        urgent_share: probability that a task is urgent.
    """
    time_s = 0.0
    while True:
        time_s += float(rng.exponential(1.0 / events_per_s))
        tasks = int(rng.integers(1, max_tasks + 1))
        yield Burst(time_s, tuple(bool(u) for u in rng.random(tasks) < urgent_share))
