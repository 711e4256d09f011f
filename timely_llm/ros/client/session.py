"""A client of a plan server: its thread, finding the server, and signs of life.

All calls of ROS happen in one thread and one context of the client's own. So your code may block,
use several threads, and be an rclpy application itself.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from timely_llm import srv
from timely_llm.core.arguments import kind, number, seconds, text, whole
from timely_llm.core.errors import ConfigurationError, RequestError, TimelyError
from timely_llm.core.request import (
    MAX_TOKENS,
    ExecutionReport,
    ReportState,
    RequestMode,
    check_name,
    check_text,
)
from timely_llm.core.text import listed, quoted
from timely_llm.identity.signature import signer_of
from timely_llm.robots.client.pending import (
    AnyResult,
    Pending,
    PlanClientError,
    PlanTimeout,
    ServerLost,
)
from timely_llm.robots.client.taking_up import TakingUp
from timely_llm.ros import conversions
from timely_llm.ros.client.node import RequestNode
from timely_llm.ros.client.server_watch import ANSWER_S, MOST_QUESTIONS, not_found
from timely_llm.ros.client.taking_up import WatchedServer

T = TypeVar("T")
AnyNode = TypeVar("AnyNode", bound=RequestNode[Any])
AnyTask = TypeVar("AnyTask", bound=Pending[Any])
POLL_S = 0.05
AGAIN_S = 0.2
SPIN_S = 0.2
CLOSE_S = 2.0
SEEDS = 2**32
SHORTEST_PERIOD_S = 0.01
MAX_DOMAIN = 232


class ServerClient(Generic[AnyNode, AnyTask, AnyResult]):
    """Sends requests of one agent to one plan server.

    Args:
        agent: name of the robot or person.
        server: name of the server's node.
        namespace: of the server.
        alive_period_s: period of the signs of life while requests are open, seconds.
        find_s: longest wait for the server, seconds: of the first request, and of the first one
            after the server was lost.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        use_sim_time: the agent's time is that of /clock.
        key_file: file with the agent's key, which signs what this client sends; what its server
            did not sign is dropped. None: nothing is signed.
        accept_unsigned: with a key, take what a server without `agent_keys`, or a dispatcher, sends
            too: any node can send in its name.
        recovery_s: longest pause of a request while its server is gone, seconds, if that one has
            a recovery journal or is a dispatcher; 0: the request ends with `ServerLost`.

    Attributes:
        NODE: class of the node.
        KIND: kind of its requests, as in RequestStatus.msg.
        RESULT: class of their results.
        TAKING_UP: class of what goes on with them at the next server.
        agent: name of the robot or person.

    Raises:
        PlanClientError: ROS cannot use these names, the agent's name is no line of text, or the key
            cannot be used.
    """

    NODE: ClassVar[type[Any]]
    KIND: ClassVar[int]
    RESULT: ClassVar[type[Any]]
    TAKING_UP: ClassVar[type[TakingUp[Any]]] = TakingUp

    def __init__(
        self,
        agent: str,
        server: str = "plan_server",
        namespace: str = "",
        *,
        alive_period_s: float = 1.0,
        find_s: float = 10.0,
        domain: int | None = None,
        use_sim_time: bool = False,
        key_file: str | Path | None = None,
        accept_unsigned: bool = False,
        recovery_s: float = 30.0,
    ) -> None:
        try:
            check_name("agent", agent)
            check_name("server", server)
            check_text("namespace", namespace)
            self._alive_period_s = seconds("alive_period_s", alive_period_s, SHORTEST_PERIOD_S)
            self._find_s = seconds("find_s", find_s)
            recovery_s = seconds("recovery_s", recovery_s)
            self._use_sim_time = kind("use_sim_time", use_sim_time, bool)
            kind("accept_unsigned", accept_unsigned, bool)
            if domain is not None:
                domain = whole("domain", domain, 0, MAX_DOMAIN)
        except RequestError as error:
            raise PlanClientError(str(error)) from error
        self.agent = agent
        self._alive_s = 0.0
        self._closing = False
        self._losses = 0
        self._loss = ""
        self._lock = threading.Lock()
        self._tasks: dict[str, AnyTask] = {}
        try:
            signer = None if key_file is None else signer_of(agent, Path(key_file))
            self._node: AnyNode = self.NODE(
                server, namespace, domain, self._tasks.get, use_sim_time, signer, accept_unsigned
            )
        except ConfigurationError as error:
            raise PlanClientError(str(error)) from error
        self._taking_up = self.TAKING_UP(WatchedServer(self._node), self.RESULT, recovery_s)
        self._thread = threading.Thread(target=self._run, name="plan client", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def dropped(self) -> int:
        """Messages that were dropped because the server did not sign them, count."""
        return self._node.check.dropped

    def wait_for_server(self, timeout_s: float = 10.0) -> None:
        """Wait until the server and this client can reach each other.

        A request waits itself: the first one, and each one after a server was lost.

        Raises:
            PlanTimeout: the server is not there in time.
            PlanClientError: its interface differs from this client's, the client is closed, or the
                time is no number of seconds.
        """
        limit_s = seconds("timeout_s", timeout_s, error=PlanClientError)
        problem = self._ask(self._node.ping, limit_s, again=True)
        if problem:
            raise PlanClientError(problem)

    def close(self) -> None:
        """Cancel all open requests and end the client's thread; all waits end."""
        with self._lock:
            first, self._closing = not self._closing, True
            tasks = [task for task in self._tasks.values() if not task.done]
        if first:
            for task in tasks:
                task.ask_to_cancel()
            end_s = time.monotonic() + CLOSE_S
            for task in tasks:
                with contextlib.suppress(PlanClientError):
                    task.await_result(max(end_s - time.monotonic(), 0.0))
            self._do(self._node.stop)
            atexit.unregister(self.close)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)

    def result_of(self, request_id: str, timeout_s: float = 60.0) -> AnyResult:
        """Return how an earlier request ended, also a request of another client.

        If the request is still served, the call waits for its end. The server keeps results for a
        while (parameter `result_timeout_s`). It keeps none of requests that it refused.

        Args:
            request_id: the request's.
            timeout_s: longest wait for its end.

        Raises:
            PlanTimeout: there is no server, or the request did not end in time.
            PlanClientError: the server knows no such request, or has forgotten it.
        """
        timeout_s = seconds("timeout_s", timeout_s, error=PlanClientError)
        check_name("request_id", request_id)
        end_s = time.monotonic() + timeout_s
        self._need_server(timeout_s)
        losses = self._losses
        while (left_s := end_s - time.monotonic()) > 0:
            answered: Future[srv.GetResult.Response] = Future()
            ask = partial(self._node.ask_result, request_id, answered.set_result)
            with contextlib.suppress(TimeoutError):
                if self._do(ask).result(left_s):
                    response = answered.result(min(left_s, ANSWER_S))
                    result = conversions.result_in(response)
                    if isinstance(result, self.RESULT):
                        return cast(AnyResult, result)
                    if response.state != srv.GetResult.Response.SERVED:
                        raise PlanClientError(
                            f"the server does not know how the request {quoted(request_id)} ended:"
                            " there was none, or it is forgotten"
                        )
            self._check_loss(losses)
            time.sleep(min(AGAIN_S, max(end_s - time.monotonic(), 0.0)))
        raise PlanTimeout(f"request {quoted(request_id)} did not end within {timeout_s:g} s")

    def running(self) -> tuple[str, ...]:
        """Return the ids of the requests of this agent and kind that the server serves.

        Raises:
            PlanTimeout: there is no server, or it does not answer in time.
        """
        self._need_server()
        answer = self._ask(self._node.ask_running)
        return tuple(
            status.request_id
            for status in answer.requests
            if (status.agent, status.kind) == (self.agent, self.KIND)
        )

    def report(self, report: ExecutionReport) -> None:
        """Send a robot's report to the server; the next server gets it again."""
        kind("the report", report, ExecutionReport)
        self._do(lambda: self._taking_up.report(report))

    def cancel(self, request_id: str) -> None:
        """Ask the server to end a request."""
        check_name("request_id", request_id)
        self._do(lambda: self._node.cancel(request_id))

    def _need_server(self, timeout_s: float = math.inf) -> None:
        """Wait for the server, the first time and when it was lost."""
        if not self._node.watch.fits:
            self.wait_for_server(min(self._find_s, timeout_s))

    def _check_loss(self, losses: int) -> None:
        """Check that the server was not lost again since the loss of this number.

        Raises:
            ServerLost: it was lost.
        """
        if self._losses != losses:
            raise ServerLost(self._loss)

    def _ask(
        self,
        ask: Callable[[Future[Any]], bool],
        timeout_s: float | None = None,
        again: bool = False,
    ) -> Any:
        """Ask until the server answers, and return the answer: discovery may lose a question.

        Args:
            ask: asks in the client's thread, and sets the answer; returns false while there is no
                server.
            timeout_s: None: as long as the first request waits for the server.
            again: after a loss, ask the next server.

        Raises:
            PlanTimeout: the server does not answer in time.
            ServerLost: the server was lost meanwhile.
            PlanClientError: the client is closed.
        """
        losses = self._losses
        asked: deque[Future[Any]] = deque(maxlen=MOST_QUESTIONS)
        limit_s = self._find_s if timeout_s is None else timeout_s
        end_s = time.monotonic() + limit_s
        while (left_s := end_s - time.monotonic()) > 0:
            if self._closing:
                raise PlanClientError("the client is closed")
            if not again:
                self._check_loss(losses)
            with contextlib.suppress(TimeoutError):
                answered: Future[Any] = Future()
                if self._do(partial(ask, answered)).result(left_s):
                    # A busy server may take longer to answer than it takes to ask again.
                    asked.append(answered)
                    first = wait(asked, min(left_s, ANSWER_S), FIRST_COMPLETED).done
                    if first:
                        return first.pop().result()
            time.sleep(min(POLL_S, max(end_s - time.monotonic(), 0.0)))
        raise PlanTimeout(not_found(self._node.server, limit_s))

    def _open(self, task: AnyTask, send: Callable[[], None]) -> AnyTask:
        """Wait for the server if need be, and send a request; return its task.

        Raises:
            PlanTimeout: there is no server.
            PlanClientError: a request of this id is open, the client is closed, or the server has
                another interface.
        """
        self._need_server()
        with self._lock:
            if self._closing:
                raise PlanClientError("the client is closed")
            other = self._tasks.get(task.request_id)
            if other is not None and not other.done:
                raise PlanClientError(f"a request {quoted(task.request_id)} is open already")
            self._tasks[task.request_id] = task
        try:
            while not self._do(partial(self._send_to_known, send)).result(self._find_s):
                self._need_server()
        except TimelyError as error:
            task.close(str(error))
            raise
        except Exception as error:  # a text that is no Unicode, for example
            task.close(f"the request cannot be sent: {error}")
            raise PlanClientError(f"the request cannot be sent: {error}") from error
        return task

    def _send_to_known(self, send: Callable[[], None]) -> bool:
        """Send a request unless the server is lost or was replaced; return whether it is sent."""
        known = self._node.watch.fits
        if known:
            send()
        return known

    # The client's thread. No other thread calls rclpy: its action client may lose the answer to a
    # goal that another thread sends.

    def _do(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

        self._node.post(run)
        return future

    def _run(self) -> None:
        ending = "the client is closed"
        try:
            while not self._node.stopped:
                self._prune_and_send_heartbeats()
                self._check_liveness()
                self._node.spin(min(SPIN_S, self._alive_period_s))
        except Exception as error:
            ending = f"the client failed: {type(error).__name__}: {error}"
        finally:
            self._closing = True
            self._node.close()
            for task in list(self._tasks.values()):
                task.close(ending)

    def _prune_and_send_heartbeats(self) -> None:
        with self._lock:
            for request_id in [i for i, task in self._tasks.items() if task.done]:
                del self._tasks[request_id]
            open_now = "\n".join(self._tasks)
        now = time.monotonic()
        if open_now and now >= self._alive_s + self._alive_period_s:
            self._alive_s = now
            self._node.report(ExecutionReport("", self.agent, ReportState.ALIVE, value=open_now))

    def _check_liveness(self) -> None:
        if self._node.renewed() and self._node.watch.resumes:
            reason = f"the server {self._node.server} was started anew and does not answer"
            self._taking_up.keep(list(self._tasks.values()), reason)
        lost = self._node.tick()
        if lost:
            self._loss = lost
            self._losses += 1
            self._taking_up.keep(list(self._tasks.values()), lost)
        self._taking_up.tick(list(self._tasks))


def check_sampling(max_tokens: int, temperature: float, seed: int) -> tuple[int, float, int]:
    """Return the parameters of sampling as a message can carry them.

    Raises:
        RequestError: one is out of its range.
    """
    return (
        whole("max_tokens", max_tokens, 0, MAX_TOKENS),
        number("temperature", temperature, 0, 2),
        whole("seed", seed, 0, SEEDS - 1),
    )


def check_mode(mode: str) -> RequestMode:
    """Return the mode of a name: direct, progressive or auto.

    Raises:
        RequestError: it is none of them.
    """
    names = {one.name.lower(): one for one in RequestMode}
    if text("mode", mode) not in names:
        raise RequestError(f"mode must be one of {listed(list(names))}, not {quoted(mode)}")
    return names[mode]
