"""The servers of a demo's run: one, or several with a dispatcher, one of which is killed midway."""

from __future__ import annotations

import signal
from pathlib import Path

from timely_llm.core.events.history import History
from timely_llm.demo.files import ONE, Files
from timely_llm.demo.settings import DemoSettings
from timely_llm.processes.children import Child, Children, ProcessError

KILLED_AT, KILLED_BEFORE, STARTED_AGAIN_AT = 0.4, 0.5, 0.6
"""Shares of the run's duration: from the first on, a server that works is killed, at the second any
one; it is started again at the third."""


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
