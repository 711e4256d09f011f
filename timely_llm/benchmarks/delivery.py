"""Delay from a matched boundary to the robot's callback, between two processes over Fast DDS."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from timely_llm.benchmarks.server import start_server
from timely_llm.core.events.probe_events import FeedbackEvent, TopicEvent
from timely_llm.core.events.reader import LogReader
from timely_llm.core.events.schema import SegmentEvent
from timely_llm.processes.children import Children, Interrupts, wait
from timely_llm.processes.nodes import PROBE, local_environment, random_domain, ros_command

LIMIT_S = 600.0
COUNTED = "probe-"
"""Beginning of the request ids that count. Others come before the topic is discovered."""
Delivered = SegmentEvent | TopicEvent | FeedbackEvent
"""A segment that was published, or received."""
Place = tuple[str, int]
"""Request id and index of a segment."""


def rows(
    requests: int = 300,
    executor: str = "single",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Return a row each for the topic and the action's feedback.

    A server with an engine of 1 ms a step publishes the segments of plans. Another process requests
    one plan after the other. Both clocks are the machine's monotonic clock.

    Args:
        requests: number of plans, of five segments each.
        executor: the server's executor, single or events.
        progress: called with the finished and the total number of plans.

    Returns:
        Rows of `path, executor, segments, lost, p50_ms, p99_ms, max_ms`.

    Raises:
        ProcessError: a process could not be started or died.
        Interrupted: the user interrupted the benchmark.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "probe.jsonl"
        _run(folder, log, requests, executor, progress)
        published = {_place(e): e.t for e in _delivered(folder / "server.jsonl", SegmentEvent)}
        return [
            _row(path, executor, published, _delivered(log, kind))
            for path, kind in (("topic", TopicEvent), ("feedback", FeedbackEvent))
        ]


def _run(
    folder: Path, log: Path, requests: int, executor: str, progress: Callable[[int, int], None]
) -> None:
    environment = local_environment(random_domain())
    probe_command = ros_command(PROBE, {"requests": requests, "log": str(log)})
    with Interrupts() as interrupts, Children(interrupts) as children:
        start_server(
            children, interrupts, environment, folder, engine="simulated", pace="millisecond",
            policy="stream", executor=executor, name_check_s=0.0,
        )  # fmt: skip
        probe = children.start("probe", probe_command, environment, folder / "probe.log")
        seen: set[str] = set()
        reader = LogReader(log)

        def over() -> bool:
            seen.update(e.id for e in reader.read() if isinstance(e, Delivered) and _counted(e))
            progress(len(seen), requests)
            return probe.status == 0

        wait(probe, over, interrupts, LIMIT_S, "the probe was not ready")


def _row(
    path: str, executor: str, published: dict[Place, float], received: Sequence[Delivered]
) -> dict[str, Any]:
    # A final segment may arrive twice; its first arrival counts.
    first: dict[Place, float] = {}
    for event in received:
        first.setdefault(_place(event), event.t)
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


def _delivered(path: Path, kind: type[Delivered]) -> list[Delivered]:
    """Return the events of a kind that count."""
    return [e for e in LogReader(path).read() if isinstance(e, kind) and _counted(e)]


def _counted(event: Delivered) -> bool:
    return event.id.startswith(COUNTED)


def _place(event: Delivered) -> Place:
    return event.id, event.index
