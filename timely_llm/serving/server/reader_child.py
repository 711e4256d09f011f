"""The child process of `read_apart`: reads a skill set, with little memory, at low priority."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import sys
from pathlib import Path

from timely_llm.processes.tied import tie_to_parent

MEMORY = 256 * 1024 * 1024
"""What reading may add to the memory of this process, bytes."""
CPU_S = 5
"""Processor time after which it is ended, seconds."""
NICE = 5
"""Steps of the engine go first. With 19 a reader starves beside as many busy threads as cores, and
so do the plans that wait for their skill set."""


def main(parent_pid: int) -> None:
    """Read (text, source) from the standard input; write a skill set, or a sentence, pickled.

    Args:
        parent_pid: the process that started this one.
    """
    tie_to_parent(parent_pid)
    if hasattr(os, "SCHED_OTHER"):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # not its parent's real time
    os.nice(NICE)  # a step of the engine goes first
    text, source = pickle.load(sys.stdin.buffer)
    from timely_llm.core.errors import SkillSetError
    from timely_llm.skills.skill_set import parse_skill_set

    _limit(resource.RLIMIT_AS, _memory() + MEMORY)
    _limit(resource.RLIMIT_CPU, CPU_S)
    try:
        answer: object = parse_skill_set(text, source)
    except SkillSetError as error:
        answer = str(error)
    except MemoryError:
        answer = f"{source} needs more than {MEMORY >> 20} MiB to be read: make it simpler"
    pickle.dump(answer, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)


def _limit(what: int, most: int) -> None:
    with contextlib.suppress(ValueError):  # a lower limit holds already
        resource.setrlimit(what, (most, most))


def _memory() -> int:
    """Return the address space that this process has now, bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


if __name__ == "__main__":
    main(int(sys.argv[1]))
