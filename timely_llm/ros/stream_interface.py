"""What people call: the action `converse` and its topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rclpy.node import Node

from timely_llm import msg
from timely_llm.action import Converse
from timely_llm.core.slo import SLO_CLASSES, SloClass
from timely_llm.core.stream import StreamChunk, StreamRequest, StreamResult
from timely_llm.ros import qos, stream_conversions
from timely_llm.ros.lane import Lane
from timely_llm.ros.notices import Notices
from timely_llm.serving.server import Server


class StreamInterface(Lane[StreamRequest, StreamResult]):
    """The lane of conversations.

    Tokens go to a topic, and to a goal as feedback only if it asks for that: feedback goes to every
    client of the action.

    Attributes:
        max_tokens: most tokens of an answer whose request says nothing.
        slo_classes: service levels by name, `text` among them.
    """

    ACTION, NAME = Converse, "converse"
    MESSAGE, TOPIC = msg.StreamRequest, "~/stream_requests"
    RESULT = StreamResult

    def __init__(self, node: Node, configured: Callable[[], Server], notices: Notices) -> None:
        super().__init__(node, configured, notices)
        self.max_tokens = 0
        self.slo_classes: Mapping[str, SloClass] = {made.name: made for made in SLO_CLASSES}
        self._chunks = qos.publisher(node, msg.StreamChunk, "~/stream_chunks", qos.TOKENS)
        self._requests = qos.publisher(node, msg.StreamRequest, "~/streams")
        self._results = qos.publisher(node, msg.StreamResult, "~/stream_results")

    def accepted(self, request: StreamRequest) -> None:
        """Publish a request that was let in, whichever way it came."""
        self._requests.publish(stream_conversions.stream_request_message(request))

    def chunk(self, chunk: StreamChunk) -> None:
        """Publish a piece of an answer on the topic, and to a goal that wants it as feedback."""
        message = stream_conversions.chunk_message(chunk)
        self._chunks.publish(message)
        goal = self._goals.get(chunk.request_id)
        if goal is not None and goal.request.feedback:
            goal.publish_feedback(Converse.Feedback(chunk=message))

    def _request(
        self, message: Converse.Goal | msg.StreamRequest, request_id: str
    ) -> StreamRequest:
        return stream_conversions.stream_request(
            message, request_id, self.max_tokens, self.slo_classes
        )

    def _publish_result(self, result: StreamResult) -> None:
        self._results.publish(stream_conversions.stream_result_message(result))

    def _goal_result(self, result: StreamResult) -> Converse.Result:
        return stream_conversions.converse_result(result)
