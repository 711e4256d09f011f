"""Independent parts of an experiment, several at once, in processes that never outlive it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
from typing import Any, TypeVar

from timely_llm.core.parent import end_with_parent
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.stage import Progress

Part = TypeVar("Part")
Result = TypeVar("Result")


def run_all(
    work: Callable[[Part], Result],
    parts: Sequence[Part],
    jobs: int,
    progress: Progress = lambda done, total: None,
) -> list[Result]:
    """Return the result of each part, in their order, however many processes work.

    Args:
        work: a function of a module, which depends on its part alone.
        parts: what it is called with; can be pickled, as results and errors can.
        jobs: processes that work at once; with 1 this one does.
        progress: called with parts done and all parts.

    Raises:
        ExperimentError: a process was ended from outside.
    """
    progress(0, len(parts))
    if jobs > 1 and len(parts) > 1:
        return _share(work, parts, min(jobs, len(parts)), progress)
    results = []
    for part in parts:
        results.append(work(part))
        progress(len(results), len(parts))
    return results


def _share(
    work: Callable[[Part], Result], parts: Sequence[Part], jobs: int, progress: Progress
) -> list[Result]:
    """Give each process its next part when it has done the last one."""
    results: dict[int, Result] = {}
    left = iter(enumerate(parts))
    with _workers(work, jobs) as busy:
        try:
            for connection, first in zip(busy, left, strict=False):
                connection.send(first)
            while busy:
                for connection in [one for one in wait(busy) if isinstance(one, Connection)]:
                    number, result, error = connection.recv()
                    if error is not None:
                        raise error
                    results[number] = result
                    progress(len(results), len(parts))
                    following = next(left, None)
                    if following is None:
                        busy.remove(connection)
                    else:
                        connection.send(following)
        except (EOFError, ConnectionError) as error:
            raise ExperimentError("one of its processes was ended from outside") from error
    return [results[number] for number in range(len(parts))]


@contextmanager
def _workers(work: Callable[[Any], Any], jobs: int) -> Iterator[list[Connection]]:
    """Start processes, say how to reach them, and end them, whatever happens."""
    # A fresh interpreter each: forks of a process that has threads are not safe.
    context = multiprocessing.get_context("spawn")
    started: list[tuple[BaseProcess, Connection]] = []
    try:
        with _without_interrupts():
            for _ in range(jobs):
                here, there = context.Pipe()
                process: BaseProcess = context.Process(
                    target=_serve, args=(there, work), daemon=True
                )
                process.start()
                there.close()
                started.append((process, here))
        yield [connection for _, connection in started]
    finally:
        for process, connection in started:
            process.kill()
            process.join()
            connection.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let signals to end wait; processes that are started meanwhile leave them to this one."""
    ensure_running()  # what the first start of a process would do, and let Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, work: Callable[[Any], Any]) -> None:
    """Do one part after another, and end with the parent, whatever ends it."""
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    end_with_parent(parent.pid)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, ConnectionError):
        while True:
            number, part = connection.recv()
            try:
                result, error = work(part), None
            except Exception as raised:
                result, error = None, raised
            connection.send((number, result, error))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
