"""The processes of a site: they are killed, stopped and drained, and started again."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from timely_llm.benchmarks.kills.schedule import DISPATCHER
from timely_llm.benchmarks.kills.schedule import SERVER as JOURNAL_SERVER
from timely_llm.core.events.log import FileEventLog
from timely_llm.core.events.probe_events import KillEvent
from timely_llm.processes.children import Child, Children
from timely_llm.processes.nodes import DISPATCHER as DISPATCHER_COMMAND
from timely_llm.processes.nodes import SERVER, in_namespace, ros_command

PACES = ("rtx4090-llama3-8b", "rtx4060ti-chatglm2-6b", "v100x2-qwen2.5-7b")
"""Paces of the servers: a fast one, and two slower ones that differ in their steps."""
TIMEOUTS = {"queue_timeout_s": 30.0, "name_check_s": 0.0}
"""Parameters of all servers and the dispatcher. A killed one is not looked for."""
ANSWER_S = 20.0
"""Seconds in which a robot has to report to a server what it executed."""
MEGABYTE = 1e6


class Site:
    """Three servers of unlike paces and a dispatcher, or one server with a recovery journal.

    Args:
        children: start the processes.
        environment: environment variables of all.
        folder: gets the logs of each life of each process.
        event_log: takes what is done to the processes.
        hedge: the dispatcher asks two servers for urgent plans.
        journal: there is one server with a recovery journal.

    Attributes:
        lives: number of lives of each process so far.
        face: name of the process that clients ask.
        memory: of each life of that process, pairs of its age, seconds, and its size, megabytes.
    """

    def __init__(
        self, children: Children, environment: Mapping[str, str], folder: Path,
        event_log: FileEventLog, hedge: bool = False, journal: bool = False,
    ) -> None:  # fmt: skip
        self._children = children
        self._environment = environment
        self._folder = folder
        self._event_log = event_log
        self._hedge = hedge
        self.face = JOURNAL_SERVER if journal else DISPATCHER
        self._running: dict[str, Child] = {}
        self._began_s = 0.0
        self.lives: dict[str, int] = {}
        self.memory: list[list[tuple[float, float]]] = []

    @property
    def servers(self) -> Sequence[str]:
        """The names of the servers behind a dispatcher, which are also their namespaces."""
        if self.face == JOURNAL_SERVER:
            return []
        return [f"s{place}" for place, _ in enumerate(PACES, 1)]

    def begin(self) -> None:
        """Start all processes.

        Raises:
            ProcessError: one could not be started.
        """
        for name in (*self.servers, self.face):
            self.start(name)

    def start(self, name: str) -> None:
        """Start a process, for its first life or after it was killed."""
        self.lives[name] = life = self.lives.get(name, 0) + 1
        self._note(name, "started")
        what, log = f"{name} ({life})", self._folder / f"{name}-{life}.log"
        self._running[name] = self._children.start(
            what, self._command(name, life), self._environment, log
        )
        if name == self.face:
            self._began_s = time.monotonic()
            self.memory.append([])

    def act(self, name: str, kind: str) -> None:
        """Do something to a process: see `KillEvent`. The probe changes states of life cycles."""
        child = self._running.get(name)
        if kind == "started":
            self.start(name)
            return
        self._note(name, kind)
        if child is None:
            return
        if kind == "killed":
            del self._running[name]
            child.send(signal.SIGKILL)
        elif kind in ("stopped", "continued"):
            child.send(signal.SIGSTOP if kind == "stopped" else signal.SIGCONT)

    def look(self) -> None:
        """Start processes again that died by themselves, and measure the process of the clients."""
        for name, child in list(self._running.items()):
            if child.status is not None:
                self._note(name, "died", child.obituary())
                self.start(name)
        face = self._running.get(self.face)
        if face is not None:
            try:
                bytes_used = psutil.Process(face.pid).memory_info().rss
            except psutil.NoSuchProcess:
                return
            self.memory[-1].append((time.monotonic() - self._began_s, bytes_used / MEGABYTE))

    def _note(self, name: str, kind: str, words: str = "") -> None:
        self._event_log.write(KillEvent(time.monotonic(), name, kind, words))

    def _command(self, name: str, life: int) -> list[str]:
        if name == DISPATCHER:
            return ros_command(DISPATCHER_COMMAND, {**TIMEOUTS, "hedge": self._hedge})
        alone = name == JOURNAL_SERVER
        parameters: dict[str, Any] = {
            **TIMEOUTS, "engine": "simulated",
            "pace": PACES[0 if alone else self.servers.index(name)],
            "answer_timeout_s": ANSWER_S, "event_log": str(self._folder / f"{name}-{life}.jsonl"),
        }  # fmt: skip
        if alone:
            journal = str(self._folder / "recovery_journal")
            return ros_command(SERVER, {**parameters, "recovery_journal": journal})
        return [*ros_command(SERVER, parameters), *in_namespace(name)]
