"""A robot that follows its plan by topics, also when another dispatcher has taken it over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from rclpy.node import Node

from timely_llm import msg, srv
from timely_llm.core.request import ExecutionReport, ReportState, Request
from timely_llm.ros import conversions, qos
from timely_llm.ros.conversions import stamped
from timely_llm.ros.fleet.robot_node import RobotNode

ASK_S = 1.0
"""Period of questions how the request ended, seconds."""
PATIENCE_S = 1.0
"""Longest time that a question is on its way, seconds."""
LOST_S = 8.0
"""A request that a dispatcher does not know for this time is lost, seconds: it may take it over."""
HOPE_S = 30.0
"""A request that no dispatcher has known for this time is lost, seconds."""
FORGOTTEN = "no dispatcher knows this request any more"


class Hope:
    """Decides when a request is lost. Pure logic.

    Args:
        now: when it was sent, seconds on the clock of the other calls.
    """

    def __init__(self, now: float) -> None:
        self._known_s, self._unknown_s = now, math.inf

    def known(self, now: float) -> None:
        """Record that a dispatcher knows the request."""
        self._known_s, self._unknown_s = now, math.inf

    def unknown(self, now: float) -> None:
        """Record that a dispatcher does not know the request."""
        self._unknown_s = min(self._unknown_s, now)

    def away(self) -> None:
        """Record that the dispatcher was lost: the next one may take the request over."""
        self._unknown_s = math.inf

    def lost(self, now: float) -> bool:
        """Return whether the request is lost."""
        return now > min(self._unknown_s + LOST_S, self._known_s + HOPE_S)


class TopicSender:
    """Carries one request at a time by topics, and asks from time to time how it ended.

    It looks like `RequestClient` to a robot, and like the goal of its request. A request that is
    not known for a moment, because another dispatcher is just taking it over, is not lost.

    Args:
        node: calls the callbacks when it is spun.
        server: name of the server's node.
        results: client of its service `get_result`.
        resumed: called when the request is known again after it was not.
    """

    def __init__(self, node: Node, server: str, results: Any, resumed: Callable[[], None]) -> None:
        self._node = node
        self._results = results
        self._resumed = resumed
        self._requests = node.create_publisher(
            msg.PlanRequest, f"{server}/plan_requests", qos.reliable()
        )
        self._cancel: Any = node.create_client(srv.CancelRequest, f"{server}/cancel_request")
        self._segments: Any = node.create_client(srv.GetSegments, f"{server}/get_segments")
        for kind, topic, take in (
            (msg.Segment, "segments", self._on_segment),
            (msg.PlanResult, "results", self._on_result),
        ):
            node.create_subscription(kind, f"{server}/{topic}", take, qos.reliable(qos.TOKENS))
        self._request_id = ""
        self._finish: Callable[[Any], None] = lambda result: None
        self._lose: Callable[[str], None] = lambda reason: None
        self._feedback: Callable[[Any], None] = lambda feedback: None
        self._asked_s = 0.0
        self._hope = Hope(0.0)
        self._question: Any = None
        self._away = False
        self.accepted = False

    @property
    def server_is_there(self) -> bool:
        """Whether a request can be sent."""
        return self._requests.get_subscription_count() > 0 and self._results.service_is_ready()

    def send_request(
        self, goal: Any, request: Request, finish: Callable[[Any], None],
        lose: Callable[[str], None], *, on_feedback: Callable[[Any], None],
    ) -> TopicSender:  # fmt: skip
        """Send a request; see `RequestClient.send_request`."""
        self._request_id = request.request_id
        self._finish, self._lose, self._feedback = finish, lose, on_feedback
        self._asked_s = time.monotonic()
        self._hope = Hope(self._asked_s)
        self._question, self._away, self.accepted = None, False, False
        message = msg.PlanRequest()
        for name in goal.get_fields_and_field_types():
            setattr(message, name, getattr(goal, name))
        self._requests.publish(stamped(self._node, message))
        return self

    def cancel(self) -> None:
        """Ask the server to end the request."""
        if self._cancel.service_is_ready():
            self._cancel.call_async(srv.CancelRequest.Request(request_id=self._request_id))

    def away(self) -> None:
        """Record that the server was lost: its messages meanwhile did not come."""
        self._away = True
        self._hope.away()
        self._withdraw()  # its answer may never come
        self._asked_s = -math.inf

    def tick(self) -> None:
        """Ask how the request ended, if that is due."""
        now = time.monotonic()
        if self._request_id and self._hope.lost(now):
            self._withdraw()
            lose, self._request_id = self._lose, ""
            lose(FORGOTTEN)
        if not self._request_id or now < self._asked_s + ASK_S:
            return
        if self._question is not None and now < self._asked_s + PATIENCE_S:
            return
        self._withdraw()
        if not self._results.service_is_ready():
            self._away = True
            return
        self._asked_s = now
        asked = srv.GetResult.Request(request_id=self._request_id)
        self._question = question = self._results.call_async(asked)
        question.add_done_callback(lambda future: self._on_answer(asked.request_id, future))

    def _withdraw(self) -> None:
        if self._question is not None and not self._question.done():
            self._results.remove_pending_request(self._question)
        self._question = None

    def _on_answer(self, request_id: str, future: Any) -> None:
        if request_id != self._request_id or future is not self._question:
            return
        self._question, response, now = None, future.result(), time.monotonic()
        result = conversions.result_in(response)
        if result is not None:
            self._end(result)
        elif response.state == response.UNKNOWN:
            self._away = self._away or self.accepted
            self._hope.unknown(now)
        else:
            self._hope.known(now)
            self.accepted = True
            if self._away and self._segments.service_is_ready():
                self._away = False
                self._resume(request_id)

    def _resume(self, request_id: str) -> None:
        """Take the segments that were delivered meanwhile, and report again."""

        def take(future: Any) -> None:
            for message in future.result().segments:
                self._on_segment(message)
            if request_id == self._request_id:
                self._resumed()

        asked = srv.GetSegments.Request(request_id=request_id)
        self._segments.call_async(asked).add_done_callback(take)

    def _on_segment(self, message: msg.Segment) -> None:
        if self._request_id and message.request_id == self._request_id:
            self._hope.known(time.monotonic())
            self._feedback(SimpleNamespace(segment=message))

    def _on_result(self, message: msg.PlanResult) -> None:
        if self._request_id and message.request_id == self._request_id:
            self._end(conversions.PLAN_RESULT.read(message))

    def _end(self, result: Any) -> None:
        finish, self._request_id = self._finish, ""
        self._withdraw()
        finish(result)


class FollowingRobot(RobotNode):
    """A robot that follows its plans beyond their dispatcher; arguments as in `RobotNode`."""

    sender: TopicSender

    def _make_client(self, server: str, results: Any) -> TopicSender:
        self._reported: list[ExecutionReport] = []
        self.sender = TopicSender(self, server, results, self._report_again)
        return self.sender

    def step(self) -> None:
        """Go on with the plan, and ask how it ended if that is due."""
        self.sender.tick()
        self.tick(self._simulation.seconds())

    def _send(self, report: ExecutionReport) -> None:
        super()._send(report)
        if report.state is ReportState.ALIVE:
            return
        if self._reported and self._place(self._reported[-1]) != self._place(report):
            self._reported.clear()
        self._reported.append(report)

    def _report_again(self) -> None:
        """Send the reports of the present epoch again: the last server may not have got them."""
        for report in self._reported:
            if report.request_id == self.request_id:
                super()._send(report)

    def _place(self, report: ExecutionReport) -> tuple[str, int]:
        return report.request_id, report.epoch
