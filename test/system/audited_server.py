"""A plan server that prints what Python does with sockets, and what of a cloud it imports.

It is run by its file name: `audited_server.py --ros-args -p engine:=simulated`.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

CLOUD = ("timely_llm.cloud", "timely_llm.progressive", "httpx2")


def of_network(event: str, arguments: tuple[Any, ...]) -> bool:
    """Return whether an event is about a socket, and not about one of this machine's files."""
    if event == "socket.__new__":
        return bool(arguments[1] != socket.AF_UNIX)
    if event in ("socket.bind", "socket.connect"):
        return not isinstance(arguments[1], str | bytes)
    return event.startswith("socket.")


def hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Print an event of the interpreter, of any of its threads, that a cloud would cause."""
    imported = event == "import" and str(arguments[0]).startswith(CLOUD)
    if imported or of_network(event, arguments):
        os.write(1, f"audit: {event} {arguments!r}\n".encode())


if __name__ == "__main__":
    sys.addaudithook(hear)
    from timely_llm import entry

    sys.exit(entry.node("plan_server"))
