"""Starting, spinning and ending a process of nodes, however it is asked to end."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

import rclpy
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.experimental import EventsExecutor
from rclpy.logging import get_logger
from rclpy.signals import SignalHandlerOptions

from timely_llm.core import signals
from timely_llm.core.echo import sentence
from timely_llm.core.errors import ConfigurationError, TimelyError
from timely_llm.ros.guarded import Guard
from timely_llm.ros.parameters import Parameter
from timely_llm.ros.rcl_errors import reason

POLL_S = 0.1
"""A signal is noticed when a wait ends, so waits end this often."""
EXECUTORS: dict[str, Callable[[], Executor]] = {
    "single": SingleThreadedExecutor,
    "events": EventsExecutor,
}
"""Executors by name. None with several threads: messages would overtake each other."""
EXECUTOR = Parameter(
    "executor", "single", "how the node waits for messages", choices=tuple(EXECUTORS)
)


_GUARD = Guard("the executor", lambda: get_logger("timely_llm"))


class _Interrupt:
    """Makes a KeyboardInterrupt of a signal, but of the first one between two callbacks only.

    One that is raised inside rclpy may come out as another error, or be lost with a message.
    """

    def __init__(self) -> None:
        self._spins = 0
        self._noted = False

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if not self._spins or self._noted:
            raise KeyboardInterrupt
        self._noted = True

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Note a signal during the block; `check` raises it."""
        self._spins += 1
        try:
            yield
        finally:
            self._spins -= 1

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was noted."""
        if self._noted:
            self._noted = False
            raise KeyboardInterrupt


_interrupt = _Interrupt()


@contextlib.contextmanager
def ros(args: list[str] | None) -> Iterator[None]:
    """Keep ROS up until the end of the block, also after a signal.

    rclpy's own handlers would close the context at once, and nobody could be told any more.
    SIGINT, SIGTERM and SIGHUP are a KeyboardInterrupt instead.

    Raises:
        ConfigurationError: ROS does not understand the arguments, or a file that they name.
    """
    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:
        raise ConfigurationError(f"cannot start ROS: {reason(error)}") from error
    signals.handle(signals.ENDING, _interrupt)
    try:
        yield
    finally:
        rclpy.try_shutdown()


@contextlib.contextmanager
def executor_of(kind: str = "single") -> Iterator[Executor]:
    """Yield an executor, one of `EXECUTORS`, shut down with the block."""
    executor = EXECUTORS[kind]()
    try:
        yield executor
    finally:
        executor.shutdown(timeout_sec=0)


def spin(
    executor: Executor,
    while_true: Callable[[], bool] = lambda: True,
    timeout_s: float = math.inf,
    poll_s: Callable[[], float] = lambda: POLL_S,
) -> None:
    """Run callbacks while a condition holds, for at most `timeout_s` seconds.

    Args:
        executor: runs them.
        while_true: asked before each wait; may do work that is due from time to time, because the
            timers of the events executor never fire.
        timeout_s: the longest time.
        poll_s: the longest wait, asked before each.

    Raises:
        KeyboardInterrupt: a signal asks the process to end.
    """
    end_s = time.monotonic() + timeout_s
    with _interrupt.deferred():
        while rclpy.ok() and while_true() and time.monotonic() < end_s:
            _interrupt.check()
            left_s = min(poll_s(), max(end_s - time.monotonic(), 0.0))
            try:
                executor.spin_once(timeout_sec=left_s)
            except ExternalShutdownException:
                raise
            except Exception as error:  # of rclpy itself, such as a message that cannot be read
                _GUARD.failed(error)
            _interrupt.check()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let no further signal break into ending."""
    signals.handle(signals.ENDING, signal.SIG_IGN)
    yield


def exit_status(name: str, work: Callable[[], None]) -> int:
    """Do a node's work; return the status to exit with, after one sentence for each error."""
    try:
        work()
    except TimelyError as error:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"{name}: {sentence(error)}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, ExternalShutdownException):
        return 0
    return 0
