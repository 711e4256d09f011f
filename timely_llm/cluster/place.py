"""Where replicas run; processes of this machine, which end when their front's process ends."""

from __future__ import annotations

import os
import sys
from typing import Protocol

from timely_llm.cluster.connection import NONCE_BYTES, ConnectionRefused
from timely_llm.core.errors import EngineError
from timely_llm.processes.module_process import ModuleProcess
from timely_llm.processes.signals import manner
from timely_llm.processes.tied import tie_to_parent

KILLED_S = 2.0
"""Longest wait for the end of a process that was killed, seconds."""


class Started(Protocol):
    """A replica that was started."""

    def ended(self) -> str:
        """Return how it ended; empty: it has not."""
        ...

    def kill(self) -> None:
        """End it, and what it has started, in whatever state it is; does not block for long."""
        ...


class Place(Protocol):
    """Starts replicas: processes of this machine, or actors of a cluster.

    Attributes:
        host: address at which the front listens for their connections.
    """

    host: str

    def start(self, name: str, address: tuple[str, int], nonce: bytes) -> Started:
        """Start a replica; see `replica.serve`.

        Args:
            name: for the log.
            address: host and port of its front.
            nonce: the secret of its connection.

        Raises:
            TimelyError: it cannot be started.
        """
        ...

    def close(self) -> None:
        """Free what belongs to the place; all replicas have ended."""
        ...


class ReplicaProcess:
    """A replica in a process and a session of its own.

    Args:
        name: for errors.
        address: host and port of its front.
        nonce: the secret of its connection.

    Raises:
        EngineError: it cannot be started.
    """

    def __init__(self, name: str, address: tuple[str, int], nonce: bytes) -> None:
        try:
            self._process = ModuleProcess(__name__, *address, secret=nonce)
        except OSError as error:
            raise EngineError(f"{name} cannot be started: {error.strerror}") from error

    def ended(self) -> str:
        """Return how it ended; empty: it has not."""
        status = self._process.status
        if status is None:
            return ""
        return f"its process {'was ended' if status < 0 else 'ended'} {manner(status)}"

    def kill(self) -> None:
        """End it, and all that it has started."""
        self._process.kill()
        self._process.wait(KILLED_S)


class Processes:
    """Starts replicas on this machine. They end with the thread that starts them."""

    host = "127.0.0.1"

    def start(self, name: str, address: tuple[str, int], nonce: bytes) -> ReplicaProcess:
        """Start a replica; see `Place`."""
        return ReplicaProcess(name, address, nonce)

    def close(self) -> None:
        """Do nothing: each process was ended by itself."""


def main(parent_pid: int, host: str, port: int) -> int:
    """Serve a front as its child process; return the exit status.

    Args:
        parent_pid: the process that started this one.
        host: address of the front.
        port: of the front.
    """
    tie_to_parent(parent_pid, group=True)
    nonce = sys.stdin.buffer.read(NONCE_BYTES)
    from timely_llm.cluster.replica import serve  # the process is tied first

    try:
        return serve((host, port), nonce)
    except ConnectionRefused as error:
        print(f"replica: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    status = main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # no exit function of a library waits for an engine's thread
