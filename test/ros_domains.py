"""ROS domains of tests: none is used by two at a time, whichever runs of pytest there are."""

from __future__ import annotations

import fcntl
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from timely_llm.processes.nodes import DOMAINS, occupied_domains

_turns = itertools.count(7 * os.getpid())


@contextmanager
def reserved_domain() -> Iterator[int]:
    """Hold a domain, by a lock on a file; the next one in turn, as endpoints stay for a while.

    None in which a participant listens: a process that another test left, or a user's own.
    """
    occupied = occupied_domains()
    for _ in DOMAINS:
        domain = DOMAINS[next(_turns) % len(DOMAINS)]
        if domain in occupied:
            continue
        path = Path(tempfile.gettempdir()) / f"timely_llm_test_{os.getuid()}_{domain}"
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            yield domain
            return
    raise RuntimeError("all ROS domains are in use by other tests")
