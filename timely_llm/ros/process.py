"""Starting, spinning and ending a process of nodes, also by a signal."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import rclpy
from rclpy.executors import (
    Executor,
    ExternalShutdownException,
    SingleThreadedExecutor,
    TimeoutObject,
)
from rclpy.logging import get_logger
from rclpy.signals import SignalHandlerOptions

from timely_llm.core.errors import (
    ConfigurationError,
    ModelError,
    SkillSetError,
    TimelyError,
    first_line,
)
from timely_llm.core.requirements import (
    EXECUTORS,
    RequirementError,
    executors,
    explained,
    rclpy_version,
)
from timely_llm.core.text import quoted, sentence
from timely_llm.processes import signals
from timely_llm.processes.real_time import give_real_time
from timely_llm.ros import parameters
from timely_llm.ros.guarded import Guard
from timely_llm.ros.parameters import NodeParameter

PLACE = re.compile(r",? at /\S+\.c(pp)?:\d+")


def reason(error: Exception) -> str:
    """Return an error's message on one line, without places in the sources of ROS."""
    if NO_PLUGINS in str(error):
        return (
            "ROS_SECURITY_ENABLE is true, and this Fast DDS has no security plugins, as that of the"
            " ROS wheels on PyPI: install ROS by apt or colcon, or unset ROS_SECURITY_ENABLE"
        )
    words = PLACE.sub("", str(error)).removeprefix("failed to initialize rcl: ")
    return " ".join(words.split())


NO_PLUGINS = "security libraries"
"""Words of Fast DDS in its error when it was built without security."""


def in_real_time(priority: int) -> str:
    """Give all threads of this process a real-time priority; those begun later inherit it.

    Args:
        priority: of the policy SCHED_RR, from 1 to 99.

    Returns:
        A sentence if the system does not permit it, otherwise nothing.
    """
    if not hasattr(os, "SCHED_RR"):
        return "realtime_priority has no effect on this system: it has no SCHED_RR"
    try:
        give_real_time("self", priority)
    except OSError as error:
        return (
            f"realtime_priority {priority} is not permitted ({error.strerror}), and the usual"
            " priority is kept: set the limit rtprio of the user, or grant CAP_SYS_NICE"
        )
    return ""


def check_security(args: Sequence[str] | None) -> None:
    """Warn that a node will not be secured although ROS 2's security (SROS2) is switched on.

    rcl reads the same variables. With any strategy but Enforce it goes on unsecured.

    Args:
        args: the process's arguments; None: those of the program.

    Raises:
        ConfigurationError: with the strategy Enforce.
    """
    if os.environ.get("ROS_SECURITY_ENABLE") != "true":
        return
    keystore = os.environ.get("ROS_SECURITY_KEYSTORE", "")
    words = list(sys.argv if args is None else args)
    named = words[words.index("--enclave") + 1 :][:1] if "--enclave" in words else []
    enclave = os.environ.get("ROS_SECURITY_ENCLAVE_OVERRIDE") or "".join(named) or "/"
    folder = Path(keystore, "enclaves", enclave.strip("/"))
    if keystore and folder.is_dir():
        return
    lacks = (
        f"there is no folder {quoted(str(folder))}" if keystore
        else "ROS_SECURITY_KEYSTORE names no folder"
    )  # fmt: skip
    problem = f"ROS_SECURITY_ENABLE is true, and {lacks}"
    make = "make keystore and enclave with `ros2 security`"
    if os.environ.get("ROS_SECURITY_STRATEGY") == "Enforce":
        raise ConfigurationError(f"{problem}: {make}, or unset ROS_SECURITY_ENABLE")
    get_logger("timely_llm").warning(
        f"{problem}: this node is NOT secured; {make}, and set ROS_SECURITY_STRATEGY=Enforce"
    )


POLL_S = 0.1
"""Longest wait of an executor, seconds: a signal is noticed when a wait ends."""
EXECUTOR = NodeParameter("executor", "single", "how the node waits for messages", choices=EXECUTORS)


_GUARD = Guard("the executor", lambda: get_logger("timely_llm"))


class _Interrupt:
    """Turns a signal into a KeyboardInterrupt; the first one is raised between two callbacks.

    An exception that is raised inside rclpy may become another error, or be lost with a message.
    """

    def __init__(self) -> None:
        self._spins = 0
        self._noted = False
        self.signum = 0

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.signum = signum
        if not self._spins or self._noted:
            raise KeyboardInterrupt
        self._noted = True

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Only record a signal during the block; `check` raises it."""
        self._spins += 1
        try:
            yield
        finally:
            self._spins -= 1

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was recorded."""
        if self._noted:
            self._noted = False
            raise KeyboardInterrupt


_interrupt = _Interrupt()


