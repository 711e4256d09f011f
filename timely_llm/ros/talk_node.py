"""The ROS side of a client that talks."""

from __future__ import annotations

from timely_llm import msg
from timely_llm.action import Converse
from timely_llm.core.stream import StreamChunk, StreamRequest
from timely_llm.ros import qos
from timely_llm.ros.asking_node import AskingNode, Taker
from timely_llm.ros.stream_conversions import chunk_of, stream_result_of


class TalkNode(AskingNode[Taker[StreamChunk]]):
    """A node that asks for answers."""

    ACTION, NAME = Converse, "converse"

    def send(self, goal: Converse.Goal, request: StreamRequest, answer: Taker[StreamChunk]) -> None:
        """Send a goal; what comes of it goes to the answer."""
        self._ask(goal, request, answer, stream_result_of)

    def _listen(self, server: str) -> None:
        self._hear(
            msg.StreamChunk, f"{server}/stream_chunks", self._taker_of,
            lambda answer, message: answer.offer(chunk_of(message)), qos.TOKENS,
        )  # fmt: skip
