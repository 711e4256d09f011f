"""The plan server of a benchmark: a process of its own that writes an event log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timely_llm.core.events.reader import LogReader
from timely_llm.core.events.schema import ReadyEvent
from timely_llm.processes.children import Child, Children, Interrupts, wait
from timely_llm.processes.nodes import SERVER, in_namespace, ros_command

START_LIMIT_S = 120.0


def start_server(
    children: Children, interrupts: Interrupts, environment: Mapping[str, str], folder: Path,
    namespace: str = "", **parameters: Any,
) -> Child:  # fmt: skip
    """Start a plan server and wait until it is ready.

    Args:
        children: the processes that end with the benchmark.
        interrupts: ends the wait.
        environment: environment variables of the process.
        folder: gets `server.log` and the event log `server.jsonl`; in a namespace, both are named
            after it.
        namespace: of the server.
        parameters: ROS parameters of the server.

    Raises:
        ProcessError: the server did not start in time, or died.
    """
    name = namespace or "server"
    event_log = folder / f"{name}.jsonl"
    command = ros_command(SERVER, {**parameters, "event_log": str(event_log)})
    command += in_namespace(namespace)
    server = children.start("plan server", command, environment, folder / f"{name}.log")
    reader = LogReader(event_log)
    wait(
        server, lambda: any(isinstance(event, ReadyEvent) for event in reader.read()), interrupts,
        START_LIMIT_S, "the plan server was not ready",
    )  # fmt: skip
    return server
