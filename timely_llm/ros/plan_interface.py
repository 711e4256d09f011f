"""What clients of the plan server call: the action, the topics and the services.

Callbacks run in the executor's thread and only enqueue; the loop runs in the engine's thread and
publishes segments from there, in the step in which their boundary was matched. A goal that waits
for its plan is no coroutine: executors would ask each one after every message whether it goes on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future as ConcurrentFuture
from typing import Any, TypeVar

from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.task import Future

from timely_llm import msg, srv
from timely_llm.action import Plan
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import RequestError, TimelyError
from timely_llm.core.request import ErrorCode, PlanRequest, PlanResult, Rejected
from timely_llm.core.segment import Segment
from timely_llm.engines.contract import StepResult
from timely_llm.ros import conversions, observation, qos
from timely_llm.serving.loop import Loop
from timely_llm.serving.server import Server

T = TypeVar("T")
Handle = ServerGoalHandle[Any, Any, Any]


class PlanInterface:
    """The sink of a server, and its clients' way in.

    Args:
        node: the interface is the node's.
        on_end: told how each request ended, from the engine's thread.
        steps: publish every step of the engine.

    Attributes:
        waiting: calls of services that wait for the engine's thread. Executors look after them only
            when a wait ends, so waits must be short then.
    """

    def __init__(
        self, node: Node, on_end: Callable[[PlanResult], None], steps: bool = False
    ) -> None:
        self._node = node
        self._on_end = on_end
        self._server: Server | None = None
        self._max_tokens = 0
        self._goals: dict[str, Handle] = {}
        self.waiting = 0
        self._segments = qos.publisher(node, msg.Segment, "~/segments")
        self._requests = qos.publisher(node, msg.PlanRequest, "~/requests")
        self._results = qos.publisher(node, msg.PlanResult, "~/results")
        self._steps = qos.publisher(node, msg.EngineStep, "~/steps") if steps else None

    def serve(self, server: Server | None, max_tokens: int = 0) -> None:
        """Pass requests to a server from now on, or to none.

        Args:
            server: takes them.
            max_tokens: most tokens of a plan whose request says nothing.
        """
        self._server, self._max_tokens = server, max_tokens

    def offer(self) -> None:
        """Let clients find the action, the services and the topics."""
        node = self._node
        qos.subscribe(node, msg.PlanRequest, "~/plan_requests", self._on_request)
        qos.subscribe(node, msg.ExecutionReport, "~/execution_reports", self._on_report)
        for kind, name, callback in (
            (srv.RegisterSkillSet, "~/register_skill_set", self._register),
            (srv.SubmitPlan, "~/submit_plan", self._submit),
            (srv.CancelRequest, "~/cancel_request", self._cancel),
            (srv.ListRequests, "~/list_requests", self._list),
        ):
            # Reentrant: a service that waits for the engine's thread holds nobody up.
            node.create_service(
                kind, name, callback, qos_profile=qos.reliable(),
                callback_group=ReentrantCallbackGroup(),
            )  # fmt: skip
        self._action = ActionServer(
            node,
            Plan,
            "plan",
            lambda _: Plan.Result(),  # not used: each goal is executed when its result is there
            handle_accepted_callback=self._on_goal,
            cancel_callback=self._on_cancel,
            **qos.of_action("pub"),
        )

    def has_goals(self) -> bool:
        """Whether a goal waits for its result."""
        return bool(self._goals)

    # The server's sink: called from the engine's thread, but for `accepted`.

    def accepted(self, request: PlanRequest) -> None:
        """Publish a request that was let in, whichever way it came."""
        self._requests.publish(conversions.request_message(request))

    def stepped(self, result: StepResult) -> None:
        """Publish a step of the engine, if that is wanted."""
        if self._steps is not None:
            self._steps.publish(conversions.step_message(result))

    def segment(self, segment: Segment) -> None:
        """Publish a segment on the topic, and to the goal it belongs to as feedback."""
        message = conversions.segment_message(segment)
        self._segments.publish(message)
        goal = self._goals.get(segment.request_id)
        if goal is not None:
            goal.publish_feedback(Plan.Feedback(segment=message))

    def ended(self, result: PlanResult) -> None:
        """Publish a result, and hand it to the goal that waits for it."""
        self._on_end(result)
        self._results.publish(conversions.result_message(result))
        if result.error_code not in (ErrorCode.NONE, ErrorCode.CANCELED):
            self._node.get_logger().warning(f"request {result.request_id}: {result.error_msg}")
        executor = self._node.executor
        if result.request_id in self._goals and executor is not None:
            executor.create_task(self._finish, result)

    # The action.

    def _on_goal(self, handle: Handle) -> None:
        request_id = _goal_request_id(handle)
        if request_id in self._goals:
            reason = f"a goal {request_id!r} is being served already"
            error = Rejected(ErrorCode.DUPLICATE_REQUEST, reason)
            self._turn_down(handle, self._refused(handle.request, request_id, error))
            return
        self._goals[request_id] = handle
        refusal = self._submitted(handle.request, request_id)
        if refusal is not None:
            del self._goals[request_id]
            self._turn_down(handle, refusal)

    def _turn_down(self, handle: Handle, refusal: PlanResult) -> None:
        result = conversions.plan_result(refusal)
        handle.execute(lambda _: _end(handle, result))

    def _finish(self, result: PlanResult) -> None:
        handle = self._goals.pop(result.request_id, None)
        if handle is not None:
            handle.execute(lambda _: _end(handle, conversions.plan_result(result)))

    def _on_cancel(self, handle: Handle) -> CancelResponse:
        request_id = _goal_request_id(handle)
        if self._goals.get(request_id) is handle and self._server is not None:
            self._server.cancel(request_id)
        return CancelResponse.ACCEPT

    def _submitted(
        self, message: Plan.Goal | msg.PlanRequest, request_id: str
    ) -> PlanResult | None:
        """Submit the request in a message, by this id; return its end if it is not taken."""
        try:
            server = self._configured()
            server.submit(conversions.plan_request(message, request_id, self._max_tokens))
        except RequestError as error:
            return self._refused(message, request_id, Rejected(_code(error), str(error)))
        return None

    def _refused(
        self, message: Plan.Goal | msg.PlanRequest, request_id: str, error: Rejected
    ) -> PlanResult:
        """Publish and return the end of a request that is not taken."""
        result = conversions.refusal(message, request_id, error)
        self._results.publish(conversions.result_message(result))
        return result

    def _configured(self) -> Server:
        """Return the server.

        Raises:
            Rejected: there is none.
        """
        if self._server is None:
            raise Rejected(
                ErrorCode.INACTIVE, "the server is not configured: configure and activate it first"
            )
        return self._server

    # Topics and services.

    def _on_request(self, message: msg.PlanRequest) -> None:
        refusal = self._submitted(message, message.request_id or uuid.uuid4().hex)
        if refusal is not None:
            self._node.get_logger().warning(
                f"refused a plan request of {message.agent!r}: {refusal.error_msg}"
            )

    def _on_report(self, message: msg.ExecutionReport) -> None:
        try:
            report = conversions.execution_report(message)
        except RequestError as error:
            self._node.get_logger().warning(str(error))
            return
        if self._server is not None:
            self._server.report(report)

    def _submit(
        self, request: srv.SubmitPlan.Request, response: srv.SubmitPlan.Response
    ) -> srv.SubmitPlan.Response:
        response.request_id = request.request.request_id or uuid.uuid4().hex
        refusal = self._submitted(request.request, response.request_id)
        if refusal is not None:
            response.error_code = int(refusal.error_code)
            response.error_msg = refusal.error_msg
        return response

    async def _register(
        self, request: srv.RegisterSkillSet.Request, response: srv.RegisterSkillSet.Response
    ) -> srv.RegisterSkillSet.Response:
        try:
            registered = await self._result(lambda server: server.register(request.yaml))
            response.name, response.prompt_tokens = registered
        except TimelyError as error:
            response.error_code, response.error_msg = int(_code(error)), str(error)
        return response

    async def _cancel(
        self, request: srv.CancelRequest.Request, response: srv.CancelRequest.Response
    ) -> srv.CancelRequest.Response:
        try:
            response.canceled = await self._result(lambda s: s.cancel(request.request_id))
        except TimelyError as error:
            response.error_msg = str(error)
            return response
        if not response.canceled:
            response.error_msg = f"no request {request.request_id!r} is being served"
        return response

    async def _list(
        self, request: srv.ListRequests.Request, response: srv.ListRequests.Response
    ) -> srv.ListRequests.Response:
        def work(loop: Loop) -> srv.ListRequests.Response:
            return observation.list_requests(loop, WallClock().now(), response)

        try:
            return await self._result(lambda server: server.call(work))
        except TimelyError:
            return response  # a server that is not configured, or stops, serves nothing

    async def _result(self, call: Callable[[Server], ConcurrentFuture[T]]) -> T:
        """Wait for work in the engine's thread without holding the executor.

        Raises:
            Rejected: there is no server.
        """
        future, done = call(self._configured()), Future[None]()
        self.waiting += 1
        future.add_done_callback(lambda _: done.set_result(None))
        try:
            await done
        finally:
            self.waiting -= 1
        return future.result()


def _end(handle: Handle, result: Plan.Result) -> Plan.Result:
    if result.error_code == ErrorCode.NONE:
        handle.succeed()
    elif result.error_code == ErrorCode.CANCELED and handle.is_cancel_requested:
        handle.canceled()
    else:
        handle.abort()
    return result


def _goal_request_id(handle: Handle) -> str:
    return handle.request.request_id or bytes(handle.goal_id.uuid).hex()


def _code(error: TimelyError) -> ErrorCode:
    return error.code if isinstance(error, Rejected) else ErrorCode.INVALID_REQUEST
