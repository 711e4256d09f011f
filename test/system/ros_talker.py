"""Common parts of tests of conversations: slow steps, and a client node of all topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rclpy.action import ActionClient

from test.system.ros_client import Client
from timely_llm import msg
from timely_llm.action import Converse
from timely_llm.ros import qos

SLOW = {
    "engine": "simulated",
    "pace": f"measured:{Path(__file__).with_name('slow.yaml')}",
    "stats_period_s": 0.1,
}
"""A server with answers that take seconds, so that a test can act in the middle of one."""


class Talker(Client):
    """Asks for answers, and keeps every token and result."""

    def __init__(self, domain: int) -> None:
        super().__init__(domain)
        self.converse: ActionClient[Any, Any, Any] = ActionClient(
            self.node, Converse, "plan_server/converse", **qos.of_action("sub")
        )
        self.chunks: list[msg.StreamChunk] = []
        self.fed_back: list[msg.StreamChunk] = []
        self.streams: list[msg.StreamRequest] = []
        self.results: list[msg.StreamResult] = []
        for kind, topic, heard in (
            (msg.StreamChunk, "stream_chunks", self.chunks),
            (msg.StreamRequest, "streams", self.streams),
            (msg.StreamResult, "stream_results", self.results),
        ):
            self.node.create_subscription(kind, f"plan_server/{topic}", heard.append, 256)
        self.stream_requests = self.node.create_publisher(
            msg.StreamRequest, "plan_server/stream_requests", 10
        )

    def ask(self, request_id: str, prompt: str = "Hello.", **fields: Any) -> Any:
        """Send a goal; return its handle."""
        values = {"request_id": request_id, "agent": "talker", "prompt": prompt} | fields
        sent = self.converse.send_goal_async(
            Converse.Goal(**values),
            lambda message: self.fed_back.append(message.feedback.chunk),
        )
        handle = self.result(sent)
        assert handle.accepted
        return handle

    def answer(self, request_id: str, prompt: str = "Hello.", **fields: Any) -> Any:
        """Send a goal and wait for its result."""
        return self.result(self.ask(request_id, prompt, **fields).get_result_async()).result

    def tokens_of(self, request_id: str) -> list[msg.StreamChunk]:
        """Return the tokens of an answer, as they came."""
        return [chunk for chunk in self.chunks if chunk.request_id == request_id]

    def accepted(self, request_id: str) -> msg.StreamRequest:
        """Wait for the message of an accepted request."""
        return self._heard(self.streams, request_id)

    def ended(self, request_id: str) -> msg.StreamResult:
        """Wait for the message of a request's result."""
        return self._heard(self.results, request_id)

    def _heard(self, messages: list[Any], request_id: str) -> Any:
        found: list[Any] = []

        def there() -> bool:
            found.extend(m for m in messages if m.request_id == request_id)
            return bool(found)

        self.until(there)
        return found[0]
