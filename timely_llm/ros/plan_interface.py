"""What robots call: the action `plan`, its topics, and the service that asks and does not wait."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from rclpy.node import Node

from timely_llm import msg, srv
from timely_llm.action import Plan
from timely_llm.core.request import PlanRequest, PlanResult
from timely_llm.core.segment import Segment
from timely_llm.ros import conversions, qos
from timely_llm.ros.lane import Lane
from timely_llm.ros.notices import Notices
from timely_llm.serving.server import Server


class PlanInterface(Lane[PlanRequest, PlanResult]):
    """The lane of plans.

    Attributes:
        max_tokens: most tokens of a plan whose request says nothing.
    """

    ACTION, NAME = Plan, "plan"
    MESSAGE, TOPIC = msg.PlanRequest, "~/plan_requests"
    RESULT = PlanResult

    def __init__(self, node: Node, configured: Callable[[], Server], notices: Notices) -> None:
        super().__init__(node, configured, notices)
        self.max_tokens = 0
        self._segments = qos.publisher(node, msg.Segment, "~/segments")
        self._requests = qos.publisher(node, msg.PlanRequest, "~/requests")
        self._results = qos.publisher(node, msg.PlanResult, "~/results")

    def accepted(self, request: PlanRequest) -> None:
        """Publish a request that was let in, whichever way it came."""
        self._requests.publish(conversions.request_message(request))

    def segment(self, segment: Segment) -> None:
        """Publish a segment on the topic, and to the goal it belongs to as feedback."""
        message = conversions.segment_message(segment)
        self._segments.publish(message)
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

    def _publish_result(self, result: PlanResult) -> None:
        self._results.publish(conversions.result_message(result))

    def _goal_result(self, result: PlanResult) -> Plan.Result:
        return conversions.plan_result(result)
