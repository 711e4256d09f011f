"""The ROS side of a plan client; used by one thread only, except for `post`."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

import rclpy
from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient
from rclpy.context import Context
from rclpy.exceptions import InvalidHandle
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from timely_llm import msg, srv
from timely_llm.action import Plan
from timely_llm.core.request import ErrorCode, ExecutionReport, PlanRequest, PlanResult
from timely_llm.core.segment import Segment
from timely_llm.ros import conversions, qos


class Taker(Protocol):
    """Who waits for a plan: takes its segments, each maybe twice, and its result."""

    @property
    def agent(self) -> str:
        """The robot that asked."""
        ...

    def offer(self, segment: Segment) -> None:
        """Take a segment."""
        ...

    def finish(self, result: PlanResult) -> None:
        """Take the result."""
        ...


class ClientNode:
    """A node in a context of its own, with the server's action, topics and one service.

    Args:
        server: name of the server's node.
        namespace: of the server.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        task_of: finds the open task of a request id.
    """

    def __init__(
        self,
        server: str,
        namespace: str,
        domain: int | None,
        task_of: Callable[[str], Taker | None],
    ) -> None:
        self._task_of = task_of
        self._handles: dict[str, Any] = {}
        self._to_cancel: set[str] = set()
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

    def _make(self, server: str, namespace: str) -> None:
        self._node = Node(
            f"plan_client_{uuid.uuid4().hex[:12]}", context=self._context, namespace=namespace,
            enable_rosout=False, start_parameter_services=False,
        )  # fmt: skip
        self.server = self._node.resolve_service_name(server)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._action: ActionClient[Any, Any, Any] = ActionClient(
            self._node, Plan, "plan", **qos.of_action("sub")
        )
        self._reports = self._node.create_publisher(
            msg.ExecutionReport, f"{server}/execution_reports", qos.reliable()
        )
        self._node.create_subscription(
            msg.Segment, f"{server}/segments", self._on_segment, qos.reliable()
        )
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

    def ping(self, answered: Future[None]) -> bool:
        """Ask the server for a sign; return whether it is there to be asked."""
        if not (self._action.server_is_ready() and self._list.service_is_ready()):
            return False
        sent = self._list.call_async(srv.ListRequests.Request())
        sent.add_done_callback(lambda _: answered.set_result(None))
        return True

    def report(self, report: ExecutionReport) -> None:
        """Publish a robot's word."""
        self._reports.publish(conversions.report_message(report))

    def send(self, request: PlanRequest, max_tokens: int, task: Taker) -> None:
        """Send a goal; what comes of it goes to the task."""
        goal = Plan.Goal(
            request_id=request.request_id,
            agent=request.agent,
            skill_set=request.skill_set,
            task=request.task,
            time_utility=conversions.time_utility_message(request.time_utility),
            max_tokens=max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            closed_loop=request.closed_loop,
        )
        sent = self._action.send_goal_async(
            goal, lambda message: task.offer(conversions.segment(message.feedback.segment))
        )

        def on_answer(future: Any) -> None:
            handle = future.result()
            if not handle.accepted:
                reason = "the server did not accept the goal"
                task.finish(PlanResult.refused(request, ErrorCode.INVALID_REQUEST, reason))
                return
            self._handles[request.request_id] = handle
            if request.request_id in self._to_cancel:
                self.cancel(request.request_id)
            handle.get_result_async().add_done_callback(on_result)

        def on_result(future: Any) -> None:
            self._handles.pop(request.request_id, None)
            self._to_cancel.discard(request.request_id)
            answer = future.result()
            if answer.status == GoalStatus.STATUS_UNKNOWN:
                reason = "the server does not know this request any more"
                task.finish(PlanResult.refused(request, ErrorCode.SHUTTING_DOWN, reason))
            else:
                task.finish(conversions.result_of(answer.result, request.agent))

        sent.add_done_callback(on_answer)

    def cancel(self, request_id: str) -> None:
        """Cancel a goal, now or as soon as it is accepted."""
        if request_id in self._handles:
            self._handles[request_id].cancel_goal_async()
        else:
            self._to_cancel.add(request_id)

    def _on_segment(self, message: msg.Segment) -> None:
        task = self._task_of(message.request_id)
        if task is not None and task.agent == message.agent:
            task.offer(conversions.segment(message))
