"""One run of the demo: its settings, its files, and the processes that it starts and watches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from timely_llm.core.errors import TimelyError
from timely_llm.core.events.history import History
from timely_llm.core.events.reader import LogReader
from timely_llm.processes.children import Child, Children, Interrupts, ProcessError
from timely_llm.processes.nodes import (
    FLEET,
    SERVER,
    TALKERS,
    in_namespace,
    local_environment,
    random_domain,
    ros_command,
)
from timely_llm.resources import resource

ROBOTS = ("drone", "arm")
"""The robots that have a skill set and tasks in `config/`."""


SERVER_LOG = "server-{}.jsonl"
"""The event log of the server in a demo's folder, by policy."""


class OutputError(TimelyError):
    """The output folder cannot be used."""


@dataclass(frozen=True)
class Files:
    """The files of one policy's run."""

    event_log: Path
    fleet_log: Path
    talkers_log: Path
    server_output: Path
    fleet_output: Path
    talkers_output: Path

    @classmethod
    def of(cls, folder: Path, policy: str) -> Files:
        """Return where the files of a run are."""
        return cls(
            event_log=folder / SERVER_LOG.format(policy),
            fleet_log=folder / f"fleet-{policy}.jsonl",
            talkers_log=folder / f"talkers-{policy}.jsonl",
            server_output=folder / f"server-{policy}.log",
            fleet_output=folder / f"fleet-{policy}.log",
            talkers_output=folder / f"talkers-{policy}.log",
        )

    @classmethod
    def fresh(cls, folder: Path, policy: str) -> Files:
        """Return the files of a run, none of which exists.

        Raises:
            OutputError: the folder cannot be written.
        """
        files = cls.of(folder, policy)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in vars(files).values():
                path.unlink(missing_ok=True)
            files.event_log.touch()
        except OSError as error:
            raise OutputError(f"cannot write to the folder {folder}: {error.strerror}") from error
        return files


