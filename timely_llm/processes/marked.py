"""Processes that are known by a variable of their environment."""

from __future__ import annotations

import contextlib
import time

import psutil

from timely_llm.processes.children import POLL_S

GONE_S = 5.0
"""Time that processes have to end after those that started them, seconds."""


def left_running(variable: str, value: str, within_s: float = GONE_S) -> list[psutil.Process]:
    """Wait until no process has an environment variable; return those that have it at the end.

    Children inherit the variable, in sessions of their own too.
    """
    end_s = time.monotonic() + within_s
    while (left := _marked(variable, value)) and time.monotonic() < end_s:
        time.sleep(POLL_S)
    return left


def _marked(variable: str, value: str) -> list[psutil.Process]:
    made = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            marked = process.environ().get(variable) == value
            if marked and process.status() != psutil.STATUS_ZOMBIE:
                made.append(process)
    return made
