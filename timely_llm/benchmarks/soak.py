"""A long run: no request starves, no message is lost; memory, threads and handles are flat."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil

from timely_llm.benchmarks.server import start_server
from timely_llm.core.events.reader import LogReader
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import (
    AskEvent,
    DoneEvent,
    ReceiveEvent,
    ReplanEvent,
    ReturnedEvent,
    SegmentEvent,
)
from timely_llm.processes.children import Child, Children, Interrupts, wait
from timely_llm.processes.nodes import FLEET, local_environment, random_domain, ros_command

IDLE_S = 10.0
SAMPLE_S = 1.0
END_LIMIT_S = 90.0
WARM_SHARE = 0.25
"""Share of the run after which memory should not grow any more."""
MEGABYTE = 1e6
GROWTH_MB, GROWTH_SHARE = 8.0, 0.03
"""Memory is flat if it grows by less than this, or this share, over the warm part of the run."""
GROWTH_THREADS, GROWTH_HANDLES = 0.5, 4.0
"""Threads and handles are flat if they grow by less than this."""


@dataclass(frozen=True)
class Sample:
    """What a process uses.

    Attributes:
        at_s: seconds since the beginning of the run.
        megabytes: resident memory.
        threads, handles: their numbers; a handle is an open file or socket.
    """

    at_s: float
    megabytes: float
    threads: int
    handles: int


ReportSeconds = Callable[[float, float], None]
"""Called with the seconds that have passed and all seconds of a run."""
SegmentPlace = tuple[str, int, int]
"""Request id, epoch and index of a segment."""


@dataclass(frozen=True)
class Soak:
    """What is run.

    Attributes:
        minutes: how long robots ask for plans.
        failure_share: share of segments that the robots report as failed.
    """

    robots: int = 64
    minutes: float = 10.0
    policy: str = "timely"
    seed: int = 0
    failure_share: float = 0.02

    @property
    def duration_s(self) -> float:
        """The same in seconds."""
        return 60.0 * self.minutes

    @property
    def bursts_per_s(self) -> float:
        """Bursts of up to 8 tasks a second, with which most robots are mostly busy."""
        return max(self.robots / 64, 0.1)


def rows(
    soak: Soak, progress: ReportSeconds = lambda done_s, total_s: None
) -> list[dict[str, Any]]:
    """Run a server with the embedded model and a fleet, and return one row about them.

    Args:
        soak: what is run.
        progress: called with the seconds that have passed and all of them.

    Raises:
        ProcessError: a process could not be started or died.
        Interrupted: the user asked to end.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        usage = _run(soak, folder, progress)
        became = outcomes(folder)
    settings = {"robots": soak.robots, "minutes": soak.minutes, "policy": soak.policy}
    return [settings | became | usage]


def _run(soak: Soak, folder: Path, progress: ReportSeconds) -> dict[str, float]:
    """Run both processes to their end; return what the server used."""
    environment = local_environment(random_domain())
    log = folder / "fleet.jsonl"
    fleet_command = ros_command(
        FLEET,
        {"robots": soak.robots, "duration_s": soak.duration_s, "seed": soak.seed,
         "events_per_s": soak.bursts_per_s, "failure_share": soak.failure_share,
         "log": str(log)},
    )  # fmt: skip
    with Interrupts() as interrupts, Children(interrupts) as children:
        server = start_server(
            children, interrupts, environment, folder, policy=soak.policy, name_check_s=0.0
        )
        watched = psutil.Process(server.pid)
        idle_share = _cpu_share(watched, server, interrupts)
        fleet = children.start("robot fleet", fleet_command, environment, folder / "fleet.log")
        began_s, samples = time.monotonic(), list[Sample]()

        def over() -> bool:
            now_s = time.monotonic() - began_s
            if not samples or now_s - samples[-1].at_s >= SAMPLE_S:
                samples.append(sample(watched, now_s))
                progress(min(now_s, soak.duration_s), soak.duration_s)
            if server.status is not None:
                wait(server, lambda: False, interrupts, 0.0, "")
            return fleet.status == 0

        limit_s = soak.duration_s + END_LIMIT_S
        wait(fleet, over, interrupts, limit_s, "the robot fleet did not end")
        busy_s = sum(watched.cpu_times()[:2])
        rested_share = _cpu_share(watched, server, interrupts)
    warm = [one for one in samples if one.at_s >= WARM_SHARE * soak.duration_s]
    seconds, megabytes = np.array([(one.at_s, one.megabytes) for one in warm]).reshape(-1, 2).T
    slope = float(np.polyfit(seconds, megabytes, 1)[0]) if len(warm) > 1 else float("nan")
    return growth(warm) | {
        "server_mb_max": round(max(one.megabytes for one in samples), 1),
        "server_mb_growth_per_hour": round(3600 * slope, 1),
        "server_cpu_s": round(busy_s, 1),
        "idle_cpu_share": round(idle_share, 4),
        "idle_after_cpu_share": round(rested_share, 4),
    }


