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
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from timely_llm.core.errors import TimelyError

POLL_S = 0.2
"""A signal is noticed when a wait ends, so waits end this often."""


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def ros(args: list[str] | None) -> Iterator[SingleThreadedExecutor]:
    """Yield an executor; ROS is up until the end of the block, also after a signal.

    rclpy's own handlers would close the context at once, and nobody could be told any more.
    SIGINT and SIGTERM are a KeyboardInterrupt instead.
    """
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    signal.signal(signal.SIGTERM, _interrupt)
    executor = SingleThreadedExecutor()
    try:
        yield executor
    finally:
        executor.shutdown(timeout_sec=0)
        rclpy.try_shutdown()


def spin(
    executor: SingleThreadedExecutor,
    while_true: Callable[[], bool] = lambda: True,
    timeout_s: float = math.inf,
    poll_s: float = POLL_S,
) -> None:
    """Run callbacks while a condition holds, for at most `timeout_s` seconds."""
    end_s = time.monotonic() + timeout_s
    while rclpy.ok() and while_true() and time.monotonic() < end_s:
        executor.spin_once(timeout_sec=min(poll_s, max(end_s - time.monotonic(), 0.0)))


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
