"""A node that sends in a server's name: `spoofer.py`, in the domain of the server.

For each request that it hears of, it publishes segments and tokens of its own, again and again, and
the server's own segments changed; it answers questions for results too.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import rclpy
from action_msgs.msg import GoalStatusArray

from timely_llm import msg, srv
from timely_llm.action import Plan
from timely_llm.core.request import ErrorCode
from timely_llm.ros import qos

SERVER = "plan_server"
PIECES = 24
"""Segments and tokens that are forged in advance for each request."""
PERIOD_S = 0.2
"""Time from forged pieces to the same once more, seconds: a client may not hear the first."""


class Spoofer:
    """Forges what a server sends to robots and people."""

    def __init__(self) -> None:
        self._node = rclpy.create_node("spoofer")
        self._plans: list[msg.PlanRequest] = []
        self._streams: list[msg.StreamRequest] = []
        self._segments = self._publisher(msg.Segment, "segments")
        self._chunks = self._publisher(msg.StreamChunk, "stream_chunks")
        self._feedback = self._publisher(Plan.Impl.FeedbackMessage, "plan/_action/feedback")
        self._hear(msg.PlanRequest, "requests", self._on_plan)
        self._hear(msg.StreamRequest, "streams", self._on_stream)
        self._hear(msg.Segment, "segments", self._on_segment)
        self._hear(GoalStatusArray, "plan/_action/status", self._on_status)
        self._node.create_service(srv.GetResult, f"{SERVER}/get_result", self._on_question)
        self._node.create_timer(PERIOD_S, self._again)
        self._last = msg.Segment()

    def run(self) -> None:
        """Forge until the process is ended."""
        print("spoofs", flush=True)
        rclpy.spin(self._node)

    def _publisher(self, kind: Any, name: str) -> Any:
        return self._node.create_publisher(kind, f"{SERVER}/{name}", qos.reliable())

    def _hear(self, kind: Any, name: str, take: Any) -> None:
        self._node.create_subscription(kind, f"{SERVER}/{name}", take, qos.reliable())

    def _on_plan(self, request: msg.PlanRequest) -> None:
        self._plans.append(request)
        self._forge(request)

    def _again(self) -> None:
        for plan in self._plans:
            self._forge(plan)
        for stream in self._streams:
            self._forge_tokens(stream)

    def _forge(self, request: msg.PlanRequest) -> None:
        for index in range(PIECES):
            call = msg.SkillCall(
                name="mf", arguments=[msg.SkillArgument(name="cm", type=0, value="499")]
            )
            segment = msg.Segment(
                request_id=request.request_id, agent=request.agent, index=index, text="mf(499);",
                calls=[call],
            )  # fmt: skip
            segment.signature = bytes(32)
            self._segments.publish(segment)
            self._last = segment

    def _on_stream(self, request: msg.StreamRequest) -> None:
        self._streams.append(request)
        self._forge_tokens(request)

    def _forge_tokens(self, request: msg.StreamRequest) -> None:
        for index in range(PIECES):
            self._chunks.publish(
                msg.StreamChunk(
                    request_id=request.request_id, agent=request.agent, index=index, text="forged"
                )
            )

    def _on_segment(self, segment: msg.Segment) -> None:
        if segment.text == "mf(499);":
            return
        changed = deepcopy(segment)  # with the server's signature
        changed.index += 1
        changed.text = "mf(499);"
        self._segments.publish(changed)

    def _on_status(self, array: GoalStatusArray) -> None:
        for status in array.status_list:
            message = Plan.Impl.FeedbackMessage(goal_id=status.goal_info.goal_id)
            message.feedback.segment = self._last
            self._feedback.publish(message)

    def _on_question(
        self, request: srv.GetResult.Request, response: srv.GetResult.Response
    ) -> srv.GetResult.Response:
        response.state = response.PLAN
        response.plan = msg.PlanResult(
            request_id=request.request_id, agent="tester", error_code=int(ErrorCode.CANCELED),
            error_msg="forged",
        )  # fmt: skip
        return response


if __name__ == "__main__":
    rclpy.init()
    Spoofer().run()
