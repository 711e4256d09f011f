"""The loop in a thread of its own, with an inbox: what other threads may call."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from timely_llm.core.clock import Clock
from timely_llm.core.errors import EngineLost, RequestError
from timely_llm.core.events.log import EventLog
from timely_llm.core.request import ErrorCode, ExecutionReport, Rejected, Request
from timely_llm.core.text import quoted
from timely_llm.serving.failures import Failures, in_words
from timely_llm.serving.limits import DISPLACED, RequestGate, RequestLimits
from timely_llm.serving.loop import Loop, Turn
from timely_llm.serving.publisher import EventPublisher, Stats
from timely_llm.serving.server.inbox import Drains, Inbox, InboxItem, Promises, settle
from timely_llm.serving.server.questions import LoopQuestions
from timely_llm.serving.server.registration import Read, SkillSets
from timely_llm.serving.server.watchdog import ThreadWatchdog, stack_of
from timely_llm.serving.sink import ActiveRequestSink, ServerSink
from timely_llm.skills.skill_set import parse_skill_set

log = logging.getLogger(__name__)
T = TypeVar("T")
MOST_FAILURES = 10
"""Turns or steps that fail in a row, without a good step between, before the server ends."""
CLOSE_S = 5.0
"""How long the engine's thread may take to end, seconds."""