@contextlib.contextmanager
def ros(args: list[str] | None) -> Iterator[None]:
    """Keep ROS up until the end of the block, also after a signal.

    rclpy's own handlers would close the context at once, before the node's last messages. Here
    SIGINT, SIGTERM and SIGHUP raise a KeyboardInterrupt instead.

    Raises:
        ConfigurationError: ROS does not understand the arguments, or a file in them, or cannot
            secure the node with the strategy Enforce.
    """
    parameters.take(args)
    check_security(args)
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
    """Yield an executor, one of `EXECUTORS`, shut down with the block.

    Raises:
        ConfigurationError: the events executor of this rclpy does not await coroutines.
    """
    executor = _events_executor() if kind == "events" else SingleThreadedExecutor()
    try:
        yield executor
    finally:
        executor.shutdown(timeout_sec=0)


def _events_executor() -> Executor:
    if "events" not in executors():
        raise ConfigurationError(
            "parameter executor must be single here: the events executor of rclpy"
            f" {'.'.join(map(str, rclpy_version()))} does not await the coroutines of services;"
            " those of Jazzy since rclpy 7.1.11, of Kilted since 9.1.2 and of Lyrical do"
        )
    from rclpy.experimental import EventsExecutor  # Jazzy has it since 7.1.4, older ones never

    return EventsExecutor()


def spin(
    executor: Executor,
    while_true: Callable[[], bool] = lambda: True,
    timeout_s: float = math.inf,
    poll_s: Callable[[], float] = lambda: POLL_S,
) -> None:
    """Run callbacks while a condition holds, for at most `timeout_s` seconds.

    Args:
        executor: runs them.
        while_true: called before each wait; it may do periodic work, because the timers of the
            events executor never fire.
        timeout_s: the longest time, seconds.
        poll_s: called before each wait; returns its longest time, seconds.

    Raises:
        KeyboardInterrupt: a signal asks the process to end.
    """
    end_s = time.monotonic() + timeout_s
    # With another argument in each call, rclpy begins its round of callbacks anew: a coroutine that
    # waits comes first in each round, and no other callback would ever run.
    wait: Any = TimeoutObject(0.0)  # rclpy's signature of spin_once lacks it
    own = isinstance(executor, SingleThreadedExecutor)
    with _interrupt.deferred():
        while rclpy.ok() and while_true() and time.monotonic() < end_s:
            _interrupt.check()
            wait.timeout = min(poll_s(), max(end_s - time.monotonic(), 0.0))
            try:
                executor.spin_once(timeout_sec=wait if own else wait.timeout)
            except ExternalShutdownException:
                raise
            except Exception as error:  # of rclpy itself, such as an unreadable message
                _GUARD.failed(error)
            _interrupt.check()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore signals from now on, so that none interrupts the end of the process."""
    signals.handle(signals.ENDING, signal.SIG_IGN)
    yield


NO_RESTART = (ConfigurationError, ModelError, SkillSetError, RequirementError)
"""Errors that are the same after a restart."""


def exit_status(name: str, work: Callable[[], None], no_restart: int = 1) -> int:
    """Do a node's work; return the status to exit with, after one sentence for each error.

    Args:
        name: of the program.
        work: to be done.
        no_restart: status of `NO_RESTART`; 1 is that of all other errors.
    """
    try:
        work()
    except NO_RESTART as error:
        _say_failed(name, error)
        return no_restart
    except TimelyError as error:
        return _failed(name, error)
    except (KeyboardInterrupt, ExternalShutdownException):
        _say_ended(name)
    except Exception as error:
        if not _interrupt.signum:
            if NO_PLUGINS in str(error):
                _say_failed(name, ConfigurationError(reason(error)))
                return no_restart
            if (known := _no_memory(error) or explained(error)) is None:
                raise
            return _failed(name, known)
        _say_ended(name)  # rclpy turns a KeyboardInterrupt in it into other errors
    return 0


def _no_memory(error: Exception) -> TimelyError | None:
    """Return the sentence for a process that gets no memory or no thread; None: another error."""
    refused = isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EAGAIN)
    no_thread = isinstance(error, RuntimeError) and NO_THREAD.search(str(error))
    if not (isinstance(error, MemoryError) or refused or no_thread):
        return None
    return TimelyError(
        f"no memory is left ({first_line(error)}): let the process have more memory or threads"
    )


NO_THREAD = re.compile(r"(can't|unable to) start (new|watchdog) thread|std::bad_alloc")
"""Words of Python, and of C++ behind rclpy, where memory ends."""


def _failed(name: str, error: TimelyError) -> int:
    _say_failed(name, error)
    return 1


def _say_failed(name: str, error: TimelyError) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(f"{name}: {sentence(error)}", file=sys.stderr)


def _say_ended(name: str) -> None:
    by = signal.Signals(_interrupt.signum).name if _interrupt.signum else "the shutdown of ROS"
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(f"{name}: ended by {by}; nothing is left running", file=sys.stderr)
