"""Parallel parts of an experiment, in processes that never outlive it."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
from typing import Any, TypeVar

from timely_llm.experiments.contract import ExperimentError, ReportProgress
from timely_llm.processes.tied import tie_to_parent

WorkPart = TypeVar("WorkPart")
PartResult = TypeVar("PartResult")


def run_all(
    work: Callable[[WorkPart], PartResult],
    parts: Sequence[WorkPart],
    jobs: int,
    progress: ReportProgress = lambda done, total: None,
) -> list[PartResult]:
    """Return the result of each part, in their order.

    Args:
        work: a module-level function that depends on its part only.
        parts: its arguments. Parts, results and errors can be pickled.
        jobs: processes that run at once; with 1, the calling process does all work.
        progress: called with the finished and the total number of parts.

    Raises:
        ExperimentError: a worker process was killed.
    """
    results: dict[int, PartResult] = {}
    progress(0, len(parts))
    for number, result in run_each(work, parts, min(jobs, len(parts))):
        results[number] = result
        progress(len(results), len(parts))
    return [results[number] for number in range(len(parts))]


def run_each(
    work: Callable[[WorkPart], PartResult], parts: Iterable[WorkPart], jobs: int
) -> Iterator[tuple[int, PartResult]]:
    """Yield the number and the result of each part as soon as its work is done.

    A part is taken out of `parts` when there is a process for it, so that `parts` may end with a
    time. Arguments and errors are those of `run_all`.
    """
    if jobs > 1:
        yield from _share(work, parts, jobs)
        return
    for number, part in enumerate(parts):
        yield number, work(part)


def _share(
    work: Callable[[WorkPart], PartResult], parts: Iterable[WorkPart], jobs: int
) -> Iterator[tuple[int, PartResult]]:
    """Send each process its next part when it has returned the previous one."""
    left = iter(enumerate(parts))
    with _workers(work, jobs) as workers:
        busy = []
        try:
            for connection in workers:
                if (first := next(left, None)) is not None:
                    connection.send(first)
                    busy.append(connection)
            while busy:
                for connection in [one for one in wait(busy) if isinstance(one, Connection)]:
                    number, result, error = connection.recv()
                    if error is not None:
                        raise error
                    following = next(left, None)
                    if following is None:
                        busy.remove(connection)
                    else:
                        connection.send(following)
                    yield number, result
        except (EOFError, ConnectionError) as error:
            raise ExperimentError("a worker process of the experiment was killed") from error


@contextmanager
def _workers(work: Callable[[Any], Any], jobs: int) -> Iterator[list[Connection]]:
    """Start processes, yield the connections to them, and kill them at the end."""
    # A fork of a process with threads is not safe, so each worker is a fresh interpreter.
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
    """Block SIGINT and SIGHUP. Processes that start meanwhile inherit the block."""
    ensure_running()  # the first start of a process would do this, and unblock Ctrl-C
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, work: Callable[[Any], Any]) -> None:
    """Serve one part after another; end with the parent process, even if that is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    tie_to_parent(parent.pid, link=parent.sentinel)
    with suppress(EOFError, ConnectionError):
        while True:
            number, part = connection.recv()
            try:
                result, error = work(part), None
            except Exception as raised:
                result, error = None, raised
            connection.send((number, result, error))