@dataclass(frozen=True)
class DemoSettings:
    """One demo.

    Attributes:
        duration_s: seconds in which robots ask.
        bursts_per_s: mean bursts of tasks a second.
        conversations: people who talk with the server beside the robots.
        seed: of everything random in the fleet, and of everything random in the people.
        robot: which of the shipped robots, drone or arm.
        failure_share: share of segments that robots report as failed.
        model: folder or hub id; empty for the embedded one.
        pace: step-time profile to which each step is stretched; empty for none.
        constrained: let the model generate only tokens that the robot's grammar allows.
        lead_s: seconds by which a suspended plan is resumed before its robot is idle; negative: as
            soon as the engine has room.
        explain: whether the server's event log has the reasons of each step plan.
        output: folder for logs and pictures.
        namespace: ROS namespace of all nodes; empty: none.
        domain: ROS_DOMAIN_ID of all processes.
    """

    robots: int = 8
    conversations: int = 0
    duration_s: float = 60.0
    bursts_per_s: float = 0.5
    seed: int = 0
    robot: str = ROBOTS[0]
    failure_share: float = 0.0
    constrained: bool = False
    engine: str = "transformers"
    model: str = ""
    pace: str = ""
    lead_s: float = 0.5
    explain: bool = False
    output: Path = Path("demo")
    namespace: str = ""
    domain: int = field(default_factory=random_domain)
    server: tuple[str, ...] = SERVER
    fleet: tuple[str, ...] = FLEET
    talkers: tuple[str, ...] = TALKERS

    @property
    def model_name(self) -> str:
        """The model's name in tables and pictures."""
        if self.engine == "simulated":
            return "simulated"
        return Path(self.model).name if self.model else "tiny_planner"

    @property
    def pace_name(self) -> str:
        """The pace's name in tables and pictures."""
        return self.pace or "none"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of all processes: a ROS domain of their own, on this machine only."""
        return local_environment(self.domain)

    def _command(self, command: Sequence[str], parameters: dict[str, Any]) -> list[str]:
        return [*ros_command(command, parameters), *in_namespace(self.namespace)]

    def server_command(self, policy: str, files: Files) -> list[str]:
        """Return the command line of the plan server."""
        return self._command(
            self.server,
            {
                "policy": policy,
                "engine": self.engine,
                "model": self.model or None,
                "pace": self.pace or None,
                "lead_s": float(self.lead_s),
                "constrained": self.constrained or None,
                "event_log": str(files.event_log.resolve()),
                "explain": self.explain or None,
                "name_check_s": 0.0,
            },
        )

    def fleet_command(self, files: Files) -> list[str]:
        """Return the command line of the robots."""
        return self._command(
            self.fleet,
            {
                "robots": self.robots,
                "duration_s": float(self.duration_s),
                "events_per_s": float(self.bursts_per_s),
                "seed": self.seed,
                "failure_share": float(self.failure_share),
                "skill_set": str(resource(f"config/skill_sets/{self.robot}.yaml")),
                "tasks": str(resource(f"config/tasks/{self.robot}.yaml")),
                "server": "plan_server",
                "log": str(files.fleet_log.resolve()),
            },
        )

    def talkers_command(self, files: Files) -> list[str]:
        """Return the command line of the people."""
        return self._command(
            self.talkers,
            {
                "people": self.conversations,
                "duration_s": float(self.duration_s),
                "seed": self.seed,
                "server": "plan_server",
                "log": str(files.talkers_log.resolve()),
            },
        )

    def as_json(self) -> dict[str, Any]:
        """Return the facts of a run that `--json` writes beside the numbers."""
        return {
            "robots": self.robots,
            "people": self.conversations,
            "duration_s": self.duration_s,
            "bursts_per_s": self.bursts_per_s,
            "seed": self.seed,
            "robot": self.robot,
            "failure_share": self.failure_share,
            "engine": self.engine,
            "model": self.model_name,
            "pace": self.pace_name,
            "lead_s": self.lead_s,
        }


START_LIMIT_S = 900.0
"""A model from the hub may have to be downloaded first."""
END_LIMIT_S = 90.0
"""Finding the server and finishing: what robots and people may take beyond their duration."""
REFRESH_S = 0.125


class Display(Protocol):
    """Shows a run while it happens; called about eight times a second."""

    def __enter__(self) -> Display: ...
    def __exit__(self, *_: object) -> None: ...

    def starting(self, elapsed_s: float) -> None:
        """Show that the server is not ready yet."""
        ...

    def update(self, history: History, now_s: float) -> None:
        """Show what is known at `now_s`, seconds of the monotonic clock."""
        ...


@dataclass
class _RunMonitor:
    """Reads the logs of a run into a history, while the server lives."""

    files: Files
    interrupts: Interrupts

    def __post_init__(self) -> None:
        self.history = History()
        logs = (self.files.fleet_log, self.files.talkers_log, self.files.event_log)
        self._readers = [LogReader(log) for log in logs]

    def read(self) -> None:
        for reader in self._readers:
            for event in reader.read():
                self.history.add(event)

    def pause(self, server: Child) -> None:
        """Wait `REFRESH_S`, then read; raise if the user asked to end, or the server has ended."""
        end_s = time.monotonic() + REFRESH_S
        while time.monotonic() < end_s:
            self.interrupts.check()
            if server.status is not None:
                raise ProcessError(server.obituary())
            time.sleep(REFRESH_S / 5)
        self.read()


def _start_clients(settings: DemoSettings, files: Files, children: Children) -> list[Child]:
    """Start the robots, and the people if there are any."""
    start = partial(children.start, environment=settings.environment)
    clients = [start("robot fleet", settings.fleet_command(files), log=files.fleet_output)]
    if settings.conversations:
        command = settings.talkers_command(files)
        clients.append(start("talkers", command, log=files.talkers_output))
    return clients


def _check(clients: list[Child]) -> None:
    """Raise if a client ended with an error."""
    for client in clients:
        if client.status:
            raise ProcessError(client.obituary())


def run(settings: DemoSettings, policy: str, display: Display) -> History:
    """Run the demo with one policy and return what happened; no process is left behind.

    Raises:
        ProcessError: a process could not be started, died, or did not come to an end.
        OutputError: the output folder cannot be written.
        Interrupted: the user asked to end.
    """
    files = Files.fresh(settings.output, policy)
    with Interrupts() as interrupts, display, Children(interrupts) as children:
        watch = _RunMonitor(files, interrupts)
        history = watch.history
        server = children.start(
            "plan server",
            settings.server_command(policy, files),
            settings.environment,
            files.server_output,
        )
        began_s = time.monotonic()
        while history.ready_s is None:
            display.starting(elapsed_s := time.monotonic() - began_s)
            if elapsed_s > START_LIMIT_S:
                raise ProcessError(
                    f"the plan server was not ready after {START_LIMIT_S:g} s; "
                    f"see {files.server_output}"
                )
            watch.pause(server)
        clients = _start_clients(settings, files, children)
        limit_s = time.monotonic() + settings.duration_s + END_LIMIT_S
        while working := [client for client in clients if client.status is None]:
            if time.monotonic() > limit_s:
                raise ProcessError(
                    f"the {working[0].name} did not end {END_LIMIT_S:g} s after the last request "
                    f"was due; see {working[0].log}"
                )
            watch.pause(server)
            _check(clients)
            display.update(history, time.monotonic())
        _check(clients)
        watch.read()
        display.update(history, time.monotonic())
    watch.read()
    return history
