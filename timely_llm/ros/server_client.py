"""A client of a plan server: its thread, finding the server, and signs of life.

Everything that touches ROS happens in one thread of the client's own, with a context of its own:
your code may block, use several threads, and be an rclpy application itself.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from timely_llm import srv
from timely_llm.core.echo import quoted
from timely_llm.core.errors import RequestError
from timely_llm.core.request import ExecutionReport, ReportState, Result, check_name
from timely_llm.ros import kept_results
from timely_llm.ros.asking_node import ANSWER_S, AskingNode, not_found
from timely_llm.ros.pending import Pending, PlanClientError, PlanTimeout
from timely_llm.ros.rcl_errors import reason

T = TypeVar("T")
R = TypeVar("R", bound=Result)
AnyNode = TypeVar("AnyNode", bound=AskingNode[Any])
Task = TypeVar("Task", bound=Pending[Any])
POLL_S = 0.05
AGAIN_S = 0.2
SPIN_S = 0.2
CLOSE_S = 2.0
SEEDS = 2**32


class ServerClient(Generic[AnyNode, Task]):
    """Asks one plan server, for one agent.

    Args:
        agent: who asks.
        server: name of the server's node.
        namespace: of the server.
        alive_period_s: while requests are open, the server hears that often that the agent lives.
        find_s: how long the first request waits for the server.
        domain: ROS domain; None: ROS_DOMAIN_ID.

    Attributes:
        NODE: class of the node.
        agent: who asks.

    Raises:
        PlanClientError: ROS cannot be used with these names, or the agent's is no line of text.
    """

    NODE: ClassVar[type[Any]]

    def __init__(
        self,
        agent: str,
        server: str = "plan_server",
        namespace: str = "",
        *,
        alive_period_s: float = 1.0,
        find_s: float = 10.0,
        domain: int | None = None,
    ) -> None:
        try:
            check_name("agent", agent)
        except RequestError as error:
            raise PlanClientError(str(error)) from error
        self.agent = agent
        self._alive_period_s, self._alive_s = alive_period_s, 0.0
        self._find_s = find_s
        self._found = self._closing = False
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        try:
            self._node: AnyNode = self.NODE(server, namespace, domain, self._tasks.get)
        except Exception as error:  # rclpy has a different one for each way to be wrong
            raise PlanClientError(
                f"cannot make a client of {quoted(server)}: {reason(error)}"
            ) from error
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

    def wait_for_server(self, timeout_s: float = 10.0) -> None:
        """Wait until the server is there, and what it sends reaches this client.

        Raises:
            PlanTimeout: it is not there in time.
        """
        self._ask(self._node.ping, timeout_s)
        self._found = True

    def close(self) -> None:
        """Cancel what is open and end the client's thread; nobody waits any more after that."""
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

    def _result_of(self, request_id: str, kind: type[R], timeout_s: float) -> R:
        """Wait for the end of a request, also of one that another client made; see `result_of`."""
        end_s = time.monotonic() + timeout_s
        if not self._found:
            self.wait_for_server(min(self._find_s, timeout_s))
        while (left_s := end_s - time.monotonic()) > 0:
            answered: Future[srv.GetResult.Response] = Future()
            ask = partial(self._node.ask_result, request_id, answered.set_result)
            with contextlib.suppress(TimeoutError):
                if self._do(ask).result(left_s):
                    response = answered.result(min(left_s, ANSWER_S))
                    result = kept_results.result_in(response)
                    if isinstance(result, kind):
                        return result
                    if response.state != srv.GetResult.Response.SERVED:
                        raise PlanClientError(
                            f"the server does not know how the request {quoted(request_id)} ended:"
                            " there was none, or it is forgotten"
                        )
            time.sleep(min(AGAIN_S, max(end_s - time.monotonic(), 0.0)))
        raise PlanTimeout(f"request {quoted(request_id)} did not end within {timeout_s:g} s")

    def report(self, report: ExecutionReport) -> None:
        """Send a robot's word to the server."""
        self._do(lambda: self._node.report(report))

    def cancel(self, request_id: str) -> None:
        """Ask the server to end a request."""
        self._do(lambda: self._node.cancel(request_id))

    def _need_server(self) -> None:
        """Wait for the server, the first time."""
        if not self._found:
            self.wait_for_server(self._find_s)

    def _ask(self, ask: Callable[[Future[Any]], bool], timeout_s: float | None = None) -> Any:
        """Return what the server answers; a server being discovered may lose a question.

        Args:
            ask: asks, in the client's thread, and sets the answer; false: nobody is there yet.
            timeout_s: None: as long as the first request waits for the server.

        Raises:
            PlanTimeout: it does not answer in time.
            PlanClientError: the client is closed.
        """
        limit_s = self._find_s if timeout_s is None else timeout_s
        end_s = time.monotonic() + limit_s
        while (left_s := end_s - time.monotonic()) > 0:
            if self._closing:
                raise PlanClientError("the client is closed")
            with contextlib.suppress(TimeoutError):
                answered: Future[Any] = Future()
                if self._do(partial(ask, answered)).result(left_s):
                    return answered.result(min(left_s, ANSWER_S))
            time.sleep(min(POLL_S, max(end_s - time.monotonic(), 0.0)))
        raise PlanTimeout(not_found(self._node.server, limit_s))

    def _open(self, task: Task, send: Callable[[], None]) -> Task:
        """Wait for the server if need be, and send a request; return its task.

        Raises:
            PlanTimeout: there is no server.
            PlanClientError: a request of this id is open, or the client is closed.
        """
        if not self._found:
            self.wait_for_server(self._find_s)
        with self._lock:
            if self._closing:
                raise PlanClientError("the client is closed")
            if task.request_id in self._tasks:
                raise PlanClientError(f"a request {quoted(task.request_id)} is open already")
            self._tasks[task.request_id] = task
        try:
            self._do(send).result(self._find_s)
        except Exception as error:  # a text that is no Unicode, for example
            task.close(f"the request cannot be sent: {error}")
            raise PlanClientError(f"the request cannot be sent: {error}") from error
        return task

    # The client's thread. Nothing of rclpy is called elsewhere: its action client may lose the
    # answer to a goal that another thread sends.

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
                self._forget_and_say_alive()
                self._node.spin(min(SPIN_S, self._alive_period_s))
        except Exception as error:
            ending = f"the client failed: {type(error).__name__}: {error}"
        finally:
            self._closing = True
            self._node.close()
            for task in list(self._tasks.values()):
                task.close(ending)

    def _forget_and_say_alive(self) -> None:
        with self._lock:
            for request_id in [i for i, task in self._tasks.items() if task.done]:
                del self._tasks[request_id]
            open_now = bool(self._tasks)
        if open_now:
            self._node.ask_missed()
        now = time.monotonic()
        if open_now and now >= self._alive_s + self._alive_period_s:
            self._alive_s = now
            self._node.report(ExecutionReport("", self.agent, ReportState.ALIVE))


def check_seed(seed: int) -> None:
    """Find out whether a message can carry a seed.

    Raises:
        RequestError: it cannot.
    """
    if not 0 <= seed < SEEDS:
        raise RequestError(f"seed must be 0 to {SEEDS - 1}, not {seed}")
