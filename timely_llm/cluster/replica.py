"""A replica: one server with its own engine, which serves what its front sends."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from timely_llm.cluster.configured import make_server
from timely_llm.cluster.connection import Connection, connect
from timely_llm.cluster.messages import (
    Ask,
    Beat,
    EndRequest,
    Failed,
    Ping,
    Pong,
    Ready,
    ReplicaTask,
    Reply,
    Stop,
)
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import EngineLost, RequestError, TimelyError
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    Rejected,
    Request,
    Result,
    StreamChunk,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.dispatch.contract import ServerView
from timely_llm.dispatch.load import Load
from timely_llm.processes.heap import settle_heap
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.server import Server
from timely_llm.serving.server.statistics import statistics

log = logging.getLogger(__name__)

BEAT_S = 0.05
"""Period of the signs of life, seconds; each has a new view if the engine's step is over."""
ENDING_S = 3.0
"""Longest life of a replica after its front, seconds."""


def serve(address: tuple[str, int], nonce: bytes, end: Callable[[int], None] = os._exit) -> int:
    """Serve what the front at `address` sends; return an exit status.

    Args:
        address: host and port.
        nonce: the secret of this connection.
        end: ends the process when the front is gone and this thread hangs.

    Raises:
        ConnectionRefused: there is no such front.
    """
    return Replica(address, nonce, end).serve()


class Replica:
    """Serves with one engine, in the thread that calls `serve`, until its front is gone.

    Args:
        address: host and port of the front.
        nonce: the secret of this connection.
        end: ends the process when the front is gone and the replica's thread hangs.

    Raises:
        ConnectionRefused: there is no such front.
    """

    def __init__(self, address: tuple[str, int], nonce: bytes, end: Callable[[int], None]) -> None:
        self._clock = WallClock()
        self._end = end
        self._over = threading.Event()  # the front is gone, or wants the end
        self._left = threading.Event()
        self._tasks: SimpleQueue[ReplicaTask | None] = SimpleQueue()
        self._server: Server | None = None
        self._connection = Connection(connect(address, nonce), self._take, self._gone)

    def serve(self) -> int:
        """Make the server, and serve; return an exit status."""
        task = self._tasks.get()
        if task is None:
            return 0
        with contextlib.suppress(OSError):
            os.chdir(task.folder)
        try:
            server = make_server(
                task.values, task.skill_sets, self, self._clock, log, self._check_front
            )
        except TimelyError as error:
            return self._fail(str(error))
        except Exception as error:
            log.exception("the replica cannot be made")
            return self._fail(f"it cannot be made: {type(error).__name__}: {error}")
        try:
            load = server.call(lambda loop: Load(loop, task.name)).result()
            self._server = server
            settle_heap()
            self._connection.send(Ready(server.skill_sets.names, os.getpid()))
            return self._beat(server, load)
        finally:
            server.close()
            self._connection.close()
            self._left.set()

    def _check_front(self) -> None:
        if self._over.is_set():
            raise EngineLost("the front is gone")

    def _fail(self, problem: str) -> int:
        self._connection.send(Failed(problem))
        self._connection.close()
        self._left.set()
        return 1

    def _beat(self, server: Server, load: Load) -> int:
        """Send views and signs of life until the end; return an exit status."""
        last: tuple[ServerView, dict[str, Any], float] | None = None
        asked: Future[None] | None = None

        def view(loop: Loop) -> None:
            nonlocal last
            now = self._clock.now()
            last = load.view(now), statistics(loop, server.stats), now
            self._connection.send(Beat(*last[:2]))

        while not self._over.wait(BEAT_S):
            if server.problem:
                self._connection.send(Failed(server.problem))
                return 1
            if asked is None or asked.done():
                asked = server.call(view)
            elif last is not None:  # a long step
                old, counts, made_s = last
                self._connection.send(Beat(replace(old, age_s=self._clock.now() - made_s), counts))
        return 0

    # In the connection's thread.

    def _take(self, message: Any) -> None:
        server = self._server
        if isinstance(message, ReplicaTask):
            self._tasks.put(message)
        elif isinstance(message, Stop):
            self._stop()
        elif isinstance(message, Ping):
            self._connection.send(Pong(message.sent_s))
        elif server is None:
            log.warning("%s came before the server was ready", type(message).__name__)
        elif isinstance(message, Request):
            self._submit(server, message)
        elif isinstance(message, ExecutionReport):
            server.report(message)
        elif isinstance(message, EndRequest):
            server.cancel(message.request_id)
        elif isinstance(message, Ask):
            self._asked(server, message)

    def _gone(self, why: str) -> None:
        """Let the replica end: nothing it serves has a client any more."""
        self._stop()
        if not self._left.wait(ENDING_S):
            self._end(1)

    def _stop(self) -> None:
        self._over.set()
        self._tasks.put(None)

    def _submit(self, server: Server, request: Request) -> None:
        try:
            server.submit(request)
        except Rejected as error:
            refused = request.refused(error.code, str(error), error.retry_after_s)
            self._connection.send(refused)
        except RequestError as error:
            self._connection.send(request.refused(ErrorCode.INVALID_REQUEST, str(error)))

    def _asked(self, server: Server, asked: Ask) -> None:
        """Reply a question, now or when it is known; see `Link`."""
        about = asked.about

        def answer(value: object) -> None:
            self._connection.send(Reply(asked.number, value))

        def then(future: Future[Any], said: Callable[[Any, str], object]) -> None:
            error = future.exception()
            answer(said(None, str(error)) if error else said(future.result(), ""))

        match asked.question:
            case "withdraw":
                withdrawn = server.cancel(about, unless_begun=True)
                withdrawn.add_done_callback(lambda one: then(one, lambda value, _: bool(value)))
            case "inquire":
                answer(server.serves(about))
            case "skill_set":
                known = about in server.skill_sets.names
                answer(server.skill_sets.text(about) if known else "")
            case "register":
                server.skill_sets.register(about).add_done_callback(
                    lambda one: then(one, lambda value, error: (*(value or ("", 0)), error))
                )
            case "unregister":
                server.unregister(about).add_done_callback(
                    lambda one: then(one, lambda _, error: error)
                )

    # As a sink.

    def accepted(self, request: Request) -> None:
        """Do nothing: the front knows its requests."""

    def segment(self, segment: Segment) -> None:
        """Send a segment."""
        self._connection.send(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        """Send a token."""
        self._connection.send(chunk)

    def ended(self, result: Result) -> None:
        """Send the end of a request."""
        self._connection.send(result)

    def stepped(self, result: StepResult) -> None:
        """Do nothing: steps stay where their engine is."""
