"""The endpoint of one kind of requests: the goals of one action, and the topics beside it.

Callbacks run in the executor's thread and only enqueue. The loop runs in the engine's thread, and
publishes its output from there in the same step. A goal that waits for its result is no coroutine:
executors would poll each one after every message.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from action_msgs.msg import GoalStatus
from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node

from timely_llm import msg, srv
from timely_llm.action import Converse, Plan
from timely_llm.core.errors import RequestError
from timely_llm.core.request import (
    MAX_ID_CHARACTERS,
    ErrorCode,
    PlanRequest,
    PlanResult,
    Rejected,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
    StreamResult,
    served_already,
)
from timely_llm.core.segment import Segment
from timely_llm.core.slo import SLO_CLASSES, SloClass
from timely_llm.core.text import echoed, quoted
from timely_llm.identity.authenticator import Authenticator
from timely_llm.ros import conversions, qos
from timely_llm.ros.conversions import stamped
from timely_llm.ros.guarded import Guard
from timely_llm.ros.identity.messages import check, sign_for
from timely_llm.ros.server.notices import Notices
from timely_llm.serving.server.face import RequestServer
from timely_llm.serving.server.results import Results, size_of

TABLE_S = 1
"""Time of an ended goal in the table of the action server, seconds.

Each change of a goal publishes the states of all goals in the table to every client. With a
thousand ended goals in it, each new one costs 30 ms.
"""


@dataclass(frozen=True)
class GoalOutcome:
    """The end of a goal as its clients see it: its state and its result."""

    status: int
    result: Any


if TYPE_CHECKING:
    Base = ActionServer[Any, Any, Any]
else:
    Base = ActionServer  # Jazzy's takes no parameters


class GoalServer(Base):
    """An action server that keeps results in a store of its own, bounded in memory.

    Args:
        node: node of the server.
        kind: type of the action.
        name: name of the action.
        on_goal: takes a new goal; its execution begins when its result is known.
        on_cancel: as rclpy's `cancel_callback`.
        ended: keeps the ends of goals, by `key_of`.
        now: seconds on the clock of `ended`.
        on_unknown: called with the key of each unknown goal for which a client asks.
    """

    def __init__(
        self,
        node: Node,
        kind: Any,
        name: str,
        on_goal: Callable[[ServerGoalHandle[Any, Any, Any]], None],
        on_cancel: Callable[[ServerGoalHandle[Any, Any, Any]], Any],
        ended: Results[GoalOutcome],
        now: Callable[[], float],
        on_unknown: Callable[[str], None],
    ) -> None:
        self._ended = ended
        self._now = now
        self._on_unknown = on_unknown
        super().__init__(
            node, kind, name,
            lambda _: kind.Result(),  # not used: each goal is executed by a function of its own
            handle_accepted_callback=on_goal, cancel_callback=on_cancel, result_timeout=TABLE_S,
            **qos.of_action("pub"),
        )  # fmt: skip

    async def _execute_get_result_request(self, request_header_and_message: Any) -> None:
        """Answer a question for a result, also when the table has forgotten the goal."""
        header, request = request_header_and_message
        if bytes(request.goal_id.uuid) in self._goal_handles:
            await super()._execute_get_result_request(request_header_and_message)
            return
        key = bytes(request.goal_id.uuid).hex()
        response = self._action_type.Impl.GetResultService.Response()
        kept = self._ended.get(key, self._now())
        if kept is None:
            self._on_unknown(key)  # the state of an empty response is STATUS_UNKNOWN
        else:
            response.status, response.result = kept.status, kept.result
        with self._lock:
            self._handle.send_result_response(header, response)


def key_of(handle: ServerGoalHandle[Any, Any, Any]) -> str:
    """Return the key of a goal in the store of results."""
    return bytes(handle.goal_id.uuid).hex()


def forget_request(handle: ServerGoalHandle[Any, Any, Any]) -> None:
    """Free the request of an ended goal; its handle stays in the table for a while."""
    handle._goal_request = type(handle.request)()


# A string: the classes of Jazzy's rclpy take no parameters at run time.
Handle: TypeAlias = "ServerGoalHandle[Any, Any, Any]"
AnyRequest = TypeVar("AnyRequest", bound=Request)
AnyResult = TypeVar("AnyResult", bound=Result)


class RequestEndpoint(ABC, Generic[AnyRequest, AnyResult]):
    """Requests of one kind, from the goal or the message to the result.

    Args:
        node: node of the endpoint.
        configured: returns the server that takes the requests.
        notices: logs faults of clients.
        authenticator: checks that requests are of the agents that they name; None: it is not
            checked.

    Attributes:
        ACTION, NAME: type and name of the action.
        FORMER_NAME: former name of the action, an alias for one release.
        MESSAGE, TOPIC: type and topic of requests as flat messages.
        ACCEPTED: topic of accepted requests, of the same type.
        RESULT: class of results.
        RESULT_MESSAGE, RESULT_TOPIC: type and topic of results as flat messages.
        RESULTS: converts results.
    """

    ACTION: ClassVar[Any]
    NAME: ClassVar[str]
    FORMER_NAME: ClassVar[str]
    MESSAGE: ClassVar[Any]
    TOPIC: ClassVar[str]
    ACCEPTED: ClassVar[str]
    RESULT: ClassVar[type[Any]]
    RESULT_MESSAGE: ClassVar[Any]
    RESULT_TOPIC: ClassVar[str]
    RESULTS: ClassVar[conversions.MessageTable[Any]]

    def __init__(
        self,
        node: Node,
        configured: Callable[[], RequestServer],
        notices: Notices,
        authenticator: Authenticator | None = None,
    ) -> None:
        self._node = node
        self._configured = configured
        self._notices = notices
        self._authenticator = authenticator
        self._goals: dict[str, Handle] = {}
        self._open: dict[str, AnyRequest] = {}
        self._guard = Guard(f"a request of {self.FORMER_NAME}", node.get_logger)
        self._requests = qos.publisher(node, self.MESSAGE, self.ACCEPTED)
        self._results = qos.publisher(node, self.RESULT_MESSAGE, self.RESULT_TOPIC)

    def accepted(self, request: AnyRequest) -> None:
        """Publish an accepted request."""
        self._open[request.request_id] = request
        self._requests.publish(stamped(self._node, self._request_message(request)))

    @abstractmethod
    def _request_message(self, request: AnyRequest) -> Any:
        """Return a request as a flat message."""

    @abstractmethod
    def _request(self, message: Any, request_id: str) -> AnyRequest:
        """Return the request in a goal or a flat message, with this id.

        Raises:
            RequestError: the request is not allowed.
        """

    def _publish_result(self, result: AnyResult) -> None:
        message = stamped(self._node, self.RESULTS.message(result))
        self._results.publish(sign_for(self._authenticator, result.agent, message))

    def offer(self, ended: Results[GoalOutcome]) -> None:
        """Let clients find the action and the topic.

        Args:
            ended: keeps the ends of this action's goals.
        """
        qos.subscribe(self._node, self.MESSAGE, self.TOPIC, self._on_message)
        self._ended = ended
        self._action = self._goal_server(self.NAME, self._on_goal)
        # Not offered if another server has it: clients would reach both.
        former = self._node.resolve_service_name(self.FORMER_NAME)
        if not self._node.count_services(f"{former}/_action/send_goal"):
            self._alias = self._goal_server(self.FORMER_NAME, self._on_goal_by_alias)
        else:
            self._node.get_logger().info(
                f"another server has the old name of the action, {former}: this one answers by"
                f" {self._node.resolve_service_name(self.NAME)} only"
            )

    def _goal_server(self, name: str, on_goal: Callable[[Handle], None]) -> GoalServer:
        return GoalServer(
            self._node, self.ACTION, name, on_goal, self._on_cancel, self._ended,
            time.monotonic, self._on_unknown_goal,
        )  # fmt: skip

    @property
    def waiting(self) -> bool:
        """Whether a goal waits for its result."""
        return bool(self._goals)

    def ended(self, result: AnyResult) -> None:
        """Publish a result, and pass it to the goal that waits for it."""
        # Before the goals are looked at: one may join until then.
        self._open.pop(result.request_id, None)
        try:
            self._publish_result(result)
        finally:
            executor = self._node.executor
            if result.request_id in self._goals and executor is not None:
                executor.create_task(self._guard.wrap(self._finish), result)

    def submit(self, message: Any, request_id: str, joins: bool = False) -> AnyResult | None:
        """Submit the request in a goal or a flat message; return its result if it is refused.

        Args:
            message: the goal or message.
            request_id: the request's.
            joins: the same request is not refused if it is being served: its goal gets the result.
        """
        try:
            server = self._configured()
            check(self._authenticator, message)
            request = self._request(message, request_id)
            if not (joins and self._open.get(request_id) == request):
                server.submit(request)
        except RequestError as error:
            code = error.code if isinstance(error, Rejected) else ErrorCode.INVALID_REQUEST
            again_s = error.retry_after_s if isinstance(error, Rejected) else 0.0
            return self._refused(message, request_id, code, str(error), again_s)
        except Exception as error:  # the client waits for an answer
            sentence = self._guard.failed(error)
            return self._refused(message, request_id, ErrorCode.ENGINE_FAILED, sentence)
        return None

    def _refused(
        self, message: Any, request_id: str, code: ErrorCode, reason: str, again_s: float = 0.0
    ) -> AnyResult:
        """Publish and return the result of a refused request.

        Names that are too long are cut: results wait in memory for slow readers.
        """
        request_id, agent = (echoed(n, MAX_ID_CHARACTERS) for n in (request_id, message.agent))
        result = self._refusal(message, request_id, agent, code, reason)
        result = replace(result, retry_after_s=again_s)
        self._publish_result(result)
        return result

    def _refusal(
        self, message: Any, request_id: str, agent: str, code: ErrorCode, reason: str
    ) -> AnyResult:
        """Return the result of a refused request."""
        result: AnyResult = self.RESULT(request_id, agent, code, reason)
        return result

    def _on_message(self, message: Any) -> None:
        refusal = self.submit(message, message.request_id or uuid.uuid4().hex)
        if refusal is not None:
            words = f"refused a request of {quoted(message.agent)}: {refusal.error_msg}"
            self._notices.say("requests were refused", words)

    def _on_goal_by_alias(self, handle: Handle) -> None:
        name = self._node.resolve_service_name(self.NAME)
        words = f"the action is called {name} now, and the next release drops the old name"
        self._notices.say(f"goals came by the old name {self.FORMER_NAME}", words)
        self._on_goal(handle)

    def _on_goal(self, handle: Handle) -> None:
        request_id = _goal_request_id(handle)
        if request_id in self._goals:
            error = served_already(request_id, "goal")
            refused = self._refused(handle.request, request_id, error.code, str(error))
            self._end_goal(handle, refused)
            return
        self._goals[request_id] = handle
        try:
            # Served without a goal: an earlier process had it, or its answer was lost.
            refusal = self.submit(handle.request, request_id, joins=True)
        except Exception as error:  # a refusal may fail too
            code, sentence = ErrorCode.ENGINE_FAILED, self._guard.failed(error)
            refusal = self.RESULT(request_id, handle.request.agent, code, sentence)
        if refusal is not None:
            del self._goals[request_id]
            self._end_goal(handle, refusal)

    def _end_goal(self, handle: Handle, ended: AnyResult) -> None:
        handle.execute(lambda _: self._end(handle, ended))

    def _finish(self, result: AnyResult) -> None:
        handle = self._goals.pop(result.request_id, None)
        if handle is not None:
            self._end_goal(handle, result)

    def _on_cancel(self, handle: Handle) -> CancelResponse:
        request_id = _goal_request_id(handle)
        agent = handle.request.agent
        if self._authenticator is not None and self._authenticator.must_sign(agent):
            # The action's own message carries no signature, and can name all goals at once.
            words = f"a goal of {quoted(agent)} is canceled by a signed call of ~/cancel_request"
            self._notices.say("unsigned cancellations were refused", words)
            return CancelResponse.REJECT
        if self._goals.get(request_id) is handle:
            with contextlib.suppress(Rejected):  # no server any more: the goal is just ending
                self._configured().cancel(request_id)
        return CancelResponse.ACCEPT

    def _on_unknown_goal(self, key: str) -> None:
        words = f"a client asked for the result of goal {key}, which is not known any more"
        self._notices.say("results of unknown goals were asked for", words)

    def _end(self, handle: Handle, result: AnyResult) -> Any:
        """End a goal; return the action's result."""
        try:
            message = self.RESULTS.message(result, self.ACTION.Result)
        except Exception as error:  # the goal ends in any case
            sentence, code = self._guard.failed(error), int(ErrorCode.ENGINE_FAILED)
            message = self.ACTION.Result(error_code=code, error_msg=sentence)
        sign_for(self._authenticator, result.agent, message)
        if message.error_code == ErrorCode.NONE:
            status = GoalStatus.STATUS_SUCCEEDED
        elif message.error_code == ErrorCode.CANCELED and handle.is_cancel_requested:
            status = GoalStatus.STATUS_CANCELED
        else:
            status = GoalStatus.STATUS_ABORTED
        self._ended.put(
            key_of(handle), GoalOutcome(status, message), size_of(result), time.monotonic()
        )
        {
            GoalStatus.STATUS_SUCCEEDED: handle.succeed,
            GoalStatus.STATUS_CANCELED: handle.canceled,
            GoalStatus.STATUS_ABORTED: handle.abort,
        }[status]()
        forget_request(handle)
        return message


