"""How busy the machine is while processes are killed."""

from __future__ import annotations

import os
import time
from statistics import fmean
from typing import Any

STARVED_S = 0.25
"""A process that waits this long for a processor is starved, seconds: leases run out soon."""


class Machine:
    """Measures how long a process that is due waits for a processor, and the load.

    Attributes:
        waited_s: longest wait so far, seconds.
    """

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._loads: list[float] = []

    @property
    def starved(self) -> bool:
        """Whether rules about time are broken without a fault of a process."""
        return self.waited_s >= STARVED_S

    def nap(self, seconds: float) -> None:
        """Sleep, and measure what the sleep took beyond its time."""
        due_s = time.monotonic() + seconds
        time.sleep(seconds)
        self.waited_s = max(self.waited_s, time.monotonic() - due_s)

    def look(self) -> None:
        """Sample the load: the mean number of processes that run or wait in the last minute."""
        self._loads.append(os.getloadavg()[0])

    def rows(self) -> list[dict[str, Any]]:
        """Return what was measured, as rows of a table."""
        numbers = [
            ("processors", os.cpu_count() or 1),
            ("load, mean", round(fmean(self._loads or [0.0]), 1)),
            ("load, most", round(max(self._loads, default=0.0), 1)),
            ("longest wait of a process for a processor, s", round(self.waited_s, 2)),
        ]
        return [{"what": what, "number": number} for what, number in numbers]
