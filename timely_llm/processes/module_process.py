"""A module of this package as a child process."""

from __future__ import annotations

import contextlib
import signal
import subprocess

from timely_llm.processes.own_session import OwnSession
from timely_llm.processes.tied import module_command, module_environment


class ModuleProcess(OwnSession):
    """A child process that runs a module, in a session of its own.

    Ctrl-C reaches this process alone, which then ends the child. The module calls `tie_to_parent`
    with its first argument, this process's id.

    Args:
        module: name of the module.
        arguments: of the module, after this process's id.
        inherited: a file descriptor that the child gets too, under the same number.
        secret: what the module reads from its standard input, since others may read its
            arguments and variables; empty: nothing.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self, module: str, *arguments: object, inherited: int | None = None, secret: bytes = b""
    ) -> None:
        process = subprocess.Popen(
            module_command(module, *arguments),
            stdin=subprocess.PIPE if secret else subprocess.DEVNULL,
            pass_fds=() if inherited is None else (inherited,),
            env=module_environment(),
            start_new_session=True,
        )
        super().__init__(process)
        if process.stdin is not None:
            with contextlib.suppress(OSError), process.stdin as pipe:
                pipe.write(secret)

    def wait(self, most_s: float | None = None) -> int | None:
        """Wait until it ends; return its exit status.

        Args:
            most_s: the longest wait, seconds; None: until it ends.

        Returns:
            None if it still runs.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(most_s)
        return self._process.returncode

    def kill(self) -> None:
        """Kill it and the processes that it has started; does not wait for their end."""
        self.send(signal.SIGKILL)
