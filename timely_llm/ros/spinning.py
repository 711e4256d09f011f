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


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def ros(args: list[str] | None) -> Iterator[None]:
    """Keep ROS up until the end of the block, also after a signal.

    rclpy's own handlers would close the context at once, and nobody could be told any more.
    SIGINT and SIGTERM are a KeyboardInterrupt instead.

    Raises:
        ConfigurationError: ROS does not understand the arguments, or a file that they name.
    """
    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:
        raise ConfigurationError(f"cannot start ROS: {reason(error)}") from error
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, _interrupt)
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
    """
    end_s = time.monotonic() + timeout_s
    while rclpy.ok() and while_true() and time.monotonic() < end_s:
        left_s = min(poll_s(), max(end_s - time.monotonic(), 0.0))
        try:
            executor.spin_once(timeout_sec=left_s)
        except ExternalShutdownException:
            raise
        except Exception as error:  # of rclpy itself, such as a message that cannot be read
            _GUARD.failed(error)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let no further signal break into ending."""
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, signal.SIG_IGN)
    yield


def exit_status(name: str, work: Callable[[], None]) -> int:
    """Do a node's work; return the status to exit with, after one sentence for each error."""
    try:
        work()
    except TimelyError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, ExternalShutdownException):
        return 0
    return 0
