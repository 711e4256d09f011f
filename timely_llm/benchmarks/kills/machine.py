"""How busy the machine is while processes are killed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

STARVED_S = 0.25
"""A process that waits this long for a processor between two looks is starved, seconds."""


class Machine:
    """Measures the load, and how long processes wait for a processor.

    Attributes:
        waited_s: longest wait of a process between two looks, seconds.
    """

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._loads: list[float] = []
        self._waited_s: dict[int, float] = {}

    @property
    def starved(self) -> bool:
        """Whether rules about time are broken without a fault of a process."""
        return self.waited_s >= STARVED_S

    def look(self, pids: Iterable[int]) -> None:
        """Sample the load of the last minute, and the waits of processes."""
        self._loads.append(os.getloadavg()[0])
        for pid in pids:
            now_s = waited_s(pid)
            self.waited_s = max(self.waited_s, now_s - self._waited_s.get(pid, now_s))
            self._waited_s[pid] = now_s

    def rows(self) -> list[dict[str, Any]]:
        """Return what was measured, as rows of a table."""
        numbers = [
            ("processors", os.cpu_count() or 1),
            ("load, mean", round(fmean(self._loads or [0.0]), 1)),
            ("load, most", round(max(self._loads, default=0.0), 1)),
            ("longest wait of a client for a processor, s in a second", round(self.waited_s, 2)),
        ]
        return [{"what": what, "number": number} for what, number in numbers]


def waited_s(pid: int) -> float:
    """Return the seconds in which the main thread of a process could run and had no processor.

    Linux counts them; elsewhere, and of a process that has ended, they are 0.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
