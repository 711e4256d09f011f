"""The other side of `remote`: an engine that does what comes through a socket.

It ends as soon as the other side has, whatever it is doing: the kernel sees to it on Linux, a
thread elsewhere. The processes that it has started end with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from timely_llm.core.errors import EngineError, EngineLost, TimelyError
from timely_llm.core.parent import end_group_with_parent, end_with_parent
from timely_llm.engines.contract import Engine, StepResult
from timely_llm.policies.contract import StepPlan

CALLS = frozenset(
    {
        "pin_prefix", "prepare_prefix", "unpin_prefix", "add", "step", "take_back", "append",
        "resume", "remove",
    }
)  # fmt: skip
"""What can be asked for: methods of an engine, and `step`, which is `submit` and `collect`."""
LOOK_S = 0.5
"""How often the engine is looked at while nobody asks for anything, seconds."""


def main(descriptor: int, parent_pid: int) -> None:
    """Make the engine that is asked for first, then answer calls until `close`.

    A call is (name, arguments), an answer (None or the error's kind and text, value, capacity).

    Args:
        descriptor: of the socket.
        parent_pid: the process that started this one.
    """
    end_with_parent(parent_pid)
    end_group_with_parent(parent_pid)
    connection = Connection(descriptor)
    threading.Thread(target=_end_with_the_other_side, args=(descriptor,), daemon=True).start()
    from timely_llm.engines.registry import make_engine

    try:
        engine = make_engine(**connection.recv())
    except Exception as error:  # told to who asked for it
        connection.send((_told(error), None, None))
        return
    facts = getattr(engine, "block_tokens", 1), engine.in_flight
    connection.send((None, facts, engine.capacity))
    while True:
        while not connection.poll(LOOK_S):
            try:
                engine.capacity  # noqa: B018 # tells whether the engine has ended by itself
            except EngineLost as error:
                connection.send((_told(error), None, None))
                return
        name, arguments = connection.recv()
        if name == "close":
            break
        connection.send(_answer(engine, name, arguments))
    engine.close()


def _answer(engine: Engine, name: str, arguments: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    failed = value = None
    try:
        value = _call(engine, name, arguments)
    except Exception as error:  # an engine may fail in any way
        failed = _told(error)
    try:
        return failed, value, engine.capacity
    except EngineLost as error:
        return _told(error), None, None


def _call(engine: Engine, name: str, arguments: tuple[Any, ...]) -> Any:
    if name not in CALLS:
        raise EngineError(f"nobody can ask an engine for {name!r}")
    if name == "step":
        return _step(engine, *arguments)
    return getattr(engine, name)(*arguments)


def _step(engine: Engine, plan: StepPlan) -> StepResult:
    engine.submit(plan)
    return engine.collect()


def _told(error: Exception) -> tuple[str, str]:
    """Return what is told of an error: its kind and what it says."""
    if isinstance(error, TimelyError):
        return type(error).__name__, str(error)
    return EngineError.__name__, f"{type(error).__name__}: {error}"


def _end_with_the_other_side(descriptor: int) -> None:
    hangs_up = select.poll()
    hangs_up.register(descriptor, select.POLLRDHUP)
    hangs_up.poll()
    if os.getpgrp() == os.getpid():  # it leads a group: what it has started is in it
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    with contextlib.suppress(EOFError, OSError):  # nobody is there to be told
        main(int(sys.argv[1]), int(sys.argv[2]))
