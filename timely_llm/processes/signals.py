"""Signals that ask a process to end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int | None
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Sent by Ctrl-C, by a supervisor, and when the terminal is closed."""


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


def end_at_once(name: str, status: int | None = None) -> None:
    """Let a signal end the process in one sentence, without unwinding, from now on.

    For a process that has begun nothing yet. An exception out of a signal handler would become
    another error in a module that is being imported, or be lost in a callback of the interpreter.
    Signals that `hold` has blocked are delivered now.

    Args:
        name: what the process is called in the sentence.
        status: the exit status; None: 128 and the signal's number, as in a shell.
    """

    def end(signum: int, frame: FrameType | None) -> None:
        words = f"{name}: ended by {signal.Signals(signum).name}; nothing is left running\n"
        with contextlib.suppress(OSError):  # the terminal may be gone
            os.write(2, words.encode())
        os._exit(128 + signum if status is None else status)

    handle(ENDING, end)
    release()


def hold() -> None:
    """Block signals until `release`, also in a program that replaces this one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def release() -> None:
    """Deliver signals again, first those that `hold` has blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def manner(status: int) -> str:
    """Return how a process with an exit status ended: "with status 1", or "by SIGKILL"."""
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"
