"""Delay from a matched boundary to the robot's callback, between two processes over Fast DDS."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from timely_llm.benchmarks.server import start_server
from timely_llm.core.events.probe_events import DirectEvent, FeedbackEvent, TopicEvent
from timely_llm.core.events.reader import LogReader
from timely_llm.core.events.schema import SegmentEvent
from timely_llm.processes.children import Child, Children, Interrupts, ProcessError, wait
from timely_llm.processes.nodes import (
    DISPATCHER,
    FLEET,
    PROBE,
    local_environment,
    random_domain,
    ros_command,
)
from timely_llm.processes.real_time import give_real_time

LIMIT_S = 600.0
COUNTED = "probe-"
"""Beginning of the request ids that count. Others come before the topic is discovered."""
PACE = "rtx4090-llama3-8b"
"""Profile of servers behind a dispatcher."""
PATHS: dict[type[TopicEvent | FeedbackEvent | DirectEvent], str] = {
    TopicEvent: "topic", FeedbackEvent: "feedback",
}  # fmt: skip
Delivered = SegmentEvent | TopicEvent | DirectEvent | FeedbackEvent
"""A segment that was published, or received."""
SegmentOfRequest = tuple[str, int]
"""Request id and index of a segment."""


def rows(
    requests: int = 300,
    executor: str = "single",
    progress: Callable[[int, int], None] = lambda done, total: None,
    servers: int = 0,
    robots: int = 0,
    realtime_priority: int = 0,
) -> list[dict[str, Any]]:
    """Return a row each for the topic and the action's feedback.

    A server with an engine of 1 ms a step publishes the segments of plans. Another process requests
    one plan after the other. Both clocks are the machine's monotonic clock.

    Behind a dispatcher, servers keep the pace of `PACE`, and there are three more rows. `direct` is
    the delay to the callback of a robot that listens to the servers themselves, in a process of its
    own. `added` is the time from a segment's callback there to that of the relayed segment.
    `relayed` is the time from the server's publication to the dispatcher's: the robots' processes
    have no part in it.

    Servers, both robots and simulated robots stand for computers of their own. Where the system
    can, simulated robots get only time of the processors that no other process wants.

    Args:
        requests: number of plans, of five segments each.
        executor: of the server, or of the dispatcher: single or events.
        progress: called with the finished and the total number of plans.
        servers: number of servers behind a dispatcher; 0: one server without a dispatcher.
        robots: number of simulated robots that ask meanwhile.
        realtime_priority: of the dispatcher and, one lower, of the servers and of both robots; 0:
            none.

    Returns:
        Rows of `path, executor, servers, robots, realtime_priority, load, segments, lost, p50_ms,
        p99_ms, max_ms`; `load` is that of the machine's cores, in the mean of a minute.

    Raises:
        ProcessError: a process could not be started or died, or real time is not permitted.
        Interrupted: the user interrupted the benchmark.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = [f"s{number + 1}" for number in range(servers)]
        _run(folder, requests, executor, progress, names, robots, realtime_priority)
        published = {
            _place(e): e.t
            for one in names or ["server"]
            for e in _delivered(folder / f"{one}.jsonl", SegmentEvent)
        }
        about = {
            "executor": executor, "servers": servers, "robots": robots,
            "realtime_priority": realtime_priority,
            "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip
        log = folder / "probe.jsonl"
        came = {kind: _first(_delivered(log, kind)) for kind in PATHS}
        made = [_row(path, about, published, came[kind]) for kind, path in PATHS.items()]
        if servers:
            heard = _delivered(folder / "listener.jsonl", DirectEvent)
            direct, sent = _first(heard), _first(heard, "sent_s")
            made.append(_row("direct", about, published, direct))
            made.append(_row("added", about, direct, came[TopicEvent]))
            relayed = _first(_delivered(log, TopicEvent), "sent_s")
            made.append(_row("relayed", about, sent, relayed))
        return made


def _run(
    folder: Path, requests: int, executor: str, progress: Callable[[int, int], None],
    names: Sequence[str], robots: int, realtime_priority: int,
) -> None:  # fmt: skip
    environment = local_environment(random_domain())
    lower = max(realtime_priority - 1, 1) if realtime_priority else 0
    with Interrupts() as interrupts, Children(interrupts) as children:

        def start(namespace: str, pace: str, executor: str) -> None:
            server = start_server(
                children, interrupts, environment, folder, namespace, engine="simulated",
                pace=pace, policy="stream", executor=executor, name_check_s=0.0,
            )  # fmt: skip
            _in_real_time(server, lower)

        def start_robot(name: str, **parameters: Any) -> Child:
            command = ros_command(PROBE, {**parameters, "log": str(folder / f"{name}.jsonl")})
            robot = children.start(name, command, environment, folder / f"{name}.log")
            _in_real_time(robot, lower)
            return robot

        for name in names:
            start(name, PACE, "single")
        if names:
            start_robot("listener", direct=[f"/{name}/plan_server" for name in names])
            dispatcher = ros_command(
                DISPATCHER, {"executor": executor, "realtime_priority": realtime_priority}
            )
            children.start("dispatcher", dispatcher, environment, folder / "dispatcher.log")
        else:
            start("", "millisecond", executor)
        if robots:
            fleet_command = ros_command(FLEET, {"robots": robots, "duration_s": LIMIT_S})
            fleet = children.start("fleet", fleet_command, environment, folder / "fleet.log")
            if hasattr(os, "SCHED_IDLE"):
                os.sched_setscheduler(fleet.pid, os.SCHED_IDLE, os.sched_param(0))
        probe = start_robot("probe", requests=requests)
        seen: set[str] = set()
        reader = LogReader(folder / "probe.jsonl")

        def over() -> bool:
            seen.update(e.id for e in reader.read() if isinstance(e, Delivered) and _counted(e))
            progress(len(seen), requests)
            return probe.status == 0

        wait(probe, over, interrupts, LIMIT_S, "the probe was not ready")


def _in_real_time(child: Child, priority: int) -> None:
    """Give a process, and the threads that it begins later, a real-time priority; 0: none."""
    if not priority:
        return
    try:
        give_real_time(child.pid, priority)
    except (AttributeError, OSError) as error:
        raise ProcessError(
            "--realtime-priority needs a system that permits it: set the limit rtprio of the user,"
            " or grant CAP_SYS_NICE"
        ) from error


def _first(received: Sequence[Delivered], time: str = "t") -> dict[SegmentOfRequest, float]:
    """Return the times of segments; a final one may arrive twice, and its first arrival counts."""
    first: dict[SegmentOfRequest, float] = {}
    for event in received:
        first.setdefault(_place(event), getattr(event, time))
    return first


def _row(
    path: str,
    about: dict[str, Any],
    published: dict[SegmentOfRequest, float],
    first: dict[SegmentOfRequest, float],
) -> dict[str, Any]:
    delays_ms = [1e3 * (at_s - published[p]) for p, at_s in first.items() if p in published]
    p50, p99 = np.percentile(delays_ms, [50, 99]) if delays_ms else (np.nan, np.nan)
    return {
        "path": path,
        **about,
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


def _place(event: Delivered) -> SegmentOfRequest:
    return event.id, event.index
