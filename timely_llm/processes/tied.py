"""Child processes that end with their parent, even if they hang or are stopped.

A parent starts `module_command`, and the module calls `tie_to_parent`. A program that is no module
of the package is started as `tied_command`, which ties itself and then becomes the program:
`python -m timely_llm.processes.tied PARENT_PID COMMAND...`. That happens after the fork and in a
program of its own, because code between fork and exec is not safe in a parent that has threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def module_command(module: str, *arguments: object) -> list[str]:
    """Return the command line of a module that gets this process's id, then its arguments."""
    return [sys.executable, "-m", module, str(os.getpid()), *map(str, arguments)]


def module_environment() -> dict[str, str]:
    """Return the environment in which a module imports what this process can import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def tied_command(command: Sequence[str]) -> list[str]:
    """Return the command line of a program that ends, with its group, when this process does.

    It must be started as the leader of a group, as by `start_new_session`.
    """
    return module_command("timely_llm.processes.tied", *command)


def tie_to_parent(parent_pid: int, group: bool = False, link: int | None = None) -> None:
    """End this process when its parent ends, however that happens.

    On Linux the kernel kills it. Nothing has to run in this process for that: it may hang in C code
    or be stopped. The kernel watches the thread that started this process, not the parent as a
    whole: a thread that starts a process has to outlive it.

    Args:
        parent_pid: the process that started this one.
        group: also end the other processes of this process's group. For the leader of a group,
            before it has threads; on Linux alone.
        link: a socket or a pipe to the parent, as a file descriptor: this process also ends when
            the parent closes its end, and that works on any system.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            sys.exit(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before the kernel knew.
    if os.getppid() != parent_pid:
        sys.exit("the process that started this one is gone")
    if group:
        _tie_group(parent_pid)
    if link is not None:
        threading.Thread(target=_end_at_hangup, args=(link,), daemon=True).start()


def _tie_group(parent_pid: int) -> None:
    """Let a small process kill this one's group when the parent or this process has ended."""
    leader = os.getpid()
    if sys.platform != "linux" or os.getpgrp() != leader:
        return
    try:
        watched = [os.pidfd_open(parent_pid), os.pidfd_open(leader)]
    except OSError:  # a kernel before 5.3, or the parent has just ended
        return
    # Forked twice: the program that this process becomes has no child that it does not know.
    between = os.fork()
    if between:
        for descriptor in watched:
            os.close(descriptor)
        os.waitpid(between, 0)
        return
    try:
        if os.fork() == 0:
            _kill_group_after(leader, watched)
    finally:
        os._exit(0)


def _kill_group_after(leader: int, watched: list[int]) -> None:
    """Wait until one of some processes has ended, then kill a group; holds nothing open."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    first = 3
    for descriptor in sorted(watched):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    ended = select.poll()
    for descriptor in watched:
        ended.register(descriptor, select.POLLIN)
    ended.poll()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _end_at_hangup(link: int) -> None:
    """Wait until the other end of a socket or a pipe is closed, then end; a leader ends all."""
    hangup = select.poll()
    hangup.register(link, getattr(select, "POLLRDHUP", 0))  # of a pipe, POLLHUP always comes
    hangup.poll()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main(parent_pid: int, command: list[str]) -> None:
    """Tie this process and its group to its parent, then become the command."""
    tie_to_parent(parent_pid, group=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
