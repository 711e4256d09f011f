"""Runs a command that dies with the process that started it, even by SIGKILL.

`python -m timely_llm.processes.tether PARENT_PID COMMAND...`. Done after the fork and in a program
of its own, because code between fork and exec is not safe in a parent that has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent_pid: int, command: list[str]) -> None:
    """Ask the kernel (Linux) to end this process with its parent, then become the command."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            sys.exit(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before the kernel knew.
    if os.getppid() != parent_pid:
        sys.exit("the process that started this one is gone")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
