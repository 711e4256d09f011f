"""One run of the demo: server up, robots and people up, watch all logs until they are done."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from timely_llm.demo.history import History
from timely_llm.demo.settings import Files, Settings
from timely_llm.processes.children import Child, Children, Interrupts, ProcessError
from timely_llm.processes.log_reader import LogReader

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
class _Watch:
    """Brings a history up to date and notices what must not go on."""

    files: Files
    interrupts: Interrupts

    def __post_init__(self) -> None:
        self.history = History()
        logs = (self.files.fleet_log, self.files.talkers_log, self.files.journal)
        self._readers = [LogReader(log) for log in logs]

    def read(self) -> None:
        for reader in self._readers:
            for event in reader.read():
                self.history.add(event)

    def pause(self, server: Child) -> None:
        """Let a moment pass; raise if the user or the server ended."""
        end_s = time.monotonic() + REFRESH_S
        while time.monotonic() < end_s:
            self.interrupts.check()
            if server.status is not None:
                raise ProcessError(server.obituary())
            time.sleep(REFRESH_S / 5)
        self.read()


def _start_clients(settings: Settings, files: Files, children: Children) -> list[Child]:
    """Start the robots, and the people if there are any."""
    start = partial(children.start, environment=settings.environment)
    clients = [start("robot fleet", settings.fleet_command(files), log=files.fleet_output)]
    if settings.conversations:
        command = settings.talkers_command(files)
        clients.append(start("talkers", command, log=files.talkers_output))
    return clients


def _check(clients: list[Child]) -> None:
    """Raise if one ended with an error."""
    for client in clients:
        if client.status:
            raise ProcessError(client.obituary())


def run(settings: Settings, policy: str, display: Display) -> History:
    """Run the demo with one policy and return what happened; no process is left behind.

    Raises:
        ProcessError: a process could not be started, died, or did not come to an end.
        OutputError: the output folder cannot be written.
        Interrupted: the user asked to end.
    """
    files = Files.fresh(settings.output, policy)
    with Interrupts() as interrupts, display, Children(interrupts) as children:
        watch = _Watch(files, interrupts)
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
