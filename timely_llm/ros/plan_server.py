"""The node `plan_server`: the serving loop with a ROS face.

Callbacks run in the executor's thread and only enqueue; the loop runs in the engine's thread and
publishes segments from there, in the step in which their boundary was matched.
"""

from __future__ import annotations

import sys
import uuid
from concurrent.futures import Future as ConcurrentFuture
from typing import Any, TypeVar, cast

from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.task import Future

from timely_llm import msg, srv
from timely_llm.action import Plan
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import RequestError, TimelyError
from timely_llm.core.request import ErrorCode, PlanRequest, PlanResult, Rejected
from timely_llm.core.segment import Segment
from timely_llm.ros import conversions, observation
from timely_llm.ros.parameters import declare
from timely_llm.ros.plan_server_setup import PARAMETERS, make_server
from timely_llm.ros.spinning import exit_status, ros, spin, undisturbed
from timely_llm.serving.loop import Loop

T = TypeVar("T")
QUEUE = 256
FAREWELL_S = 2.0
"""How long goals may take to end when the server stops."""
SENDING_S = 0.2
"""How long rclpy then may take to send their results."""


class PlanServer(Node):
    """Serves plan requests over action, service and topic."""

    def __init__(self) -> None:
        super().__init__("plan_server")
        values = declare(self, PARAMETERS)
        self._max_tokens: int = values["max_tokens"]
        self._goals: dict[str, tuple[ServerGoalHandle[Any, Any, Any], Future[PlanResult]]] = {}
        reliable = QoSProfile(depth=QUEUE, reliability=ReliabilityPolicy.RELIABLE)
        self._segments = self.create_publisher(msg.Segment, "~/segments", reliable)
        self._stats = self.create_publisher(msg.ServerStats, "~/stats", 10)
        self._server = make_server(values, self, WallClock(), self.get_logger())
        self.create_subscription(msg.PlanRequest, "~/plan_requests", self._on_request, reliable)
        self.create_subscription(
            msg.ExecutionReport, "~/execution_reports", self._on_report, reliable
        )
        for kind, name, callback in (
            (srv.RegisterSkillSet, "~/register_skill_set", self._register),
            (srv.SubmitPlan, "~/submit_plan", self._submit),
            (srv.CancelRequest, "~/cancel_request", self._cancel),
            (srv.ListRequests, "~/list_requests", self._list),
        ):
            # Reentrant: a service that waits for the engine's thread holds nobody up.
            self.create_service(kind, name, callback, callback_group=ReentrantCallbackGroup())
        self._action = ActionServer(
            self,
            Plan,
            "plan",
            self._execute,
            cancel_callback=self._on_cancel,
            feedback_pub_qos_profile=reliable,
        )
        self.create_timer(values["stats_period_s"], self._publish_stats)
        self.get_logger().info(
            f"ready: {values['policy']} policy, {values['engine']} engine, action 'plan'"
        )

    def stop(self) -> None:
        """End all requests and the engine; their clients are told."""
        self._server.close()

    def has_goals(self) -> bool:
        """Whether a goal waits for its result to be sent."""
        return bool(self._goals)

    # The loop's sink: called from the engine's thread.

    def segment(self, segment: Segment) -> None:
        """Publish a segment on the topic, and to the goal it belongs to as feedback."""
        message = conversions.segment_message(segment)
        self._segments.publish(message)
        goal = self._goals.get(segment.request_id)
        if goal is not None:
            goal[0].publish_feedback(Plan.Feedback(segment=message))

    def ended(self, result: PlanResult) -> None:
        """Hand a result to the goal that waits for it."""
        if result.error_code not in (ErrorCode.NONE, ErrorCode.CANCELED):
            self.get_logger().warning(f"request {result.request_id}: {result.error_msg}")
        goal = self._goals.get(result.request_id)
        if goal is not None:
            self._resolve(goal[1], result)

    def _resolve(self, future: Future[T], value: T) -> None:
        """Set a future from the engine's thread, and wake the coroutine that awaits it."""
        future.set_result(value)
        if self.executor is not None:
            self.executor.wake()

    async def _result(self, future: ConcurrentFuture[T]) -> T:
        """Wait for work in the engine's thread without holding the executor."""
        done: Future[None] = Future()
        future.add_done_callback(lambda _: self._resolve(done, None))
        await done
        return future.result()

    # The action.

    async def _execute(self, handle: ServerGoalHandle[Any, Any, Any]) -> Plan.Result:
        request_id = _goal_request_id(handle)
        if request_id in self._goals:
            handle.abort()
            reason = f"a goal {request_id!r} is being served already"
            return conversions.refusal(request_id, ErrorCode.DUPLICATE_REQUEST, reason)
        future: Future[PlanResult] = Future()
        self._goals[request_id] = (handle, future)
        try:
            self._server.submit(self._request(handle.request, request_id))
        except RequestError as error:
            del self._goals[request_id]
            handle.abort()
            return conversions.refusal(request_id, _code(error), str(error))
        if handle.is_cancel_requested:
            self._server.cancel(request_id)
        result = cast(PlanResult, await future)
        del self._goals[request_id]
        if result.error_code is ErrorCode.NONE:
            handle.succeed()
        elif result.error_code is ErrorCode.CANCELED and handle.is_cancel_requested:
            handle.canceled()
        else:
            handle.abort()
        return conversions.plan_result(result)

    def _on_cancel(self, handle: ServerGoalHandle[Any, Any, Any]) -> CancelResponse:
        request_id = _goal_request_id(handle)
        if request_id in self._goals and self._goals[request_id][0] is handle:
            self._server.cancel(request_id)
        return CancelResponse.ACCEPT

    def _request(self, message: Plan.Goal | msg.PlanRequest, request_id: str) -> PlanRequest:
        return conversions.plan_request(message, request_id, self._max_tokens)

    # Topics and services.

    def _on_request(self, message: msg.PlanRequest) -> None:
        try:
            self._server.submit(self._request(message, uuid.uuid4().hex))
        except RequestError as error:
            self.get_logger().warning(f"refused a plan request of {message.agent!r}: {error}")

    def _on_report(self, message: msg.ExecutionReport) -> None:
        try:
            self._server.report(conversions.execution_report(message))
        except RequestError as error:
            self.get_logger().warning(str(error))

    def _submit(
        self, request: srv.SubmitPlan.Request, response: srv.SubmitPlan.Response
    ) -> srv.SubmitPlan.Response:
        response.request_id = request.request.request_id or uuid.uuid4().hex
        try:
            self._server.submit(self._request(request.request, response.request_id))
        except RequestError as error:
            response.error_code, response.error_msg = int(_code(error)), str(error)
        return response

    async def _register(
        self, request: srv.RegisterSkillSet.Request, response: srv.RegisterSkillSet.Response
    ) -> srv.RegisterSkillSet.Response:
        try:
            registered = await self._result(self._server.register(request.yaml))
            response.name, response.prompt_tokens = registered
        except TimelyError as error:
            response.error_code, response.error_msg = int(_code(error)), str(error)
        return response

    async def _cancel(
        self, request: srv.CancelRequest.Request, response: srv.CancelRequest.Response
    ) -> srv.CancelRequest.Response:
        response.canceled = await self._result(self._server.cancel(request.request_id))
        if not response.canceled:
            response.error_msg = f"no request {request.request_id!r} is being served"
        return response

    async def _list(
        self, request: srv.ListRequests.Request, response: srv.ListRequests.Response
    ) -> srv.ListRequests.Response:
        def work(loop: Loop) -> srv.ListRequests.Response:
            return observation.list_requests(loop, WallClock().now(), response)

        return await self._result(self._server.call(work))

    def _publish_stats(self) -> None:
        stamp = self.get_clock().now().to_msg()
        self._server.post(lambda loop: self._stats.publish(observation.stats(loop, stamp)))


def _goal_request_id(handle: ServerGoalHandle[Any, Any, Any]) -> str:
    return handle.request.request_id or bytes(handle.goal_id.uuid).hex()


def _code(error: TimelyError) -> ErrorCode:
    return error.code if isinstance(error, Rejected) else ErrorCode.INVALID_REQUEST


def main(args: list[str] | None = None) -> int:
    """Run the node until it is interrupted; return the exit status."""

    def work() -> None:
        with ros(args) as executor:
            node = PlanServer()
            executor.add_node(node)
            try:
                spin(executor)
            finally:
                with undisturbed():
                    node.stop()
                    spin(executor, node.has_goals, FAREWELL_S)
                    spin(executor, timeout_s=SENDING_S)
                    node.destroy_node()

    return exit_status("plan_server", work)


if __name__ == "__main__":
    sys.exit(main())
