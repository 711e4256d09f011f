"""A node that asks one plan server; used by one thread only, except for `post`."""

from __future__ import annotations

import contextlib
import math
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import rclpy
from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient
from rclpy.context import Context
from rclpy.exceptions import InvalidHandle
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from timely_llm import msg, srv
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import ErrorCode, ExecutionReport, Request
from timely_llm.ros import conversions, kept_results, qos
from timely_llm.ros.guarded import Guarded

POLL_S = 0.1
ANSWER_S = 0.5
"""A server that is just being discovered may lose a question: ask again after so long."""
MISSED_S = 5.0
"""How often a client asks whether a request has ended whose end did not reach it."""
Piece = TypeVar("Piece", contravariant=True)
AnyTaker = TypeVar("AnyTaker", bound="Taker[Any]")


class Taker(Protocol[Piece]):
    """Who waits for what comes of a request: its pieces, each maybe twice, and its result."""

    @property
    def agent(self) -> str:
        """Who asked."""
        ...

    def offer(self, piece: Piece) -> None:
        """Take a piece."""
        ...

    def finish(self, result: Any) -> None:
        """Take the result."""
        ...


class AskingNode(ABC, Generic[AnyTaker]):
    """A node in a context of its own, with one action of a server, reports and one service.

    Args:
        server: name of the server's node.
        namespace: of the server.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        taker_of: finds who waits for an open request, by its id.

    Attributes:
        ACTION, NAME: the action, its type and its name.
        server: full name of the server's node.
    """

    ACTION: ClassVar[Any]
    NAME: ClassVar[str]

    def __init__(
        self,
        server: str,
        namespace: str,
        domain: int | None,
        taker_of: Callable[[str], AnyTaker | None],
    ) -> None:
        self._taker_of = taker_of
        self._handles: dict[str, Any] = {}
        self._to_cancel: set[str] = set()
        self._questions: list[Any] = []  # about results, of which some may never be answered
        self._asked_s = time.monotonic()
        self.stopped = False
        self._context = Context()
        # No arguments: those of the program are for the program's own nodes.
        rclpy.init(
            args=[], context=self._context, domain_id=domain,
            signal_handler_options=SignalHandlerOptions.NO,
        )  # fmt: skip
        try:
            self._make(server, namespace)
        except BaseException:
            self._context.try_shutdown()
            raise

    @abstractmethod
    def _listen(self, server: str) -> None:
        """Subscribe to what comes of requests."""

    def _make(self, server: str, namespace: str) -> None:
        self._node = Guarded(
            f"{self.NAME}_client_{uuid.uuid4().hex[:12]}", context=self._context,
            namespace=namespace, enable_rosout=False, start_parameter_services=False,
        )  # fmt: skip
        self.server = self._node.resolve_service_name(server)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._action: ActionClient[Any, Any, Any] = ActionClient(
            self._node, self.ACTION, self.NAME, **qos.of_action("sub")
        )
        self._reports = self._node.create_publisher(
            msg.ExecutionReport, f"{server}/execution_reports", qos.reliable()
        )
        self._listen(server)
        self._results: Any = self._node.create_client(srv.GetResult, f"{server}/get_result")
        # Made last: readers become known in order, so whoever answers this one knows the others.
        self._list: Any = self._node.create_client(srv.ListRequests, f"{server}/list_requests")

    def post(self, work: Callable[[], None]) -> None:
        """Let `spin` do work; from any thread."""
        with contextlib.suppress(InvalidHandle):  # it has just been closed
            self._executor.create_task(work)

    def spin(self, timeout_s: float) -> None:
        """Take what has come, or wait for it."""
        self._executor.spin_once(timeout_sec=timeout_s)

    def stop(self) -> None:
        """Spin no more."""
        self.stopped = True

    def close(self) -> None:
        """Leave ROS."""
        self.stopped = True
        self._executor.shutdown(timeout_sec=0)
        self._node.destroy_node()
        self._context.try_shutdown()

    @property
    def server_is_there(self) -> bool:
        """Whether the server can be asked."""
        return self._action.server_is_ready() and self._list.service_is_ready()

    def find(self, timeout_s: float, go_on: Callable[[], bool] = lambda: True) -> None:
        """Wait until the server answers, and what both say reaches the other.

        Raises:
            ConfigurationError: it does not in time.
        """
        answers: list[Future[None]] = []
        end_s, ask_s = time.monotonic() + timeout_s, -math.inf
        while not any(answer.done() for answer in answers) and go_on():
            now = time.monotonic()
            if now >= end_s:
                raise ConfigurationError(not_found(self.server, timeout_s))
            if now >= ask_s:
                answers.append(Future())
                if self.ping(answers[-1]):
                    ask_s = now + ANSWER_S
            self.spin(min(POLL_S, end_s - now))

    def ping(self, answered: Future[None]) -> bool:
        """Ask the server for a sign; return whether it is there to be asked."""
        if not self.server_is_there:
            return False
        sent = self._list.call_async(srv.ListRequests.Request())
        sent.add_done_callback(lambda _: answered.set_result(None))
        return True

    def report(self, report: ExecutionReport) -> None:
        """Publish a robot's word."""
        self._reports.publish(conversions.report_message(report))

    def ask_result(
        self, request_id: str, answered: Callable[[srv.GetResult.Response], None]
    ) -> bool:
        """Ask how a request ended; return whether the server is there to be asked."""
        if not self._results.service_is_ready():
            return False
        asked = self._results.call_async(srv.GetResult.Request(request_id=request_id))
        self._questions.append(asked)
        asked.add_done_callback(lambda future: answered(future.result()))
        return True

    def ask_missed(self) -> None:
        """From time to time, ask for the ends of goals: a network may have lost one."""
        now = time.monotonic()
        if now < self._asked_s + MISSED_S:
            return
        self._asked_s = now
        for question in self._questions:
            if not question.done():
                self._results.remove_pending_request(question)
        self._questions.clear()
        for request_id in list(self._handles):
            self.ask_result(request_id, self._take_missed)

    def _take_missed(self, response: srv.GetResult.Response) -> None:
        result = kept_results.result_in(response)
        taker = None if result is None else self._taker_of(result.request_id)
        if result is not None and taker is not None and taker.agent == result.agent:
            self._handles.pop(result.request_id, None)
            taker.finish(result)

    def cancel(self, request_id: str) -> None:
        """Cancel a goal, now or as soon as it is accepted."""
        if request_id in self._handles:
            self._handles[request_id].cancel_goal_async()
        else:
            self._to_cancel.add(request_id)

    def _hear(
        self,
        kind: Any,
        topic: str,
        taker_of: Callable[[str], Taker[Any] | None],
        take: Callable[[Any, Any], None],
        depth: int = qos.QUEUE,
    ) -> None:
        """Hear what the server says of all requests; who waits for one is given what is theirs.

        A content filter would be worked out by the server, for each message and each reader.
        """

        def on_message(message: Any) -> None:
            taker = taker_of(message.request_id)
            if taker is not None and taker.agent == message.agent:
                take(taker, message)

        self._node.create_subscription(kind, topic, on_message, qos.reliable(depth))

    def _ask(
        self,
        goal: Any,
        request: Request,
        task: Taker[Any],
        result_of: Callable[[Any, str], Any],
        on_feedback: Callable[[Any], None] | None = None,
    ) -> None:
        """Send a goal; its result goes to the task.

        Args:
            goal: the message.
            request: the same.
            task: who waits.
            result_of: returns the result in a message, given the agent.
            on_feedback: takes its feedback.
        """
        request_id = request.request_id
        sent = self._action.send_goal_async(goal, on_feedback)

        def on_answer(future: Any) -> None:
            handle = future.result()
            if not handle.accepted:
                reason = "the server did not accept the goal"
                task.finish(request.refused(ErrorCode.INVALID_REQUEST, reason))
                return
            self._handles[request_id] = handle
            if request_id in self._to_cancel:
                self.cancel(request_id)
            handle.get_result_async().add_done_callback(on_result)

        def on_result(future: Any) -> None:
            self._handles.pop(request_id, None)
            self._to_cancel.discard(request_id)
            answer = future.result()
            if answer.status != GoalStatus.STATUS_UNKNOWN:
                task.finish(result_of(answer.result, request.agent))
            elif not self.ask_result(request_id, on_kept):
                on_kept(srv.GetResult.Response())

        def on_kept(response: srv.GetResult.Response) -> None:
            result = kept_results.result_in(response)
            if result is None or result.agent != request.agent:
                reason = "the server does not know this request any more"
                result = request.refused(ErrorCode.SHUTTING_DOWN, reason)
            task.finish(result)

        sent.add_done_callback(on_answer)


def not_found(server: str, timeout_s: float) -> str:
    """Return what users are told when a server did not answer."""
    return (
        f"no plan server {server} answered within {timeout_s:g} s: is it running, in the same"
        " ROS_DOMAIN_ID?"
    )
