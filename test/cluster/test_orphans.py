"""Replicas after the kill of their front."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pytest

from test.cluster.front import CLUSTERS
from test.cluster.test_replicas import alive

LEFT_S = 60.0
"""Longest life of a replica without a front, seconds; on a busy machine."""


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder with a short path: Ray has sockets in it, and leaves it when it is killed."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        yield made


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("frozen", [False, True])
def test_no_replica_outlives_its_front(cluster: str, frozen: bool, folder: str) -> None:
    front = subprocess.Popen(
        [sys.executable, "-m", "test.cluster.orphans", cluster],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"TMPDIR": folder},
    )  # fmt: skip
    assert front.stdout is not None
    try:
        pids = [int(word) for word in front.stdout.readline().split()]
        assert len(pids) == 2 and all(map(alive, pids))
        if frozen:
            os.kill(pids[0], signal.SIGSTOP)
    finally:
        front.kill()
        front.wait()
        front.stdout.close()
    end_s = time.monotonic() + LEFT_S
    while any(map(alive, pids)) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not any(map(alive, pids))
