r"""Plans for your robot in plain Python: ask, iterate over segments, report.

    with PlanClient("drone_1") as client:
        task = client.submit("Scene: [chair]\nTask: [A] Find the cat.")
        for segment in task.segments():
            task.started(segment)
            fly(segment.calls)
            task.finished(segment)

Everything that touches ROS happens in one thread of the client's own, with a context of its own:
your code may block, use several threads, and be an rclpy application itself.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import TypeVar

from timely_llm.core.errors import RequestError
from timely_llm.core.request import ExecutionReport, PlanRequest, ReportState
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.ros.client_node import ClientNode
from timely_llm.ros.plan_task import PlanClientError, PlanTask, PlanTimeout
from timely_llm.ros.rcl_errors import reason

__all__ = ["PlanClient", "PlanClientError", "PlanTask", "PlanTimeout"]
T = TypeVar("T")
POLL_S = 0.05
SPIN_S = 0.2
CLOSE_S = 2.0
SEEDS = 2**32
ANSWER_S = 0.5
"""A server that is just being discovered may lose a question: ask again after so long."""


class PlanClient:
    """Asks one plan server for plans, for one robot.

    Args:
        agent: the robot's name.
        skill_set: name of the registered skill set that says what it can do.
        server: name of the server's node.
        namespace: of the server.
        alive_period_s: while requests are open, the server hears that often that the robot lives.
        find_s: how long `submit` waits for the server the first time.
        domain: ROS domain; None: ROS_DOMAIN_ID.

    Raises:
        PlanClientError: ROS cannot be used with these names.
    """

    def __init__(
        self,
        agent: str,
        skill_set: str = "drone",
        server: str = "plan_server",
        namespace: str = "",
        *,
        alive_period_s: float = 1.0,
        find_s: float = 10.0,
        domain: int | None = None,
    ) -> None:
        self.agent = agent
        self._skill_set = skill_set
        self._alive_period_s, self._alive_s = alive_period_s, 0.0
        self._find_s = find_s
        self._found = self._closing = False
        self._lock = threading.Lock()
        self._tasks: dict[str, PlanTask] = {}
        try:
            self._node = ClientNode(server, namespace, domain, self._tasks.get)
        except Exception as error:  # rclpy has a different one for each way to be wrong
            raise PlanClientError(f"cannot make a client of {server!r}: {reason(error)}") from error
        self._thread = threading.Thread(target=self._run, name="plan client", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def __enter__(self) -> PlanClient:
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
        end_s = time.monotonic() + timeout_s
        while (left_s := end_s - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                answered: Future[None] = Future()
                if self._do(partial(self._node.ping, answered)).result(left_s):
                    answered.result(min(left_s, ANSWER_S))
                    self._found = True
                    return
            time.sleep(min(POLL_S, max(end_s - time.monotonic(), 0.0)))
        raise PlanTimeout(
            f"no plan server {self._node.server} answered within {timeout_s:g} s: is it running, "
            "in the same ROS_DOMAIN_ID?"
        )

    def submit(
        self,
        task: str,
        time_utility: TimeUtility = NORMAL,
        *,
        max_tokens: int = 0,
        temperature: float = 0.0,
        seed: int = 0,
        request_id: str = "",
        closed_loop: bool = True,
    ) -> PlanTask:
        """Ask for a plan and return at once; a refusal comes with its segments or its result.

        Args:
            task: what to do, and what the robot sees.
            time_utility: worth of the first segment over time.
            max_tokens: most tokens of the plan; 0: the server's default.
            temperature: 0: always the most likely token; up to 2.
            seed: with a temperature, the same seed gives the same plan.
            request_id: unique; empty: one is made.
            closed_loop: you report what is executed, and the request ends with that: the failure
                of any segment, also of the last one, leads to a new plan.

        Raises:
            RequestError: a field is empty, too large or not a sane number.
            PlanTimeout: there is no server.
            PlanClientError: a request of this id is open, or the client is closed.
        """
        if not 0 <= seed < SEEDS:
            raise RequestError(f"seed must be 0 to {SEEDS - 1}, not {seed}")
        request = PlanRequest(
            request_id or uuid.uuid4().hex, self.agent, self._skill_set, task, time_utility,
            max_tokens or 1, temperature, seed, closed_loop,
        )  # fmt: skip
        if not self._found:
            self.wait_for_server(self._find_s)
        made = PlanTask(request.request_id, self.agent, self)
        with self._lock:
            if self._closing:
                raise PlanClientError("the client is closed")
            if request.request_id in self._tasks:
                raise PlanClientError(f"a request {request.request_id!r} is open already")
            self._tasks[request.request_id] = made
        try:
            self._do(lambda: self._node.send(request, max_tokens, made)).result(self._find_s)
        except Exception as error:  # a text that is no Unicode, for example
            made.close(f"the request cannot be sent: {error}")
            raise PlanClientError(f"the request cannot be sent: {error}") from error
        return made

    def close(self) -> None:
        """Cancel what is open and end the client's thread; nobody waits any more after that."""
        with self._lock:
            first, self._closing = not self._closing, True
            tasks = [task for task in self._tasks.values() if not task.done]
        if first:
            for task in tasks:
                self.cancel(task.request_id)
            end_s = time.monotonic() + CLOSE_S
            for task in tasks:
                with contextlib.suppress(PlanClientError):
                    task.result(max(end_s - time.monotonic(), 0.0))
            self._do(self._node.stop)
            atexit.unregister(self.close)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)

    # What tasks ask.

    def report(self, report: ExecutionReport) -> None:
        """Send a robot's word to the server."""
        self._do(lambda: self._node.report(report))

    def cancel(self, request_id: str) -> None:
        """Ask the server to end a request."""
        self._do(lambda: self._node.cancel(request_id))

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
        now = time.monotonic()
        if open_now and now >= self._alive_s + self._alive_period_s:
            self._alive_s = now
            self._node.report(ExecutionReport("", self.agent, ReportState.ALIVE))
