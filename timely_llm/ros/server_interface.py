"""What clients of the plan server call: two lanes, reports, and services about all requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future as ConcurrentFuture
from typing import TypeVar

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.task import Future

from timely_llm import msg, srv
from timely_llm.core.clock import WallClock
from timely_llm.core.echo import echoed, quoted, sentence
from timely_llm.core.errors import RequestError, TimelyError
from timely_llm.core.request import (
    ErrorCode,
    PlanRequest,
    PlanResult,
    Rejected,
    Request,
    Result,
)
from timely_llm.core.segment import Segment
from timely_llm.core.stream import StreamChunk, StreamRequest, StreamResult
from timely_llm.engines.contract import StepResult
from timely_llm.ros import conversions, kept_results, observation, qos
from timely_llm.ros.notices import Notices
from timely_llm.ros.plan_interface import PlanInterface
from timely_llm.ros.stream_interface import StreamInterface
from timely_llm.serving.loop import Loop
from timely_llm.serving.results import Results, size_of
from timely_llm.serving.server import Server

T = TypeVar("T")


class ServerInterface:
    """The sink of a server, and its clients' way in.

    Args:
        node: the interface is the node's.
        on_end: told how each request ended, from the engine's thread.
        steps: publish every step of the engine.
        keep_s: how long results are kept for those who missed them, seconds.
        max_results: most that are kept.

    Attributes:
        notices: what clients do wrong, in the node's log.
        plans, streams: the lanes.
        waiting: calls of services that wait for the engine's thread. Executors look after them only
            when a wait ends, so waits must be short then.
        reading: calls that may wait long: to look after them often would cost the steps of others.
    """

    def __init__(
        self,
        node: Node,
        on_end: Callable[[Result], None],
        steps: bool = False,
        keep_s: float = 300.0,
        max_results: int = 4096,
    ) -> None:
        self._node = node
        self._keeping = keep_s, max_results
        self._results: Results[Result] = Results(*self._keeping)
        self.notices = Notices(node.get_logger().warning, time.monotonic)
        self._on_end = on_end
        self._server: Server | None = None
        self.waiting = self.reading = 0
        self.plans = PlanInterface(node, self._configured, self.notices)
        self.streams = StreamInterface(node, self._configured, self.notices)
        self._steps = qos.publisher(node, msg.EngineStep, "~/steps") if steps else None

    def serve(self, server: Server | None) -> None:
        """Pass requests to a server from now on, or to none."""
        self._server = server

    def offer(self) -> None:
        """Let clients find the actions, the services and the topics."""
        self.plans.offer(Results(*self._keeping))
        self.streams.offer(Results(*self._keeping))
        node = self._node
        qos.subscribe(node, msg.ExecutionReport, "~/execution_reports", self._on_report)
        for kind, name, callback in (
            (srv.RegisterSkillSet, "~/register_skill_set", self._register),
            (srv.GetSkillSet, "~/get_skill_set", self._skill_set),
            (srv.UnregisterSkillSet, "~/unregister_skill_set", self._unregister),
            (srv.SubmitPlan, "~/submit_plan", self.plans.on_submit),
            (srv.CancelRequest, "~/cancel_request", self._cancel),
            (srv.ListRequests, "~/list_requests", self._list),
            (srv.GetResult, "~/get_result", self._get_result),
        ):
            # Reentrant: a service that waits for the engine's thread holds nobody up.
            node.create_service(
                kind, name, callback, qos_profile=qos.reliable(),
                callback_group=ReentrantCallbackGroup(),
            )  # fmt: skip

    def has_goals(self) -> bool:
        """Whether a goal waits for its result."""
        return self.plans.waiting or self.streams.waiting

    # The server's sink: called from the engine's thread, but for `accepted`.

    def accepted(self, request: Request) -> None:
        """Publish a request that was let in, whichever way it came."""
        if isinstance(request, StreamRequest):
            self.streams.accepted(request)
        elif isinstance(request, PlanRequest):
            self.plans.accepted(request)

    def stepped(self, result: StepResult) -> None:
        """Publish a step of the engine, if that is wanted."""
        if self._steps is not None:
            self._steps.publish(conversions.step_message(result))

    def segment(self, segment: Segment) -> None:
        """Publish a segment of a plan."""
        self.plans.segment(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        """Publish a piece of an answer."""
        self.streams.chunk(chunk)

    def ended(self, result: Result) -> None:
        """Keep and publish a result, and hand it to the goal that waits for it.

        Refusals do not come here, and are not kept: one of a duplicate would hide the result of the
        request that is there, and a flood of them would push out all others.
        """
        self._results.put(result.request_id, result, size_of(result), time.monotonic())
        try:
            self._on_end(result)
        finally:
            if isinstance(result, StreamResult):
                self.streams.ended(result)
            elif isinstance(result, PlanResult):
                self.plans.ended(result)
        if result.error_code not in (ErrorCode.NONE, ErrorCode.CANCELED):
            words = f"request {echoed(result.request_id)}: {result.error_msg}"
            self.notices.say("requests ended with an error", words)

    # Topics and services.

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

    def _on_report(self, message: msg.ExecutionReport) -> None:
        try:
            report = conversions.execution_report(message)
        except RequestError as error:
            self.notices.say("reports were refused", error)
            return
        if self._server is not None:
            self._server.report(report)

    async def _register(
        self, request: srv.RegisterSkillSet.Request, response: srv.RegisterSkillSet.Response
    ) -> srv.RegisterSkillSet.Response:
        try:
            self.reading += 1
            try:
                registered = await self._result(lambda server: server.register(request.yaml), 0)
            finally:
                self.reading -= 1
            response.name, response.prompt_tokens = registered
        except TimelyError as error:
            code = error.code if isinstance(error, Rejected) else ErrorCode.INVALID_REQUEST
            response.error_code, response.error_msg = int(code), sentence(error)
        return response

    def _skill_set(
        self, request: srv.GetSkillSet.Request, response: srv.GetSkillSet.Response
    ) -> srv.GetSkillSet.Response:
        try:
            response.yaml = self._configured().skill_set(request.name)
        except Rejected as error:
            response.error_code, response.error_msg = int(error.code), sentence(error)
        return response

    async def _unregister(
        self, request: srv.UnregisterSkillSet.Request, response: srv.UnregisterSkillSet.Response
    ) -> srv.UnregisterSkillSet.Response:
        try:
            await self._result(lambda server: server.unregister(request.name))
        except TimelyError as error:
            code = error.code if isinstance(error, Rejected) else ErrorCode.INVALID_REQUEST
            response.error_code, response.error_msg = int(code), sentence(error)
        return response

    def _get_result(
        self, request: srv.GetResult.Request, response: srv.GetResult.Response
    ) -> srv.GetResult.Response:
        served = self._server is not None and self._server.serves(request.request_id)
        kept = self._results.get(request.request_id, time.monotonic())
        return kept_results.answer(response, served, kept)

    async def _cancel(
        self, request: srv.CancelRequest.Request, response: srv.CancelRequest.Response
    ) -> srv.CancelRequest.Response:
        try:
            response.canceled = await self._result(lambda s: s.cancel(request.request_id))
        except TimelyError as error:
            response.error_msg = sentence(error)
            return response
        if not response.canceled:
            response.error_msg = f"no request {quoted(request.request_id)} is being served"
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

    async def _result(self, call: Callable[[Server], ConcurrentFuture[T]], waiting: int = 1) -> T:
        """Wait for work in the engine's thread without holding the executor.

        Args:
            call: begins it.
            waiting: what it adds to `waiting`.

        Raises:
            Rejected: there is no server.
        """
        future, done = call(self._configured()), Future[None]()
        self.waiting += waiting
        executor = self._node.executor

        def tell(_: ConcurrentFuture[T]) -> None:
            done.set_result(None)
            if executor is not None:
                executor.wake()

        future.add_done_callback(tell)
        try:
            await done
        finally:
            self.waiting -= waiting
        return future.result()
