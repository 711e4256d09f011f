"""A lane of requests: the goals of one action, and the topics beside it.

Callbacks run in the executor's thread and only enqueue; the loop runs in the engine's thread and
publishes from there what it made, in the same step. A goal that waits for its result is no
coroutine: executors would ask each one after every message whether it goes on.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from action_msgs.msg import GoalStatus
from rclpy.action import CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node

from timely_llm.core.echo import echoed, quoted
from timely_llm.core.errors import RequestError
from timely_llm.core.request import MAX_ID_CHARACTERS, ErrorCode, Rejected, Request, Result
from timely_llm.ros import qos
from timely_llm.ros.goal_server import Ended, GoalServer, forget_request, key_of
from timely_llm.ros.guarded import Guard
from timely_llm.ros.notices import Notices
from timely_llm.serving.results import Results, size_of
from timely_llm.serving.server import Server

Handle = ServerGoalHandle[Any, Any, Any]
AnyRequest = TypeVar("AnyRequest", bound=Request)
AnyResult = TypeVar("AnyResult", bound=Result)


class Lane(ABC, Generic[AnyRequest, AnyResult]):
    """Requests of one kind, from the goal or the message to the result.

    Args:
        node: the lane is the node's.
        configured: returns the server that takes the requests.
        notices: told of what clients do wrong.

    Attributes:
        ACTION, NAME: the action, its type and its name.
        MESSAGE, TOPIC: requests as flat messages, their type and their topic.
        RESULT: how a request ends that is not taken.
    """

    ACTION: ClassVar[Any]
    NAME: ClassVar[str]
    MESSAGE: ClassVar[Any]
    TOPIC: ClassVar[str]
    RESULT: ClassVar[type[Any]]

    def __init__(self, node: Node, configured: Callable[[], Server], notices: Notices) -> None:
        self._node = node
        self._configured = configured
        self._notices = notices
        self._goals: dict[str, Handle] = {}
        self._guard = Guard(f"a request of {self.NAME}", node.get_logger)

    @abstractmethod
    def accepted(self, request: AnyRequest) -> None:
        """Publish a request that was let in, whichever way it came."""

    @abstractmethod
    def _request(self, message: Any, request_id: str) -> AnyRequest:
        """Return the request in a goal or a flat message, by this id.

        Raises:
            RequestError: it is not possible.
        """

    @abstractmethod
    def _publish_result(self, result: AnyResult) -> None:
        """Publish how a request ended."""

    @abstractmethod
    def _goal_result(self, result: AnyResult) -> Any:
        """Return a result as the action's result message."""

    def offer(self, ended: Results[Ended]) -> None:
        """Let clients find the action and the topic.

        Args:
            ended: keeps how the goals of this action ended.
        """
        qos.subscribe(self._node, self.MESSAGE, self.TOPIC, self._on_message)
        self._ended = ended
        self._action = GoalServer(
            self._node, self.ACTION, self.NAME, self._on_goal, self._on_cancel, ended,
            time.monotonic, self._on_unknown_goal,
        )  # fmt: skip

    @property
    def waiting(self) -> bool:
        """Whether a goal waits for its result."""
        return bool(self._goals)

    def ended(self, result: AnyResult) -> None:
        """Publish a result, and hand it to the goal that waits for it."""
        try:
            self._publish_result(result)
        finally:
            executor = self._node.executor
            if result.request_id in self._goals and executor is not None:
                executor.create_task(self._guard.wrap(self._finish), result)

    def submit(self, message: Any, request_id: str) -> AnyResult | None:
        """Submit the request in a goal or a flat message; return its end if it is not taken."""
        try:
            server = self._configured()
            server.submit(self._request(message, request_id))
        except RequestError as error:
            code = error.code if isinstance(error, Rejected) else ErrorCode.INVALID_REQUEST
            return self._refused(message, request_id, code, str(error))
        except Exception as error:  # its client waits for an answer
            sentence = self._guard.failed(error)
            return self._refused(message, request_id, ErrorCode.ENGINE_FAILED, sentence)
        return None

    def _refused(self, message: Any, request_id: str, code: ErrorCode, reason: str) -> AnyResult:
        """Publish and return the end of a request that is not taken.

        Names that no request can have are cut: results wait in memory for slow readers.
        """
        names = (echoed(name, MAX_ID_CHARACTERS) for name in (request_id, message.agent))
        result: AnyResult = self.RESULT(*names, code, reason)
        self._publish_result(result)
        return result

    def _on_message(self, message: Any) -> None:
        refusal = self.submit(message, message.request_id or uuid.uuid4().hex)
        if refusal is not None:
            words = f"refused a request of {quoted(message.agent)}: {refusal.error_msg}"
            self._notices.say("requests were refused", words)

    def _on_goal(self, handle: Handle) -> None:
        request_id = _goal_request_id(handle)
        if request_id in self._goals:
            reason = f"a goal {quoted(request_id)} is being served already"
            code = ErrorCode.DUPLICATE_REQUEST
            self._end_goal(handle, self._refused(handle.request, request_id, code, reason))
            return
        self._goals[request_id] = handle
        try:
            refusal = self.submit(handle.request, request_id)
        except Exception as error:  # also what refuses it may fail
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
        if self._goals.get(request_id) is handle:
            with contextlib.suppress(Rejected):  # no server any more: the goal is just ending
                self._configured().cancel(request_id)
        return CancelResponse.ACCEPT

    def _on_unknown_goal(self, key: str) -> None:
        words = f"somebody asked for the result of goal {key}, which is not known any more"
        self._notices.say("results of unknown goals were asked for", words)

    def _end(self, handle: Handle, result: AnyResult) -> Any:
        """Bring a goal to its end; return the action's result."""
        try:
            message = self._goal_result(result)
        except Exception as error:  # it ends in any case
            sentence, code = self._guard.failed(error), int(ErrorCode.ENGINE_FAILED)
            message = self.ACTION.Result(error_code=code, error_msg=sentence)
        if message.error_code == ErrorCode.NONE:
            status = GoalStatus.STATUS_SUCCEEDED
        elif message.error_code == ErrorCode.CANCELED and handle.is_cancel_requested:
            status = GoalStatus.STATUS_CANCELED
        else:
            status = GoalStatus.STATUS_ABORTED
        self._ended.put(key_of(handle), Ended(status, message), size_of(result), time.monotonic())
        {
            GoalStatus.STATUS_SUCCEEDED: handle.succeed,
            GoalStatus.STATUS_CANCELED: handle.canceled,
            GoalStatus.STATUS_ABORTED: handle.abort,
        }[status]()
        forget_request(handle)
        return message


def _goal_request_id(handle: Handle) -> str:
    return handle.request.request_id or bytes(handle.goal_id.uuid).hex()
