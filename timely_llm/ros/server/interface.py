"""The ROS interface of the plan server: two endpoints, reports, and services for all requests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future as ConcurrentFuture
from typing import Any, TypeVar

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.task import Future

from timely_llm import msg, srv
from timely_llm.core.errors import RequestError, TimelyError
from timely_llm.core.request import (
    ErrorCode,
    PlanRequest,
    PlanResult,
    Rejected,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.core.text import echoed, quoted, sentence
from timely_llm.identity.authenticator import Authenticator
from timely_llm.ros import conversions, interface_number, qos
from timely_llm.ros.conversions import stamped
from timely_llm.ros.identity.messages import check, sign_response
from timely_llm.ros.interface_number import REPLACES_PLANS, RESUMES, publish_number
from timely_llm.ros.server.endpoints import PlanInterface, StreamInterface
from timely_llm.ros.server.notices import Notices
from timely_llm.serving.server.face import RequestServer
from timely_llm.serving.server.results import Results, size_of

T = TypeVar("T")

BUSY_S, MOST_BUSY = 60.0, 256
"""Seconds for which refusals of a busy engine are kept, and how many."""


class ServerInterface:
    """The sink of a server, and its clients' endpoints.

    Args:
        node: node of the interface.
        on_end: called with each result, from the engine's thread.
        steps: publish every step of the engine.
        keep_s: time for which results are kept for clients that missed them, seconds.
        max_results: most results that are kept.
        on_change: called, from any thread, when a request was accepted, had its first step or
            ended.
        authenticator: checks that messages are of the agents that they name; None: it is not
            checked.

    Attributes:
        notices: logs faults of clients.
        plans, streams: the endpoints of plans and conversations.
        waiting: number of service calls that wait for the engine's thread. Executors resume them
            only when a wait ends, so waits must be short then.
        reading: number of calls that may wait long: frequent looks at them would delay steps.
    """

    def __init__(
        self,
        node: Node,
        on_end: Callable[[Result], None],
        steps: bool = False,
        keep_s: float = 300.0,
        max_results: int = 4096,
        on_change: Callable[[], None] = lambda: None,
        authenticator: Authenticator | None = None,
    ) -> None:
        self._node = node
        self._retention = keep_s, max_results
        self._results: Results[Result] = Results(*self._retention)
        self._busy: Results[Result] = Results(min(keep_s, BUSY_S), min(max_results, MOST_BUSY))
        self.notices = Notices(node.get_logger().warning, time.monotonic)
        self._on_end = on_end
        self._on_change = on_change
        self._authenticator = authenticator
        self._not_begun: set[str] = set()
        self._server: RequestServer | None = None
        self.waiting = self.reading = 0
        self.plans = PlanInterface(node, self._configured, self.notices, authenticator)
        self.streams = StreamInterface(node, self._configured, self.notices, authenticator)
        self._steps = qos.publisher(node, msg.EngineStep, "~/steps") if steps else None

    def serve(self, server: RequestServer | None) -> None:
        """Pass requests to a server from now on; None: refuse them."""
        self._server = server
        self._not_begun.clear()

    def offer(self) -> None:
        """Let clients find the actions, the services and the topics."""
        self.plans.offer(Results(*self._retention))
        self.streams.offer(Results(*self._retention))
        node = self._node
        qos.subscribe(node, msg.ExecutionReport, "~/execution_reports", self._on_report)
        for kind, name, callback in (
            (srv.RegisterSkillSet, "~/register_skill_set", self._register),
            (srv.GetSkillSet, "~/get_skill_set", self._skill_set),
            (srv.UnregisterSkillSet, "~/unregister_skill_set", self._unregister),
            (srv.SubmitPlan, "~/submit_plan", self.plans.on_submit),
            (srv.CancelRequest, "~/cancel_request", self._cancel),
            (srv.GetIdentity, "~/get_identity", self._identity),
            (srv.ListRequests, "~/list_requests", self._list),
            (srv.GetRequests, "~/get_requests", self._get_requests),
            (srv.GetResult, "~/get_result", self._get_result),
            (srv.GetSegments, "~/get_segments", self._get_segments),
        ):
            # Reentrant: a call that waits for the engine's thread delays no other call.
            node.create_service(
                kind, name, callback, qos_profile=qos.reliable(),
                callback_group=ReentrantCallbackGroup(),
            )  # fmt: skip
        self._heartbeat = publish_number(node)

    def has_goals(self) -> bool:
        """Whether a goal waits for its result."""
        return self.plans.waiting or self.streams.waiting

    # The server's sink: called from the engine's thread, except `accepted`.

    def accepted(self, request: Request) -> None:
        """Publish an accepted request."""
        self._not_begun.add(request.request_id)
        self._on_change()
        if isinstance(request, StreamRequest):
            self.streams.accepted(request)
        elif isinstance(request, PlanRequest):
            self.plans.accepted(request)

    def stepped(self, result: StepResult) -> None:
        """Publish a step of the engine, if steps are published."""
        if not self._not_begun.isdisjoint(result.computed):
            self._not_begun.difference_update(result.computed)
            self._on_change()
        if self._steps is not None:
            self._steps.publish(stamped(self._node, conversions.step_message(result)))

    def segment(self, segment: Segment) -> None:
        """Publish a segment of a plan."""
        self.plans.segment(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        """Publish a chunk of an answer."""
        self.streams.chunk(chunk)

    def ended(self, result: Result) -> None:
        """Keep and publish a result, and pass it to the goal that waits for it.

        Refusals are not kept. The refusal of a duplicate would hide the result of the first
        request, and a flood of refusals would push out all other results. Those of a busy engine
        come after the request was accepted: they are kept apart, and for a short time.
        """
        self._not_begun.discard(result.request_id)
        self._on_change()
        kept = self._busy if result.error_code is ErrorCode.BUSY else self._results
        kept.put(result.request_id, result, size_of(result), time.monotonic())
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

    def _configured(self) -> RequestServer:
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
            check(self._authenticator, message)
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
                registered = await self._result(
                    lambda server: server.skill_sets.register(request.yaml), 0
                )
            finally:
                self.reading -= 1
            response.name, response.prompt_tokens = registered
        except TimelyError as error:
            _refuse(response, error)
        return response

    def _skill_set(
        self, request: srv.GetSkillSet.Request, response: srv.GetSkillSet.Response
    ) -> srv.GetSkillSet.Response:
        try:
            response.yaml = self._configured().skill_sets.text(request.name)
        except Rejected as error:
            _refuse(response, error)
        return sign_response(self._authenticator, request, response)

    def _identity(
        self, request: srv.GetIdentity.Request, response: srv.GetIdentity.Response
    ) -> srv.GetIdentity.Response:
        response.interface = interface_number.INTERFACE
        if self._authenticator is not None:
            response.challenge = self._authenticator.challenge
        response.resumes = self._node.get_parameter(RESUMES).value
        response.replaces_plans = self._node.get_parameter(REPLACES_PLANS).value
        return sign_response(self._authenticator, request, response)

    async def _unregister(
        self, request: srv.UnregisterSkillSet.Request, response: srv.UnregisterSkillSet.Response
    ) -> srv.UnregisterSkillSet.Response:
        try:
            await self._result(lambda server: server.unregister(request.name))
        except TimelyError as error:
            _refuse(response, error)
        return response

    async def _get_result(
        self, request: srv.GetResult.Request, response: srv.GetResult.Response
    ) -> srv.GetResult.Response:
        key, now = request.request_id, time.monotonic()
        served = self._server is not None and self._server.serves(key)
        kept = self._results.get(key, now) or self._busy.get(key, now)
        so_far = None
        with contextlib.suppress(TimelyError):  # a server that stops answers nothing
            if not served and kept is None:
                kept = await self._result(lambda server: server.result(key))
                # A dispatcher may have found the request at a server meanwhile.
                served = kept is None and self._configured().serves(key)
            if served:
                so_far = await self._result(lambda server: server.so_far(key))
                served, kept = so_far is not None, self._results.get(key, now)
        conversions.fill_answer(response, served, so_far, kept)
        return sign_response(self._authenticator, request, response)

    async def _cancel(
        self, request: srv.CancelRequest.Request, response: srv.CancelRequest.Response
    ) -> srv.CancelRequest.Response:
        try:
            unnamed = self._authenticator is None and not request.agent
            if unnamed or await self._may_cancel(request):
                response.canceled = await self._result(
                    lambda s: s.cancel(request.request_id, unless_begun=request.unless_begun)
                )
        except TimelyError as error:
            response.error_msg = sentence(error)
            if isinstance(error, Rejected) and error.code is ErrorCode.NOT_AUTHENTICATED:
                response.error_code = int(error.code)
            return response
        if not response.canceled:
            response.error_msg = f"no request {quoted(request.request_id)} is being served"
        return response

    async def _may_cancel(self, request: srv.CancelRequest.Request) -> bool:
        """Return whether a request is being served.

        Raises:
            Rejected: it is, and its agent did not sign the call.
            RequestError: it is, and the call names another agent than the request's.
        """
        served = await self._result(lambda server: server.statuses())
        for one in served:
            if one.request_id == request.request_id:
                check(self._authenticator, request, one.agent)
                if request.agent not in ("", one.agent):
                    raise RequestError(
                        f"request {quoted(request.request_id)} is not one of agent"
                        f" {quoted(request.agent)}: name its own agent, or none"
                    )
                return True
        return False

    async def _list(
        self, request: srv.ListRequests.Request, response: srv.ListRequests.Response
    ) -> srv.ListRequests.Response:
        try:
            served = await self._result(lambda server: server.statuses())
            response.requests = list(map(conversions.REQUEST_STATUS.message, served))
        except TimelyError:
            pass  # a server that is not configured, or stops, serves nothing
        return sign_response(self._authenticator, request, response)

    async def _get_requests(
        self, request: srv.GetRequests.Request, response: srv.GetRequests.Response
    ) -> srv.GetRequests.Response:
        try:
            served = await self._result(lambda server: server.requests_of(request.dispatcher))
        except TimelyError:
            return response  # as for `_list`
        return conversions.fill_requests(response, served)

    async def _get_segments(
        self, request: srv.GetSegments.Request, response: srv.GetSegments.Response
    ) -> srv.GetSegments.Response:
        try:
            made = await self._result(
                lambda server: server.segments(request.agent, request.request_id)
            )
            for segment in made:
                message = stamped(self._node, conversions.SEGMENT.message(segment))
                response.segments.append(message)
        except TimelyError as error:
            _refuse(response, error)
        return sign_response(self._authenticator, request, response)

    async def _result(
        self, call: Callable[[RequestServer], ConcurrentFuture[T]], waiting: int = 1
    ) -> T:
        """Wait for work in the engine's thread without holding the executor.

        Args:
            call: begins the work.
            waiting: added to `waiting` meanwhile.

        Raises:
            Rejected: there is no server.
        """
        future = call(self._configured())
        done: Future[None] = Future()
        self.waiting += waiting
        executor = self._node.executor

        def wake(_: ConcurrentFuture[T]) -> None:
            done.set_result(None)
            if executor is not None:
                executor.wake()

        future.add_done_callback(wake)
        try:
            await done
        finally:
            self.waiting -= waiting
        return future.result()


def _refuse(response: Any, error: TimelyError) -> None:
    """Fill in the error of a service's response."""
    code = error.code if isinstance(error, Rejected) else ErrorCode.INVALID_REQUEST
    response.error_code, response.error_msg = int(code), sentence(error)
