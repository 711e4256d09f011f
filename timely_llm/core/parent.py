"""A process that ends with the one that started it, even if it hangs or is stopped."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int) -> None:
    """Ask the kernel (Linux) to kill this process when the thread that started it ends.

    Nothing has to run in this process for that: it may hang in C code or be stopped. The kernel
    watches the thread, not the process: who starts a process from a thread that ends loses it.

    Args:
        parent_pid: the process that started this one.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            sys.exit(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before the kernel knew.
    if os.getppid() != parent_pid:
        sys.exit("the process that started this one is gone")
