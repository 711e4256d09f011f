"""Signals that ask a process to end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int | None
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the wish of a supervisor, and a terminal that was closed."""


def handle(signums: tuple[signal.Signals, ...], handler: Handler) -> dict[signal.Signals, Handler]:
    """Install a handler; return those that were there before, by signal.

    A process that was started with SIGHUP ignored goes on ignoring it: its user wants it to outlive
    the terminal (`nohup`).
    """
    before: dict[signal.Signals, Handler] = {}
    for signum in signums:
        if signum == signal.SIGHUP and signal.getsignal(signum) is signal.SIG_IGN:
            continue
        before[signum] = signal.signal(signum, handler)
    return before
