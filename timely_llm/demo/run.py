"""One run of the demo: the processes that it starts and watches, and the events that it reads."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from timely_llm.core.events.history import History
from timely_llm.core.events.reader import LogReader
from timely_llm.demo.cloud import DemoCloud, DemoHistory
from timely_llm.demo.files import ONE, Files
from timely_llm.demo.settings import DemoSettings
from timely_llm.processes.children import Child, Children, Interrupts, ProcessError

START_LIMIT_S = 900.0
"""A model from the hub may have to be downloaded first."""
END_LIMIT_S = 90.0
"""Finding the server and finishing: what robots and people may take beyond their duration."""
REFRESH_S = 0.125
KILLED_AT, KILLED_BEFORE, STARTED_AGAIN_AT = 0.4, 0.5, 0.6
"""Shares of the run's duration: from the first on, a server that works is killed, at the second any
one; it is started again at the third."""


class Display(Protocol):
    """Shows a run while it happens; called about eight times a second."""

    def __enter__(self) -> Display: ...
    def __exit__(self, *_: object) -> None: ...

    def starting(self, elapsed_s: float) -> None:
        """Show that the server is not ready yet."""
        ...

    def update(self, history: DemoHistory, now_s: float) -> None:
        """Show what is known at `now_s`, seconds of the monotonic clock."""
        ...


class LogsReader:
    """Reads the logs of a run into a history.

    Attributes:
        history: what was read so far.
    """

    def __init__(self, files: Files) -> None:
        self.history = DemoHistory()
        self._readers = [(LogReader(log), server) for log, server in files.all_logs.items()]

    def read(self) -> None:
        """Read what was written since the last call.

        Raises:
            LogError: a line is not an event.
            OSError: a log cannot be read.
        """
        new = [(event, server) for log, server in self._readers for event in log.read()]
        new.sort(key=lambda one: one[0].t)  # a listener's speed is known before its words come
        for event, server in new:
            self.history.add(event, server)


def _pause(check: Callable[[], None], interrupts: Interrupts) -> None:
    """Wait `REFRESH_S`; raise if the user asked to end, or `check` raises."""
    end_s = time.monotonic() + REFRESH_S
    while time.monotonic() < end_s:
        interrupts.check()
        check()
        time.sleep(REFRESH_S / 5)


def _start_clients(settings: DemoSettings, files: Files, children: Children) -> list[Child]:
    """Start the robots, and the people if there are any."""
    start = partial(children.start, environment=settings.environment)
    clients = [start("robot fleet", settings.fleet_command(files), log=files.output("fleet"))]
    if settings.conversations:
        command = settings.talkers_command(files)
        clients.append(start("talkers", command, log=files.output("talkers")))
    return clients


def _check(clients: list[Child]) -> None:
    """Raise if a client ended with an error."""
    for client in clients:
        if client.status:
            raise ProcessError(client.obituary())


def run(settings: DemoSettings, policy: str, display: Display) -> DemoHistory:
    """Run the demo with one policy and return what happened; no process is left behind.

    Raises:
        ProcessError: a process could not be started, died, or did not come to an end.
        OutputError: the output folder cannot be written.
        Interrupted: the user asked to end.
    """
    files = Files.fresh(settings.output, policy, settings.server_names)
    logs = LogsReader(files)
    history = logs.history
    with Interrupts() as interrupts, display, Children(interrupts) as children:
        began_s = time.monotonic()
        display.starting(0.0)
        cloud = None
        if settings.has_own_cloud:
            cloud = DemoCloud(settings, files, children, interrupts, history)
        url = cloud.url if cloud else ""
        servers = DemoServers(settings, policy, files, children, history, url)
        while not servers.ready:
            display.starting(elapsed_s := time.monotonic() - began_s)
            if elapsed_s > START_LIMIT_S:
                raise ProcessError(
                    f"the plan server was not ready after {START_LIMIT_S:g} s; see {servers.late}"
                )
            _pause(servers.check, interrupts)
            logs.read()
        clients = _start_clients(settings, files, children)
        limit_s = time.monotonic() + settings.duration_s + END_LIMIT_S
        while working := [client for client in clients if client.status is None]:
            if time.monotonic() > limit_s:
                raise ProcessError(
                    f"the {working[0].name} did not end {END_LIMIT_S:g} s after the last request "
                    f"was due; see {working[0].log}"
                )
            _pause(servers.check, interrupts)
            logs.read()
            servers.tick(time.monotonic())
            if cloud is not None:
                cloud.tick(time.monotonic())
            _check(clients)
            display.update(history, time.monotonic())
        _check(clients)
        logs.read()
        display.update(history, time.monotonic())
    logs.read()
    return history


class DemoServers:
    """Starts the servers of a run, kills one of several, and starts it again.

    Args:
        settings: of the demo.
        policy: of each server.
        files: of the run.
        children: take the processes.
        history: of the run, as the event logs say.
        cloud_url: base of the interface of the demo's own cloud; empty: it has none.
    """

    def __init__(
        self, settings: DemoSettings, policy: str, files: Files, children: Children,
        history: History, cloud_url: str = "",
    ) -> None:  # fmt: skip
        self._settings, self._policy, self._files = settings, policy, files
        self._children, self._history = children, history
        self._cloud_url = cloud_url
        self._killed = ""  # its name
        self._started_again = False
        self._servers: dict[str, Child] = {}
        for name in settings.server_names or (ONE,):
            self._start(name, f"server_{name}" if name else "server")
        self._dispatcher: Child | None = None
        if settings.server_names:
            self._dispatcher = children.start(
                "dispatcher", settings.dispatcher_command(), settings.environment,
                files.output("dispatcher"),
            )  # fmt: skip

    @property
    def ready(self) -> bool:
        """Whether the server is ready; of several, whether all have joined the dispatcher."""
        return self._history.ready_s is not None and not self._missing()

    @property
    def late(self) -> Path:
        """The output of a process that is not ready."""
        return self._servers[next(iter(self._missing()), next(iter(self._servers)))].log

    def check(self) -> None:
        """Raise if a process has ended that was not killed here.

        Raises:
            ProcessError: the process, and its last words.
        """
        for child in (*self._servers.values(), *filter(None, [self._dispatcher])):
            mine = self._killed and child is self._servers[self._killed]
            killed = mine and not self._started_again
            if child.status is not None and not killed:
                raise ProcessError(child.obituary())

    def tick(self, now_s: float) -> None:
        """Kill a server, or start it again, if it is time.

        Raises:
            ProcessError: it cannot be started.
        """
        began_s, duration_s = self._history.began_s, self._settings.duration_s
        if self._dispatcher is None or began_s is None:
            return
        share = (now_s - began_s) / duration_s
        if not self._killed and share >= KILLED_AT:
            name, work = self._busiest()
            if work or share >= KILLED_BEFORE:
                self._servers[name].send(signal.SIGKILL)
                self._history.servers[name].gone(now_s)
                self._killed = name
        elif self._killed and not self._started_again and share >= STARTED_AGAIN_AT:
            self._started_again = True
            self._start(self._killed, f"server_{self._killed}_again")

    def _start(self, name: str, output: str) -> None:
        self._servers[name] = self._children.start(
            f"plan server {name}".strip(),
            self._settings.server_command(self._policy, self._files, name, self._cloud_url),
            self._settings.environment,
            self._files.output(output),
        )

    def _missing(self) -> list[str]:
        """Return the servers that have not joined the dispatcher, as its output says."""
        if self._dispatcher is None:
            return []
        said = self._dispatcher.log.read_text(errors="replace")
        names = self._servers
        return [name for name in names if f"{self._settings.node_name(name)} joins" not in said]

    def _busiest(self) -> tuple[str, int]:
        """Return the server that makes the most plans and answers, and their number."""
        counts = {name: len(self._history.made_by(name)) for name in self._servers}
        return max(counts.items(), key=lambda one: one[1])
