"""Real-time priorities of processes, where the system has and permits them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def give_real_time(process: int | str, priority: int) -> None:
    """Give all threads of a process a real-time priority; those begun later inherit it.

    Args:
        process: its id, or "self".
        priority: of the policy SCHED_RR, from 1 to 99.

    Raises:
        OSError: the system does not permit it.
        AttributeError: the system has no SCHED_RR.
    """
    for thread in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(priority))
