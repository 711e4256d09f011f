"""The loop in a thread of its own, with an inbox: what other threads may call."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from timely_llm.core.clock import Clock
from timely_llm.core.echo import quoted, sentence
from timely_llm.core.errors import EngineLost, RequestError
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    Rejected,
    Request,
)
from timely_llm.serving.gate import Gate, Limits
from timely_llm.serving.loop import Loop
from timely_llm.serving.sink import ServerSink, Sink, Watched
from timely_llm.skills.skill_set import parse_skill_set

log = logging.getLogger(__name__)
T = TypeVar("T")


class Server:
    """Thread-safe face of a loop.

    Nothing here blocks for longer than it takes to append to a list: work is done in the loop's
    thread, between two steps. The sink is called from that thread, but for `accepted`.

    Args:
        make_loop: makes the loop around the sink it is given; called in the loop's thread.
        sink: takes requests, segments and results.
        clock: the loop's clock.
        limits: when to refuse requests.

    Attributes:
        problem: why nothing will be served any more, in one sentence; empty while that is not so.
    """

    def __init__(
        self,
        make_loop: Callable[[Sink], Loop],
        sink: ServerSink,
        clock: Clock,
        limits: Limits | None = None,
    ) -> None:
        self._gate = Gate(limits or Limits())
        self._sink = sink
        self._watched = Watched(sink, self._gate.leave)
        self._clock = clock
        self._inbox: deque[Callable[[], object]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._drains: list[tuple[float, Future[None]]] = []
        self._made: Future[Loop] = Future()
        self.problem = ""
        self._thread = threading.Thread(
            target=self._run, args=(make_loop,), name="engine", daemon=True
        )
        self._thread.start()

    def wait_ready(self, timeout_s: float | None = None) -> None:
        """Wait until the loop is made.

        Raises:
            Exception: whatever making it raised; the server is then closed.
        """
        self._made.result(timeout_s)

    def call(self, work: Callable[[Loop], T]) -> Future[T]:
        """Run `work` on the loop between two steps; return its future result."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(self._made.result()))
            except Exception as error:
                future.set_exception(error)

        with self._wake:
            if self._closing:
                future.set_exception(Rejected(ErrorCode.SHUTTING_DOWN, "the server stops"))
                return future
            self._inbox.append(run)
            self._wake.notify()
        return future

    def post(self, work: Callable[[Loop], object]) -> None:
        """Run `work` on the loop between two steps; a server that stops does not any more."""
        with self._wake:
            if not self._closing:
                self._inbox.append(lambda: work(self._made.result()))
                self._wake.notify()

    def register(self, skill_set_yaml: str, source: str = "skill set") -> Future[tuple[str, int]]:
        """Pre-store a skill set; return its future (name, tokens of the shared prompt)."""

        def work(loop: Loop) -> tuple[str, int]:
            skill_set = parse_skill_set(skill_set_yaml, source)
            most = self._gate.limits.max_skill_sets
            if skill_set.name not in loop.prompts and len(loop.prompts) >= most:
                raise RequestError(f"{most} skill sets are registered, the most allowed")
            tokens = loop.register(skill_set)
            self._gate.know(skill_set.name)
            return skill_set.name, tokens

        return self.call(work)

    def submit(self, request: Request) -> None:
        """Accept a request; its segments or chunks and its result go to the sink.

        Raises:
            Rejected: the server does not take it, and why.
        """
        self._gate.enter(request)
        arrival_s = self._clock.now()
        self._sink.accepted(request)
        with self._wake:
            if self._closing:
                self._gate.leave(request.request_id)
                raise Rejected(ErrorCode.SHUTTING_DOWN, "the server stops")
            self._inbox.append(lambda: self._admit(request, arrival_s))
            self._wake.notify()

    def accept(self, accepting: bool) -> None:
        """Accept requests from now on, or refuse them; a new server accepts.

        Whoever waits for a drain waits no longer: what is being served goes on being served.
        """
        self._gate.open(accepting)
        with self._wake:
            drains, self._drains = self._drains, []
        for _, drained in drains:
            drained.set_result(None)
        self.post(lambda loop: loop.drain(False))

    def drain(self, timeout_s: float) -> Future[None]:
        """Refuse new requests and make what is left as fast as it goes, nobody suspended.

        Args:
            timeout_s: what is left then is ended.

        Returns:
            Done when nothing is served any more.
        """
        self._gate.open(False)
        drained: Future[None] = Future()
        end_s = self._clock.now() + timeout_s
        with self._wake:
            if self._closing:
                drained.set_result(None)
            else:
                self._drains.append((end_s, drained))
                self._inbox.append(lambda: self._made.result().drain(True))
                self._wake.notify()
        return drained

    def serves(self, request_id: str) -> bool:
        """Return whether a request was let in and has not ended."""
        return request_id in self._gate

    def report(self, report: ExecutionReport) -> None:
        """Take a robot's word about a segment."""
        self.post(lambda loop: loop.report(report))

    def cancel(
        self,
        request_id: str,
        code: ErrorCode = ErrorCode.CANCELED,
        reason: str = "canceled by a client",
    ) -> Future[bool]:
        """End a request before the next step; the future says whether it was there."""
        return self.call(lambda loop: loop.cancel(request_id, code, reason))

    def close(self, timeout_s: float = 5.0) -> None:
        """End all requests, stop the thread, free the engine."""
        self._gate.close()
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.error("the engine did not finish its step within %.0f s", timeout_s)

    def _run(self, make_loop: Callable[[Sink], Loop]) -> None:
        try:
            loop = make_loop(self._watched)
        except BaseException as error:
            self._made.set_exception(error)
            self._gate.close()
            with self._wake:
                self._closing = True
                work = list(self._inbox)
            for item in work:
                with contextlib.suppress(Exception):
                    item()  # tells who waits for it
            return
        self._made.set_result(loop)
        while True:
            with self._wake:
                work, closing = list(self._inbox), self._closing
                self._inbox.clear()
            for item in work:
                self._guard(loop, item)
            if closing:
                break
            turn = self._guard(loop, loop.turn)
            wake_s = self._end_drains(loop)
            if turn is None or turn.stepped:
                continue
            with self._wake:
                if not self._inbox and not self._closing:
                    pause_s = min(turn.wake_s, wake_s) - self._clock.now()
                    self._wake.wait(min(max(pause_s, 0.0), 3600.0))
        self._end_all(loop, ErrorCode.SHUTTING_DOWN, "the server stops")
        self._end_drains(loop)
        loop.close()

    def _end_drains(self, loop: Loop) -> float:
        """Tell who waits for the end of all requests; return when to look again at the latest."""
        if not self._drains:
            return math.inf
        if any(end_s <= self._clock.now() for end_s, _ in self._drains):
            self._end_all(loop, ErrorCode.SHUTTING_DOWN, "the server stops serving")
        with self._wake:
            if len(self._gate):
                return min(end_s for end_s, _ in self._drains)
            drains, self._drains = self._drains, []
        for _, drained in drains:
            drained.set_result(None)
        return math.inf

    def _admit(self, request: Request, arrival_s: float) -> None:
        """Admit a request; whatever goes wrong, its client hears of it."""
        try:
            self._made.result().admit(request, arrival_s)
        except Exception as error:
            log.exception("request %s could not be admitted", quoted(request.request_id))
            code = ErrorCode.INVALID_REQUEST
            self._watched.ended(request.refused(code, str(error)))

    def _guard(self, loop: Loop, work: Callable[[], T]) -> T | None:
        """Do work; if the loop itself breaks, end what it serves and go on."""
        try:
            return work()
        except RequestError as error:
            log.warning("%s", sentence(error))
        except EngineLost as error:
            self._gate.close()
            self.problem = self.problem or str(error)
            self._end_all(loop, ErrorCode.ENGINE_FAILED, self.problem)
        except Exception as error:
            log.exception("the serving loop failed")
            reason = f"the server failed: {type(error).__name__}: {error}"
            self._end_all(loop, ErrorCode.ENGINE_FAILED, reason)
        return None

    def _end_all(self, loop: Loop, code: ErrorCode, reason: str) -> None:
        for generation in loop.generations:
            try:
                loop.cancel(generation.key, code, reason)
            except Exception:
                log.exception("request %s did not end cleanly", quoted(generation.key))
