"""The child process of `remote`: an engine that answers the calls of a socket.

It ends when its parent process has ended, whatever it is doing, and so do the processes that it has
started.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from timely_llm.core.errors import EngineError, EngineLost, TimelyError
from timely_llm.core.step import Capacity, StepPlan, StepResult
from timely_llm.engines.contract import Engine
from timely_llm.processes.heap import settle_heap
from timely_llm.processes.tied import tie_to_parent

CALLS = frozenset(
    {
        "pin_prefix", "prepare_prefix", "unpin_prefix", "add", "step", "submit", "collect",
        "take_back", "append", "resume", "remove",
    }
)  # fmt: skip
"""Calls that the child process takes: methods of an engine; `step` is `submit` and `collect`."""
LOOK_S = 0.5
"""Period of checking that the engine is alive while no call comes, seconds."""


def main(parent_pid: int, descriptor: int) -> None:
    """Make the engine of the first message, then answer calls until `close`.

    A call is (name, arguments); an answer is (failure, value, capacity). A failure is None, or the
    kind and the text of an error.

    Args:
        parent_pid: id of the process that started this one.
        descriptor: file descriptor of the socket.
    """
    tie_to_parent(parent_pid, group=True, link=descriptor)
    connection = Connection(descriptor)
    from timely_llm.engines.registry import make_engine

    try:
        engine = make_engine(**connection.recv())
    except Exception as error:  # the parent process reports it
        connection.send((_failure(error), None, None))
        return
    settle_heap()
    facts = getattr(engine, "block_tokens", 1), engine.in_flight, engine.async_scheduling
    connection.send((None, facts, _capacity(engine)))
    while True:
        while not connection.poll(LOOK_S):
            try:
                engine.capacity  # noqa: B018 # raises if the engine has ended by itself
            except EngineLost as error:
                connection.send((_failure(error), None, None))
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
        failed = _failure(error)
    try:
        return failed, value, _capacity(engine)
    except EngineLost as error:
        return _failure(error), None, None


def _capacity(engine: Engine) -> Capacity:
    """Return the limits of an engine; with one step in flight its stages are one stage."""
    if engine.in_flight > 1:
        return engine.capacity
    return replace(engine.capacity, stages=1, micro_batches=1)


def _call(engine: Engine, name: str, arguments: tuple[Any, ...]) -> Any:
    if name not in CALLS:
        raise EngineError(f"unknown call {name!r}: allowed are {', '.join(sorted(CALLS))}")
    if name == "step":
        return _step(engine, *arguments)
    return getattr(engine, name)(*arguments)


def _step(engine: Engine, plan: StepPlan) -> StepResult:
    engine.submit(plan)
    return engine.collect()


def _failure(error: Exception) -> tuple[str, str]:
    """Return the kind and the text of an error."""
    if isinstance(error, TimelyError):
        return type(error).__name__, str(error)
    return EngineError.__name__, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    with contextlib.suppress(EOFError, OSError):  # the parent process has ended
        main(int(sys.argv[1]), int(sys.argv[2]))