def sample(process: psutil.Process, at_s: float) -> Sample:
    """Return what a process uses now."""
    with process.oneshot():
        megabytes = process.memory_info().rss / MEGABYTE
        return Sample(at_s, megabytes, process.num_threads(), process.num_fds())


def growth(warm: Sequence[Sample]) -> dict[str, float]:
    """Return what a process uses at the end of its warm part, and by how much that has grown.

    The growth is the difference of the means of the last third and the first third.
    """
    part = max(len(warm) // 3, 1)
    made: dict[str, float] = {}
    for name, key in (("megabytes", "mb"), ("threads", "threads"), ("handles", "handles")):
        first = fmean(getattr(one, name) for one in warm[:part])
        last = fmean(getattr(one, name) for one in warm[-part:])
        made[f"server_{key}"] = round(last, 1)
        made[f"server_{key}_growth"] = round(last - first, 1)
    return made


def faults(row: Mapping[str, Any]) -> list[str]:
    """Return what must not be in the row of a soak, a sentence each; empty: it passed.

    Only a soak in virtual time has the last two counts.
    """
    memory = max(GROWTH_MB, GROWTH_SHARE * row["server_mb"])
    limits = (
        ("megabytes", "mb", memory), ("threads", "threads", GROWTH_THREADS),
        ("handles", "handles", GROWTH_HANDLES),
    )  # fmt: skip
    found = [
        f"the server's {words} grew by {grown:g}, allowed is {allowed:.3g}"
        for words, key, allowed in limits
        if (grown := row[f"server_{key}_growth"]) > allowed
    ]
    counts = (
        ("without_end", "requests without an end"),
        ("robots_never_served", "robots that were never served"),
        ("segments_lost", "segments that robots needed and did not receive"),
        ("ends_twice", "requests with two ends"),
        ("kv_not_free", "tokens of KV that were not free when all requests had ended"),
    )
    found += [f"{words}: {row[key]}" for key, words in counts if row.get(key)]
    return found


def _cpu_share(process: psutil.Process, child: Child, interrupts: Interrupts) -> float:
    """Return the share of a core that an idle process uses."""
    began_s, used_s = time.monotonic(), sum(process.cpu_times()[:2])
    end_s = began_s + IDLE_S
    wait(child, lambda: time.monotonic() > end_s, interrupts, 2 * IDLE_S, "it was not idle")
    spent: float = sum(process.cpu_times()[:2]) - used_s
    return spent / (time.monotonic() - began_s)


def outcomes(folder: Path) -> dict[str, float]:
    """Return what became of the requests and of the messages about them."""
    served = LogReader(folder / "server.jsonl").read()
    fleet = LogReader(folder / "fleet.jsonl").read()
    asked = {e.id: e for e in fleet if isinstance(e, AskEvent)}
    done = {e.id: e for e in fleet if isinstance(e, DoneEvent)}
    finished = {name: e for name, e in done.items() if e.outcome == "finished"}
    published, received = _places(served, SegmentEvent), _places(fleet, ReceiveEvent)
    newest = _newest_epochs(published)
    returned = {(e.id, e.epoch) for e in fleet if isinstance(e, ReturnedEvent)}
    # Robots pass over segments of older epochs: those are not lost.
    missing = [
        place[:2]
        for place in published - received
        if place[0] in finished and newest[place[0]] == place[1]
    ]
    responses = [e.response_s for e in done.values() if e.response_s >= 0]
    asking = {e.agent for e in asked.values()}
    return {
        "requests": len(asked),
        "finished": len(finished),
        "canceled": sum(e.outcome == "canceled" for e in done.values()),
        "errors": sum(e.outcome in ("error", "failed") for e in done.values()),
        "without_end": len(asked.keys() - done.keys()),
        "replans": sum(isinstance(e, ReplanEvent) for e in served),
        "robots_never_served": len(asking - {asked[name].agent for name in finished}),
        "response_p50_s": round(float(np.percentile(responses, 50)), 3) if responses else -1.0,
        "response_max_s": round(max(responses, default=-1.0), 3),
        "segments_published": len(published),
        # On their way when the plan returned: rclpy drops feedback that a result overtakes.
        "segments_not_needed": sum(place in returned for place in missing),
        "segments_lost": sum(place not in returned for place in missing),
    }


def _newest_epochs(places: set[SegmentPlace]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for name, epoch, _ in places:
        newest[name] = max(epoch, newest.get(name, 0))
    return newest


def _places(events: list[RunEvent], kind: type[SegmentEvent | ReceiveEvent]) -> set[SegmentPlace]:
    """Return request, epoch and index of each segment that events of a kind are about."""
    return {(e.id, e.epoch, e.index) for e in events if isinstance(e, kind)}
