"""Where replicas run."""

from __future__ import annotations

from typing import Protocol


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