class Server(LoopQuestions):
    """Thread-safe interface of a loop.

    Nothing here blocks for longer than it takes to append to a list: work is done in the loop's
    thread, between two steps. The sink is called from that thread, but for `accepted`, and for the
    end of requests after their loop has stopped.

    Every request that is accepted has exactly one end, whatever the engine, the sink or the event
    log raise. A server that cannot serve any more says why in `problem`, ends all that it has, and
    refuses what comes.

    Args:
        make_loop: makes the loop; called in the loop's thread.
        sink: takes requests, segments and results.
        clock: the loop's clock.
        limits: when to refuse requests.
        step_timeout_s: a turn of the loop that takes longer has hung, seconds. Ten times as long
            until the first step is done, and while a skill set is registered.
        read: reads the texts of skill sets, in a thread of its own.
        event_log: takes the loop's events; owned by the server as soon as the loop is made.

    Attributes:
        problem: why nothing will be served any more, in one sentence; empty while that is not so.
        skill_sets: the registered skill sets, and those on their way.
    """

    def __init__(
        self,
        make_loop: Callable[[], Loop],
        sink: ServerSink,
        clock: Clock,
        limits: RequestLimits | None = None,
        step_timeout_s: float = math.inf,
        read: Read = parse_skill_set,
        event_log: EventLog | None = None,
    ) -> None:
        self._gate = RequestGate(limits or RequestLimits(), clock)
        super().__init__(self._gate, clock)
        self._sink = sink
        self._active_sink = ActiveRequestSink(sink, self._gate)
        self._event_log = event_log
        self._publisher: EventPublisher | None = None
        self._inbox = Inbox()
        self._lock = threading.Lock()
        self._promises = Promises()
        self.skill_sets = SkillSets(self._gate, self._promises, self.call, read)
        self._drains = Drains()
        self._made: Future[Loop] = Future()
        self._admitted: set[str] = set()
        self._failures = Failures(log, "the serving loop failed")
        self._work_failures = Failures(log, "work between two steps failed")
        self._dropped = Failures(log, "a message was dropped")
        self._hangs = False
        self.problem = ""
        self._over = threading.Event()
        self._watchdog = ThreadWatchdog(step_timeout_s)
        self._thread = threading.Thread(
            target=self._run, args=(make_loop,), name="engine", daemon=True
        )
        self._thread.start()
        threading.Thread(
            target=self._watchdog.started, args=(self._thread, self._over, self._thread_hangs),
            name="watchdog", daemon=True,
        ).start()  # fmt: skip

    @property
    def running(self) -> bool:
        """Whether the engine's thread has not ended yet."""
        return self._thread.is_alive()

    def wait_ready(self, timeout_s: float | None = None) -> None:
        """Wait until the loop is made.

        Raises:
            Exception: whatever making it raised; the server is then closed.
        """
        self._made.result(timeout_s)

    def ready(self, timeout_s: float = 0.0) -> bool:
        """Wait, at most this time; return whether the loop is made, or cannot be."""
        wait([self._made], timeout_s)
        return self._made.done()

    @property
    def stats(self) -> Stats:
        """Counts and recent times; complete between two pieces of work in the engine's thread."""
        return self._publisher.stats if self._publisher is not None else Stats()

    def call(self, work: Callable[[Loop], T], slow: bool = False) -> Future[T]:
        """Run `work` on the loop between two steps; return its future result.

        Args:
            work: to be done.
            slow: whether it may take as long as many steps.
        """
        future: Future[T] = self._promises.make()

        def run() -> None:
            loop = self._made.result()
            try:
                result = work(loop)
                self._publish(loop)
            except Exception as error:
                settle(future, error=error)
            else:
                settle(future, result)

        try:
            self._inbox.put(InboxItem(run, slow))
        except Rejected as error:
            settle(future, error=error)
        return future

    def post(self, work: Callable[[Loop], object], must: bool = False) -> None:
        """Run `work` on the loop between two steps; a server that stops does not any more.

        What it raises is logged and changes nothing else. It is dropped if too much waits.

        Args:
            work: to be done.
            must: never dropped; for work that is bounded elsewhere.
        """
        try:
            self._inbox.put(InboxItem(lambda: work(self._made.result())), must)
        except Rejected as error:
            if not self._inbox.closed:
                self._dropped.add(error)

    def unregister(self, name: str) -> Future[None]:
        """Forget a skill set that no request uses; the future says why it cannot be."""

        def work(loop: Loop) -> None:
            self._settle(loop)
            loop.unregister(name)
            self.skill_sets.forget(name)

        return self.call(work)

    def submit(self, request: Request, must: bool = False) -> None:
        """Accept a request; its segments or chunks and its result go to the sink.

        With `must`, whatever the limits are: an earlier server had accepted it.

        Raises:
            Rejected: the server does not take it, and why.
        """
        displaced = self._gate.enter(request, must)
        request = self._gate.as_let_in(request)
        if displaced is not None:
            self.post(lambda x: x.cancel(displaced, ErrorCode.QUEUE_FULL, DISPLACED), must=True)
        arrival_s = self._clock.now()
        try:
            self._sink.accepted(request)
            self._inbox.put(InboxItem(lambda: self._admit(request, arrival_s)), must=True)
        except BaseException as error:
            ended = not self._gate.leave(request.request_id)
            if not isinstance(error, Exception):
                raise
            if ended:
                return  # all requests were ended meanwhile
            if isinstance(error, Rejected):
                raise
            reason = f"the request could not be accepted: {in_words(error)}"
            log.debug("%s", reason, exc_info=True)  # its client gets the reason
            raise Rejected(ErrorCode.ENGINE_FAILED, reason) from error

    def accept(self, accepting: bool) -> None:
        """Accept requests from now on, or refuse them; a new server accepts.

        Drains end at once: the requests being served go on.
        """
        self._gate.open(accepting)
        self._drains.let_go()
        with contextlib.suppress(Rejected):
            self._inbox.put(InboxItem(lambda: self._made.result().drain(False)), must=True)

    def drain(self, timeout_s: float) -> Future[None]:
        """Refuse new requests and serve the others as fast as possible, none suspended.

        Args:
            timeout_s: what is left then is ended.

        Returns:
            Done when nothing is served any more.
        """
        self._gate.open(False)
        drained: Future[None] = self._promises.make()
        self._drains.add(self._clock.now() + timeout_s, drained)
        try:
            self._inbox.put(InboxItem(lambda: self._made.result().drain(True)), must=True)
        except Rejected:
            self._drains.let_go()
        return drained

    def report(self, report: ExecutionReport) -> None:
        """Take a robot's word about a segment."""

        def work(loop: Loop) -> None:
            try:
                loop.report(report)
            except RequestError as error:
                log.warning("%s", error)
            except EngineLost:
                raise
            except Exception as error:
                self._work_failures.add(error)
                reason = f"a report could not be taken: {in_words(error)}"
                loop.cancel(report.request_id, ErrorCode.ENGINE_FAILED, reason)

        self.post(work)

    def cancel(
        self,
        request_id: str,
        code: ErrorCode = ErrorCode.CANCELED,
        reason: str = "canceled by a client",
        *,
        unless_begun: bool = False,
    ) -> Future[bool]:
        """End a request before the next step; the future says whether it was there."""
        return self.call(lambda loop: loop.cancel(request_id, code, reason, unless_begun))

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """End all requests, stop the thread, free the engine.

        Returns:
            Whether the thread has ended. All requests have, and all futures are done. A model that
            is being loaded is not waited for.
        """
        self._gate.close()
        self._inbox.close()
        self.skill_sets.close(*self._why)
        loading = not self._made.done()
        self._thread.join(0.0 if self._hangs or loading else timeout_s)
        if self._thread.is_alive():
            if not self._hangs and not loading:
                log.error("the engine did not finish its step within %.0f s", timeout_s)
            self._publish_ends()
        return not self._thread.is_alive()

    # In the engine's thread.

    def _run(self, make_loop: Callable[[], Loop]) -> None:
        try:
            self._live(make_loop)
        except BaseException as error:
            self._died(error)
        finally:
            self._publish_ends()
            self._over.set()

    def _died(self, error: BaseException) -> None:
        """Say that something went wrong for which the thread has no way to go on."""
        log.error("the engine's thread ends", exc_info=error)
        self._fail(f"the engine's thread has ended: {in_words(error)}")

    def _live(self, make_loop: Callable[[], Loop]) -> None:
        try:
            loop = make_loop()
        except BaseException as error:
            self._made.set_exception(error)
            self._gate.close()
            self._inbox.close()
            return
        self._publisher = EventPublisher(loop, self._active_sink, self._event_log)
        self._made.set_result(loop)
        try:
            self._serve(loop)
        except BaseException as error:
            self._died(error)
        self._watchdog.begins()
        try:
            self._end_all(loop, *self._why)
            self._publish_ends()
        finally:
            try:
                loop.close()
            finally:
                self._publisher.close()

    def _publish(self, loop: Loop, more: bool = False) -> None:
        """Publish what happened besides turns.

        Args:
            loop: the loop.
            more: there is more work to do and to publish before the next turn.
        """
        if self._publisher is not None:
            self._publisher.publish(loop.take_events(), more)

    def _serve(self, loop: Loop) -> None:
        """Do what comes, and turn, until the server is closed or cannot serve any more."""
        while not self.problem:
            closing = self._inbox.closed
            for work in self._inbox.take():
                self._watchdog.begins(work.slow)
                self._do(loop, work)
            self._active_sink.written()
            if closing or self.problem:
                return
            self._watchdog.begins(slow=not self.stats.steps)
            turn, pause_s = self._turn(loop)
            wake_s = self._end_drains(loop)
            idle = turn is not None and not turn.stepped and turn.wake_s > self._clock.now()
            registered = self._go_on_registering(loop, idle)
            self._watchdog.idle()
            if pause_s:
                self._inbox.rest(pause_s)
            elif turn is not None and idle and not registered:
                self._inbox.wait(min(turn.wake_s, wake_s) - self._clock.now())

    def _go_on_registering(self, loop: Loop, idle: bool) -> bool:
        """Pre-store a piece of a skill set if it is time for one; return whether one was."""
        if not self.skill_sets.due(idle):
            return False
        self._watchdog.begins(slow=True)
        try:
            self._settle(loop)  # what the steps bring is published before a piece, not after it
            self.skill_sets.go_on()
            self._publish(loop)
        except EngineLost as error:
            self._fail(str(error))
            return False
        return True

    def _settle(self, loop: Loop) -> None:
        """Collect the steps in flight, and publish what each of them completed.

        Raises:
            EngineLost: the engine has ended.
        """
        try:
            while loop.collect():
                self._publish(loop)
        except EngineLost:
            raise
        except Exception as error:
            self._work_failures.add(error)
            self._publish(loop)
            self._end_lost(loop)
        self._publish(loop)

    def _do(self, loop: Loop, work: InboxItem) -> None:
        """Do work of another thread; its failure ends no other work."""
        try:
            work.do()
            self._publish(loop, more=True)
        except EngineLost as error:
            self._fail(str(error))
        except Exception as error:
            self._work_failures.add(error)
            self._publish(loop)
            self._end_lost(loop)

    def _turn(self, loop: Loop) -> tuple[Turn | None, float]:
        """Turn the loop; if it breaks, end what it serves and go on, but not for ever.

        Returns:
            What the turn did, and the seconds to pause, more of them the more has failed.
        """
        turn = None
        steps, failed = self.stats.steps, self._failures.row + loop.failures.row
        try:
            turn = loop.turn()
            if turn.events and self._publisher is not None:
                self._publisher.publish(turn.events)
        except EngineLost as error:
            self._fail(str(error))
            return None, 0.0
        except Exception as error:
            self._failures.add(error)
            reason = f"the server failed: {in_words(error)}"
            self._end_all(loop, ErrorCode.ENGINE_FAILED, reason)
            self._end_lost(loop)
        else:
            if self.stats.steps > steps:
                self._failures.over()
        for failures, what in ((self._failures, "the serving loop"), (loop.failures, "the engine")):
            if failures.row >= MOST_FAILURES:
                self._fail(f"{what} failed {failures.row} times in a row: {failures.last}")
        if self._failures.row + loop.failures.row <= max(failed, 1):
            return turn, 0.0
        return turn, max(self._failures.pause_s, loop.failures.pause_s)

    def _end_drains(self, loop: Loop) -> float:
        """End the drains that are due or done; return when to look again at the latest."""
        end_s = self._drains.end_s
        if end_s <= self._clock.now():
            self._end_all(loop, ErrorCode.SHUTTING_DOWN, "the server stops serving")
        if end_s < math.inf and not len(self._gate):
            self._drains.let_go()
            return math.inf
        return end_s

    def _admit(self, request: Request, arrival_s: float) -> None:
        """Admit a request; whatever goes wrong, its client hears of it."""
        if request.request_id not in self._gate:
            return
        self._admitted.add(request.request_id)
        try:
            self._made.result().admit(request, arrival_s)
            self._gate.waits(request.request_id)
        except EngineLost as error:
            self._active_sink.ended(request.refused(ErrorCode.ENGINE_FAILED, str(error)))
            raise
        except RequestError as error:
            code = error.code if isinstance(error, Rejected) else ErrorCode.INVALID_REQUEST
            self._active_sink.ended(request.refused(code, str(error)))
        except Exception as error:
            self._work_failures.add(error)
            reason = f"the request could not be admitted: {in_words(error)}"
            if not self._made.result().cancel(request.request_id, ErrorCode.ENGINE_FAILED, reason):
                self._active_sink.ended(request.refused(ErrorCode.ENGINE_FAILED, reason))

    def _end_all(self, loop: Loop, code: ErrorCode, reason: str) -> None:
        for generation in loop.generations:
            try:
                loop.cancel(generation.key, code, reason)
                self._publish(loop)
            except BaseException:  # the others have an end too
                log.exception("request %s did not end cleanly", quoted(generation.key))
        self._publish(loop)

    def _end_lost(self, loop: Loop) -> None:
        """End the requests that were admitted and that the loop has lost by a failure."""
        served = {generation.key for generation in loop.generations}
        requests = {request.request_id: request for request in self._gate.requests}
        self._admitted &= requests.keys()
        for key in self._admitted - served:
            reason = f"the server failed: {self._failures.last or self._work_failures.last}"
            self._active_sink.ended(requests[key].refused(ErrorCode.ENGINE_FAILED, reason))

    # In any thread.

    def _thread_hangs(self, overdue_s: float) -> None:
        """End the server because its engine's thread hangs or is gone."""
        if not overdue_s:
            self._fail("the engine's thread has ended without a word")
            return
        self._hangs = True
        log.error("the engine's thread hangs:\n%s", stack_of(self._thread))
        self._fail(
            f"the engine hangs: a step or a call has taken {overdue_s:.0f} s, longer than"
            " step_timeout_s allows"
        )
        self._publish_ends()

    def _fail(self, problem: str) -> None:
        """Serve nothing any more."""
        with self._lock:
            self.problem = self.problem or problem
        self._gate.close(ErrorCode.ENGINE_FAILED, self.problem)
        self._inbox.close(ErrorCode.ENGINE_FAILED, self.problem)

    @property
    def _why(self) -> tuple[ErrorCode, str]:
        """How requests end that cannot be served any more."""
        if self.problem:
            return ErrorCode.ENGINE_FAILED, self.problem
        return ErrorCode.SHUTTING_DOWN, "the server stops"

    def _publish_ends(self) -> None:
        """End all requests and futures, so that nothing waits for the engine's thread."""
        for request in self._gate.requests:
            try:
                self._active_sink.ended(request.refused(*self._why))
            except BaseException:  # the others have an end too
                log.exception("request %s did not end cleanly", quoted(request.request_id))
        self._active_sink.written()
        self._drains.let_go()
        self._promises.break_all(Rejected(*self._why))
