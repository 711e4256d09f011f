"""A child process in a session of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import Any


class OwnSession:
    """A child process in a session of its own, which it shares with all that it starts.

    Args:
        process: the child, started with `start_new_session`.
    """

    def __init__(self, process: subprocess.Popen[Any]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def send(self, signum: int) -> None:
        """Send a signal to it and to all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signum)
