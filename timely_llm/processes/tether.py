"""Runs a command that dies with the process that started it, even by SIGKILL.

`python -m timely_llm.processes.tether PARENT_PID COMMAND...`. Done after the fork and in a program
of its own, because code between fork and exec is not safe in a parent that has threads.
"""

from __future__ import annotations

import os
import sys

from timely_llm.core.parent import end_with_parent


def main(parent_pid: int, command: list[str]) -> None:
    """Tie this process to its parent, then become the command."""
    end_with_parent(parent_pid)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
