"""Processes that end with the one that started them, even if they hang or are stopped."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
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


def end_group_with_parent(parent_pid: int) -> None:
    """Let a small process kill this one's group when the parent or this process has ended.

    What this process starts is in its group, and may know nothing of its parents. To be called
    before there are threads, by the leader of a group; elsewhere than on Linux it does nothing.

    Args:
        parent_pid: the process that started this one.
    """
    leader = os.getpid()
    if sys.platform != "linux" or os.getpgrp() != leader:
        return
    try:
        watched = [os.pidfd_open(parent_pid), os.pidfd_open(leader)]
    except OSError:  # a kernel before 5.3, or the parent has just ended
        return
    if os.fork():
        for descriptor in watched:
            os.close(descriptor)
        return
    try:
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
