"""The last resort: ends a process in which Python does not run any more.

A thread that hangs in C code and holds the interpreter's lock stops all threads, those that watch
it too. `faulthandler` waits in a thread that needs no lock: it writes where every thread stands and
ends the process with status 1. There is no sentence then, and nobody can be told.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time

RENEWAL_S = 1.0


class LastResort:
    """Ends the process unless it is renewed in time.

    It goes off also in a process that was stopped (SIGSTOP) for longer than that and goes on.

    Args:
        limit_s: seconds without a renewal.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._renewed_s = -RENEWAL_S

    def renew(self) -> None:
        """Say that Python runs; may be called as often as one likes."""
        now = time.monotonic()
        if now >= self._renewed_s + RENEWAL_S:
            self._renewed_s = now
            faulthandler.dump_traceback_later(self._limit_s, exit=True)

    def rest(self) -> None:
        """Let the process be until the next renewal."""
        self._renewed_s = -RENEWAL_S
        faulthandler.cancel_dump_traceback_later()


def leave(status: int) -> int:
    """Return the exit status; where a thread of an engine is left, end the process with it at once.

    Python would wait for what libraries do at exit, and that may wait for the thread.
    """
    if any(thread.name == "engine" for thread in threading.enumerate()):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
