"""The ROS side of a client that talks."""

from __future__ import annotations

from collections.abc import Callable

from timely_llm import msg
from timely_llm.action import Converse
from timely_llm.core.stream import StreamRequest
from timely_llm.ros import qos
from timely_llm.ros.answer import Answer
from timely_llm.ros.asking_node import AskingNode
from timely_llm.ros.stream_conversions import chunk_of, stream_result_of


class TalkNode(AskingNode):
    """A node that asks for answers.

    It hears all tokens and takes its own: a content filter would be worked out by the server, for
    each token and each reader.

    Args:
        server: name of the server's node.
        namespace: of the server.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        answer_of: finds the open answer of a request id.
    """

    ACTION, NAME = Converse, "converse"

    def __init__(
        self,
        server: str,
        namespace: str,
        domain: int | None,
        answer_of: Callable[[str], Answer | None],
    ) -> None:
        self._answer_of = answer_of
        super().__init__(server, namespace, domain)

    def send(self, goal: Converse.Goal, request: StreamRequest, answer: Answer) -> None:
        """Send a goal; what comes of it goes to the answer."""
        self._ask(goal, request, answer, stream_result_of)

    def _listen(self, server: str) -> None:
        self._node.create_subscription(
            msg.StreamChunk, f"{server}/stream_chunks", self._on_chunk, qos.reliable(qos.TOKENS)
        )  # fmt: skip

    def _on_chunk(self, message: msg.StreamChunk) -> None:
        answer = self._answer_of(message.request_id)
        if answer is not None and answer.agent == message.agent:
            answer.offer(chunk_of(message))