def _goal_request_id(handle: Handle) -> str:
    return handle.request.request_id or bytes(handle.goal_id.uuid).hex()


class PlanInterface(RequestEndpoint[PlanRequest, PlanResult]):
    """The endpoint of plans.

    Attributes:
        max_tokens: most tokens of a plan if its request sets none.
    """

    ACTION, NAME, FORMER_NAME = Plan, "~/plan", "plan"
    MESSAGE, TOPIC, ACCEPTED = msg.PlanRequest, "~/plan_requests", "~/requests"
    RESULT, RESULT_MESSAGE, RESULT_TOPIC = PlanResult, msg.PlanResult, "~/results"
    RESULTS = conversions.PLAN_RESULT

    def __init__(
        self,
        node: Node,
        configured: Callable[[], RequestServer],
        notices: Notices,
        authenticator: Authenticator | None = None,
    ) -> None:
        super().__init__(node, configured, notices, authenticator)
        self.max_tokens = 0
        self._segments = qos.publisher(node, msg.Segment, "~/segments")

    def _request_message(self, request: PlanRequest) -> msg.PlanRequest:
        return conversions.PLAN_REQUEST.message(request)

    def segment(self, segment: Segment) -> None:
        """Publish a segment on the topic, and to its goal as feedback."""
        message = stamped(self._node, conversions.SEGMENT.message(segment))
        self._segments.publish(sign_for(self._authenticator, segment.agent, message))
        goal = self._goals.get(segment.request_id)
        if goal is not None:
            goal.publish_feedback(Plan.Feedback(segment=message))

    def on_submit(
        self, request: srv.SubmitPlan.Request, response: srv.SubmitPlan.Response
    ) -> srv.SubmitPlan.Response:
        """Answer a call of the service."""
        response.request_id = request.request.request_id or uuid.uuid4().hex
        refusal = self.submit(request.request, response.request_id)
        if refusal is not None:
            response.request_id = refusal.request_id
            response.error_code = int(refusal.error_code)
            response.error_msg = refusal.error_msg
        return response

    def _request(self, message: Plan.Goal | msg.PlanRequest, request_id: str) -> PlanRequest:
        return conversions.plan_request(message, request_id, self.max_tokens)

    def _refusal(
        self, message: Any, request_id: str, agent: str, code: ErrorCode, reason: str
    ) -> PlanResult:
        return PlanResult(request_id, agent, code, reason, given=bool(message.given_plan))


