"""From a matched boundary to the robot's callback, between two processes over Fast DDS."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from timely_llm.processes.children import Children, Interrupts, wait
from timely_llm.processes.log_reader import Event, LogReader
from timely_llm.processes.nodes import PROBE, SERVER, local_environment, random_domain, ros_command

START_LIMIT_S = 60.0
LIMIT_S = 600.0
Place = tuple[str, int]
"""Request id and index of a segment."""


def rows(
    requests: int = 300,
    executor: str = "single",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Return a row each for the topic and the action's feedback.

    A server with an engine of 1 ms a step publishes the segments of plans that another process
    asks for, one after another. Both clocks are the machine's monotonic clock.

    Args:
        requests: plans, five segments each.
        executor: the server's executor, single or events.
        progress: called with plans done and plans asked for.

    Returns:
        Rows of `path, executor, segments, lost, p50_ms, p99_ms, max_ms`.

    Raises:
        ProcessError: a process could not be started or died.
        Interrupted: the user asked to end.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        journal, log = folder / "server.jsonl", folder / "probe.jsonl"
        _run(folder, journal, log, requests, executor, progress)
        published = {_place(e): e["t"] for e in _events(journal, "segment") if _counted(e)}
        return [
            _row(path, executor, published, [e for e in _events(log, path) if _counted(e)])
            for path in ("topic", "feedback")
        ]


def _run(
    folder: Path,
    journal: Path,
    log: Path,
    requests: int,
    executor: str,
    progress: Callable[[int, int], None],
) -> None:
    environment = local_environment(random_domain())
    server_command = ros_command(
        SERVER,
        {"engine": "simulated", "pace": "millisecond", "policy": "stream",
         "executor": executor, "journal": str(journal), "name_check_s": 0.0},
    )  # fmt: skip
    probe_command = ros_command(PROBE, {"requests": requests, "log": str(log)})
    with Interrupts() as interrupts, Children(interrupts) as children:
        server = children.start("plan server", server_command, environment, folder / "server.log")
        ready = LogReader(journal)
        wait(
            server, lambda: any(e["event"] == "ready" for e in ready.read()), interrupts,
            START_LIMIT_S, "the plan server was not ready",
        )  # fmt: skip
        probe = children.start("probe", probe_command, environment, folder / "probe.log")
        seen: set[str] = set()
        reader = LogReader(log)

        def over() -> bool:
            seen.update(e["id"] for e in reader.read() if _counted(e))
            progress(len(seen), requests)
            return probe.status == 0

        wait(probe, over, interrupts, LIMIT_S, "the probe was not ready")


def _row(
    path: str, executor: str, published: dict[Place, float], received: list[Event]
) -> dict[str, Any]:
    # A last segment may come twice: what counts is the first time.
    first: dict[Place, float] = {}
    for event in received:
        first.setdefault(_place(event), event["t"])
    delays_ms = [1e3 * (at_s - published[p]) for p, at_s in first.items() if p in published]
    p50, p99 = np.percentile(delays_ms, [50, 99]) if delays_ms else (np.nan, np.nan)
    return {
        "path": path,
        "executor": executor,
        "segments": len(published),
        "lost": len(published) - len(delays_ms),
        "p50_ms": round(float(p50), 4),
        "p99_ms": round(float(p99), 4),
        "max_ms": round(max(delays_ms, default=float("nan")), 4),
    }


def _events(path: Path, kind: str) -> list[Event]:
    return [event for event in LogReader(path).read() if event["event"] == kind]


def _counted(event: Event) -> bool:
    return str(event.get("id", "")).startswith("probe-")


def _place(event: Event) -> Place:
    return event["id"], event["index"]
