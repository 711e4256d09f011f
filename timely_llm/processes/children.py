"""Child processes that never outlive their parent, and those that are known by a variable."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

import psutil

from timely_llm.core.errors import Interrupted, TimelyError
from timely_llm.processes import signals
from timely_llm.processes.own_session import OwnSession
from timely_llm.processes.tied import tied_command

GRACE = ((signal.SIGINT, 8.0), (signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0))
"""What a child is sent, and how many seconds it gets to end."""
POLL_S = 0.02

GONE_S = 5.0
"""Time that processes have to end after those that started them, seconds."""


class ProcessError(TimelyError):
    """A child process could not be started, or ended when it should not."""


class Interrupts:
    """Records SIGINT, SIGTERM and SIGHUP, so that they interrupt neither a start nor a clean-up.

    For the main thread only. Its owner calls `check` often, where an exception loses nothing.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before: dict[signal.Signals, signals.Handler] = {}

    def __enter__(self) -> Interrupts:
        self._before = signals.handle(signals.ENDING, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.received.append(signum)

    def check(self) -> None:
        """Raise `Interrupted` if a signal has come."""
        if self.received:
            raise Interrupted(self.received[0])

    @property
    def in_a_hurry(self) -> bool:
        """Whether the user has asked twice."""
        return len(self.received) > 1


class Child(OwnSession):
    """A process in a session of its own, its output in a file; it ends with this one.

    Args:
        name: what users call it.
        command: program and arguments.
        environment: variables beside those inherited.
        log: the file for its output.

    Raises:
        ProcessError: it cannot be started.
    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.log = log
        try:
            with log.open("w") as output:
                process = subprocess.Popen(
                    tied_command(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **environment},
                    start_new_session=True,
                )
        except OSError as error:
            raise ProcessError(f"cannot start the {name}: {error}") from error
        super().__init__(process)

    def obituary(self) -> str:
        """Return one sentence: how it ended and the last line it wrote."""
        status = self.status or 0
        how = f"{'was ended' if status < 0 else 'ended'} {signals.manner(status)}"
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        words = f"its last words: {last}" if last else "it printed nothing"
        return f"the {self.name} {how}; {words} (all of them: {self.log})"


class Children:
    """Child processes that end with the `with` block in which they were started."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._children: list[Child] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        stop(self._children, lambda: self._interrupts.in_a_hurry)

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> Child:
        """Start a child.

        Raises:
            ProcessError: it cannot be started.
            Interrupted: the user asked to end.
        """
        self._interrupts.check()
        self._children.append(Child(name, command, environment, log))
        return self._children[-1]


def stop(children: Sequence[Child], in_a_hurry: Callable[[], bool] = lambda: False) -> None:
    """End children and their descendants by ever stronger signals, with bounded waits.

    Args:
        children: to end; the last started is asked first.
        in_a_hurry: whether to skip the rest of a wait.
    """
    for signum, grace_s in GRACE:
        alive = [child for child in children if child.status is None]
        for child in reversed(alive):
            child.send(signum)
        deadline_s = time.monotonic() + grace_s
        while any(child.status is None for child in alive) and time.monotonic() < deadline_s:
            if in_a_hurry() and signum != signal.SIGKILL:
                break
            time.sleep(POLL_S)
    for child in children:
        child.send(signal.SIGKILL)


def wait(
    child: Child, ready: Callable[[], bool], interrupts: Interrupts, limit_s: float, what: str
) -> None:
    """Wait until a condition holds.

    Args:
        child: the process that must live until then; its end may fulfil the condition.
        ready: the condition, polled.
        interrupts: the user's.
        limit_s: the longest wait.
        what: beginning of the error's sentence: "the plan server was not ready".

    Raises:
        ProcessError: the child ended, or the wait was too long.
        Interrupted: the user asked to end.
    """
    end_s = time.monotonic() + limit_s
    while not ready():
        interrupts.check()
        if child.status is not None:
            if ready():  # it ended well just now
                return
            raise ProcessError(child.obituary())
        if time.monotonic() > end_s:
            raise ProcessError(f"{what} after {limit_s:g} s; see {child.log}")
        time.sleep(POLL_S)


def left_running(variable: str, value: str, within_s: float = GONE_S) -> list[psutil.Process]:
    """Wait until no process has an environment variable; return those that have it at the end.

    Children inherit the variable, in sessions of their own too.
    """
    end_s = time.monotonic() + within_s
    while (left := _marked(variable, value)) and time.monotonic() < end_s:
        time.sleep(POLL_S)
    return left


def _marked(variable: str, value: str) -> list[psutil.Process]:
    made = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            marked = process.environ().get(variable) == value
            if marked and process.status() != psutil.STATUS_ZOMBIE:
                made.append(process)
    return made