class StreamInterface(RequestEndpoint[StreamRequest, StreamResult]):
    """The endpoint of conversations.

    Tokens go to a topic. They go to a goal as feedback only if it asks for that: feedback goes to
    every client of the action.

    Attributes:
        max_tokens: most tokens of an answer if its request sets none.
        slo_classes: service levels by name, `text` among them.
    """

    ACTION, NAME, FORMER_NAME = Converse, "~/converse", "converse"
    MESSAGE, TOPIC, ACCEPTED = msg.StreamRequest, "~/stream_requests", "~/streams"
    RESULT, RESULT_MESSAGE, RESULT_TOPIC = StreamResult, msg.StreamResult, "~/stream_results"
    RESULTS = conversions.STREAM_RESULT

    def __init__(
        self,
        node: Node,
        configured: Callable[[], RequestServer],
        notices: Notices,
        authenticator: Authenticator | None = None,
    ) -> None:
        super().__init__(node, configured, notices, authenticator)
        self.max_tokens = 0
        self.slo_classes: Mapping[str, SloClass] = {made.name: made for made in SLO_CLASSES}
        self._chunks = qos.publisher(node, msg.StreamChunk, "~/stream_chunks", qos.TOKENS)

    def _request_message(self, request: StreamRequest) -> msg.StreamRequest:
        return conversions.stream_request_message(request)

    def chunk(self, chunk: StreamChunk) -> None:
        """Publish a chunk on the topic, and to its goal as feedback if the goal asks for that."""
        message = stamped(self._node, conversions.STREAM_CHUNK.message(chunk))
        self._chunks.publish(sign_for(self._authenticator, chunk.agent, message))
        goal = self._goals.get(chunk.request_id)
        if goal is not None and goal.request.feedback:
            goal.publish_feedback(Converse.Feedback(chunk=message))

    def _request(
        self, message: Converse.Goal | msg.StreamRequest, request_id: str
    ) -> StreamRequest:
        return conversions.stream_request(message, request_id, self.max_tokens, self.slo_classes)
