"""One run of the demo: the processes that it starts and watches, and the events that it reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from timely_llm.core.events.reader import LogReader
from timely_llm.demo.cloud import DemoCloud, DemoHistory
from timely_llm.demo.files import Files
from timely_llm.demo.servers import DemoServers
from timely_llm.demo.settings import DemoSettings
from timely_llm.processes.children import Child, Children, Interrupts, ProcessError

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
