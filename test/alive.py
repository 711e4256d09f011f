"""Whether processes run."""

import psutil


def runs(pid: int) -> bool:
    """Return whether a process runs; a zombie has ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
