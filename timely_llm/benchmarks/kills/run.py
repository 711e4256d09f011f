"""`timely-llm benchmark kills`: the run, from the first process to the last."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from timely_llm.benchmarks.kills.findings import faults, late_apart, table
from timely_llm.benchmarks.kills.lives import Fault, Logs
from timely_llm.benchmarks.kills.schedule import Kill, Kills, schedule
from timely_llm.benchmarks.kills.site import Site
from timely_llm.core.events.log import FileEventLog
from timely_llm.core.events.probe_events import OverEvent
from timely_llm.core.events.reader import LogReader
from timely_llm.core.events.schema import AskEvent
from timely_llm.processes.children import POLL_S, Child, Children, Interrupts, left_running, wait
from timely_llm.processes.nodes import (
    FLEET,
    KILLS_PROBE,
    TALKERS,
    local_environment,
    random_domain,
    ros_command,
)

ReportSeconds = Callable[[float, float], None]
"""Called with the seconds that have passed and all seconds of a run."""
FOLLOWERS = 4
"""One robot of this number follows its plan by topics, also after the dispatcher has died."""
WARM_S = 60.0
"""Seconds of a life after which its memory should not grow any more."""
SAMPLE_S = 1.0
CALM_S = 15.0
"""Seconds in which clients still ask after the last kill."""
END_LIMIT_S = 120.0
"""Longest wait for the end of all clients, seconds."""
MARK = "TIMELY_LLM_KILLS"
"""Environment variable by which processes of a run are known."""
BACK = {"killed": "started", "stopped": "continued", "deactivated": "activated"}

STARVED_S = 0.25
"""A process that waits this long for a processor between two looks is starved, seconds."""


@dataclass(frozen=True)
class KillsOutcome:
    """What a run has shown.

    Attributes:
        rows: the table.
        faults: what must not be.
        late: broken rules about time, while processes waited for a processor.
    """

    rows: Sequence[dict[str, Any]]
    faults: Sequence[Fault]
    late: Sequence[Fault]


def run(
    kills: Kills,
    folder: Path,
    progress: ReportSeconds = lambda done_s, all_s: None,
    domain: int | None = None,
) -> KillsOutcome:
    """Run servers, robots and people, and kill the former at random moments.

    Args:
        kills: what is run.
        folder: an empty folder for all logs.
        progress: called with the seconds that have passed and all of them.
        domain: a ROS domain that nothing else uses; None: a random one.

    Raises:
        ProcessError: a process could not be started, or a client died.
        Interrupted: the user asked to end.
    """
    mark = secrets.token_hex(8)
    environment = {**local_environment(domain or random_domain()), MARK: mark}
    event_log, machine = FileEventLog(folder / "kills.jsonl"), Machine()
    with Interrupts() as interrupts, Children(interrupts) as children:
        site = Site(children, environment, folder, event_log, kills.hedge, kills.journal)
        _work(kills, site, children, interrupts, environment, folder, event_log, machine, progress)
    event_log.close()
    logs = _logs(folder)
    left = [Fault("process left", f"process {one.pid}") for one in left_running(MARK, mark)]
    rows = [*table(logs), *_memory(site), *machine.rows()]
    return KillsOutcome(rows, *late_apart([*faults(logs), *left], machine.starved))


def _work(
    kills: Kills, site: Site, children: Children, interrupts: Interrupts,
    environment: dict[str, str], folder: Path, event_log: FileEventLog, machine: Machine,
    progress: ReportSeconds,
) -> None:  # fmt: skip
    """Start all, do what is scheduled, and wait for the end of the clients and the probe."""
    plan = schedule(kills, site.servers)
    duration_s = kills.duration_s(len(site.servers)) + CALM_S
    site.begin()
    following = max(kills.robots // FOLLOWERS, 1)
    if kills.journal:  # goals of actions end with a server; the others are the rule here
        following = max(kills.robots - following, 1)
    shared = {"duration_s": duration_s, "seed": kills.seed}
    bursts_per_s = kills.robots / 32
    probe = children.start(
        "probe",
        ros_command(KILLS_PROBE, shared | {
            "robots": following, "folder": str(folder), "face": site.face,
            "servers": [f"/{name}/plan_server" for name in site.servers] or [""],
        }),
        environment, folder / "probe.log",
    )  # fmt: skip
    reader = LogReader(folder / "fleet.jsonl")
    fleet = children.start(
        "robot fleet",
        ros_command(FLEET, shared | {
            "robots": kills.robots - following, "events_per_s": bursts_per_s,
            "failure_share": 0.02, "open_share": 0.5, "log": str(folder / "fleet.jsonl"),
        }),
        environment, folder / "fleet.log",
    )  # fmt: skip
    talkers = children.start(
        "people",
        ros_command(TALKERS, shared | {
            "people": kills.people, "log": str(folder / "talkers.jsonl"),
        }),
        environment, folder / "talkers.log",
    )  # fmt: skip
    _wait_for(fleet, lambda: any(_asks(reader)), interrupts)
    began_s, sampled_s = time.monotonic(), 0.0
    due = sorted([*_acts(plan)])
    clients = (fleet, talkers)
    end_s = began_s + duration_s + END_LIMIT_S
    while due or not all(one.status == 0 for one in clients):
        interrupts.check()
        now = time.monotonic()
        while due and began_s + due[0][0] <= now:
            _, name, kind = due.pop(0)
            site.act(name, kind)
        if now >= sampled_s + SAMPLE_S:
            sampled_s = now
            site.look()
            machine.look(one.pid for one in (*clients, probe))
            progress(min(now - began_s, duration_s), duration_s)
        for one in (*clients, probe):
            if one.status is not None and (one.status != 0 or now > end_s):
                wait(one, lambda: False, interrupts, 0.0, "")
        time.sleep(POLL_S)
    event_log.write(OverEvent(time.monotonic()))
    _wait_for(probe, lambda: probe.status == 0, interrupts)
    site.look()


def _asks(reader: LogReader) -> Iterator[bool]:
    """Yield true for each request that robots have sent since the last call."""
    return (isinstance(event, AskEvent) for event in reader.read())


def _wait_for(child: Child, ready: Callable[[], bool], interrupts: Interrupts) -> None:
    wait(child, ready, interrupts, END_LIMIT_S, f"the {child.name} was not ready")


def _acts(plan: Sequence[Kill]) -> list[tuple[float, str, str]]:
    """Return what is done, and when: each kill, and what brings its process back."""
    made = []
    for one in plan:
        made.append((one.at_s, one.process, one.kind))
        made.append((one.at_s + one.for_s, one.process, BACK[one.kind]))
    return made


def _logs(folder: Path) -> Logs:
    def read(name: str) -> list[Any]:
        return LogReader(folder / name).read()

    servers = {path.stem: read(path.name) for path in sorted(folder.glob("s*-*.jsonl"))}
    said = {
        path.stem: path.read_text(errors="replace").splitlines()
        for path in sorted(folder.glob("*.log"))
    }
    robots = sorted([*read("fleet.jsonl"), *read("followers.jsonl")], key=lambda one: one.t)
    return Logs(read("kills.jsonl"), read("listener.jsonl"), robots, read("talkers.jsonl"),
                servers, said)  # fmt: skip


def _memory(site: Site) -> list[dict[str, Any]]:
    """Return the memory of the longest life of what clients ask, when warm and at its end."""
    longest = max(site.memory, key=len)
    warm = [megabytes for age_s, megabytes in longest if age_s >= WARM_S] or [longest[-1][1]]
    lives = f"the {site.face}'s longest life of {len(site.memory)}, {longest[-1][0]:.0f} s"
    return [
        {"what": f"megabytes in {lives}: after {WARM_S:g} s", "number": round(warm[0], 1)},
        {"what": "megabytes at its end", "number": round(longest[-1][1], 1)},
    ]


class Machine:
    """Measures the load, and how long processes wait for a processor.

    Attributes:
        waited_s: longest wait of a process between two looks, seconds.
    """

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._loads: list[float] = []
        self._waited_s: dict[int, float] = {}

    @property
    def starved(self) -> bool:
        """Whether rules about time are broken without a fault of a process."""
        return self.waited_s >= STARVED_S

    def look(self, pids: Iterable[int]) -> None:
        """Sample the load of the last minute, and the waits of processes."""
        self._loads.append(os.getloadavg()[0])
        for pid in pids:
            now_s = waited_s(pid)
            self.waited_s = max(self.waited_s, now_s - self._waited_s.get(pid, now_s))
            self._waited_s[pid] = now_s

    def rows(self) -> list[dict[str, Any]]:
        """Return what was measured, as rows of a table."""
        numbers = [
            ("processors", os.cpu_count() or 1),
            ("load, mean", round(fmean(self._loads or [0.0]), 1)),
            ("load, most", round(max(self._loads, default=0.0), 1)),
            ("longest wait of a client for a processor, s in a second", round(self.waited_s, 2)),
        ]
        return [{"what": what, "number": number} for what, number in numbers]


def waited_s(pid: int) -> float:
    """Return the seconds in which the main thread of a process could run and had no processor.

    Linux counts them; elsewhere, and of a process that has ended, they are 0.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
