"""A node that answers in a server's name, so that clients give up: `forger.py REFUSES`.

It answers each question of the services for clients, and the services of the action `plan`. The
argument says what becomes of a goal. `refuses`: it is refused. `denies`: it ends with
NOT_AUTHENTICATED. `replays`: it gets the signed segments and the signed result of a request
`first...`; the node answers nothing before it has them. `echoes`: the same with the segments alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import rclpy
from action_msgs.msg import GoalStatus, GoalStatusArray
from rcl_interfaces.msg import ParameterType, ParameterValue
from rcl_interfaces.srv import GetParameters
from rclpy.qos import qos_profile_action_status_default
from std_msgs.msg import UInt32

from timely_llm import msg, srv
from timely_llm.action import Plan
from timely_llm.core.request import ErrorCode
from timely_llm.ros import interface_number, qos

SERVER = "plan_server"
FIRST = "first"
SEGMENTS = 3
"""Segments of a request that is recorded, at least: discovery may lose some."""
RECORDING = ("replays", "echoes")
PERIOD_S = 0.05
DESCRIPTION = "a forged robot"
ACTION: Any = Plan.Impl


class Forger:
    """Answers in the name of a server.

    Args:
        way: the argument of the command.
    """

    def __init__(self, way: str) -> None:
        self._way = way
        self._node = rclpy.create_node("forger")
        self._begun = False
        self._heard: dict[str, dict[int, msg.Segment]] = {}  # by request and index
        self._segments: list[msg.Segment] = []
        self._goals: list[Any] = []  # open ones
        self._result: Any = None  # of the action, signed
        name = f"{SERVER}/plan/_action"
        self._asks: Any = self._node.create_client(ACTION.GetResultService, f"{name}/get_result")
        self._feedback = self._node.create_publisher(
            ACTION.FeedbackMessage, f"{name}/feedback", qos.reliable()
        )
        hear = self._node.create_subscription
        hear(msg.Segment, f"{SERVER}/segments", self._on_segment, qos.reliable())
        latched = qos_profile_action_status_default
        hear(GoalStatusArray, f"{name}/status", self._on_status, latched)
        self._node.create_timer(PERIOD_S, self._on_time)

    def run(self) -> None:
        """Forge until the process is ended."""
        print("hears", flush=True)
        rclpy.spin(self._node)

    def _on_time(self) -> None:
        if not self._begun and (self._way not in RECORDING or self._result is not None):
            self._begun = True
            if self._way != "echoes":
                self._offer()
            print("begins", flush=True)
        for goal in self._goals if self._result is not None else ():
            for segment in self._segments:
                piece = Plan.Feedback(segment=segment)
                self._feedback.publish(ACTION.FeedbackMessage(goal_id=goal, feedback=piece))
            print("replays", flush=True)

    def _offer(self) -> None:
        for kind, name, answer in (
            (srv.GetIdentity, "get_identity", self._identity),
            (srv.GetResult, "get_result", lambda _, response: response),  # UNKNOWN
            (srv.GetSegments, "get_segments", lambda _, response: response),  # there are none
            (srv.GetSkillSet, "get_skill_set", self._skill_set),
            (GetParameters, "get_parameters", self._parameters),
            (ACTION.SendGoalService, "plan/_action/send_goal", self._on_goal),
            (ACTION.GetResultService, "plan/_action/get_result", self._on_result),
            (srv.ListRequests, "list_requests", lambda _, response: response),  # there are none
        ):
            self._node.create_service(kind, f"{SERVER}/{name}", self._saying(name, answer))
        # It also seems to live, whatever becomes of the server.
        topic = interface_number.TOPIC.replace("~", SERVER)
        profile = interface_number.lively(interface_number.ANNOUNCED_S)
        self._shown = self._node.create_publisher(UInt32, topic, profile)

    def _saying(self, name: str, answer: Any) -> Any:
        def answered(request: Any, response: Any) -> Any:
            made = answer(request, response)
            print(f"answers {name}", flush=True)
            return made

        return answered

    def _identity(self, _: Any, response: srv.GetIdentity.Response) -> srv.GetIdentity.Response:
        response.interface, response.challenge = interface_number.INTERFACE, "forged"
        response.signature = bytes(32)
        return response

    def _skill_set(self, _: Any, response: srv.GetSkillSet.Response) -> srv.GetSkillSet.Response:
        skills = Path(__file__).with_name("patient.yaml").read_text()
        response.yaml = skills.replace("a robot that is asked at each turn", DESCRIPTION)
        return response

    def _parameters(
        self, request: GetParameters.Request, response: GetParameters.Response
    ) -> GetParameters.Response:
        seven = ParameterValue(type=ParameterType.PARAMETER_INTEGER, integer_value=7)
        response.values = [seven for _ in request.names]
        return response

    def _on_goal(self, _: Any, response: Any) -> Any:
        response.accepted = self._way != "refuses"
        return response

    def _on_result(self, _: Any, response: Any) -> Any:
        response.status = GoalStatus.STATUS_ABORTED
        response.result = Plan.Result(
            error_code=int(ErrorCode.NOT_AUTHENTICATED), error_msg="forged"
        )
        if self._result is not None:
            response.status, response.result = GoalStatus.STATUS_SUCCEEDED, self._result
        return response

    def _on_segment(self, segment: msg.Segment) -> None:
        if segment.request_id.startswith(FIRST):
            self._heard.setdefault(segment.request_id, {})[segment.index] = segment

    def _on_status(self, array: GoalStatusArray) -> None:
        ended = GoalStatus.STATUS_SUCCEEDED  # and larger numbers
        self._goals = [one.goal_info.goal_id for one in array.status_list if one.status < ended]
        for one in array.status_list:
            goal = one.goal_info.goal_id
            if one.status == GoalStatus.STATUS_SUCCEEDED and not self._begun:
                asked = self._asks.call_async(ACTION.GetResultService.Request(goal_id=goal))
                asked.add_done_callback(self._on_recorded)

    def _on_recorded(self, future: Any) -> None:
        result = future.result().result
        heard = self._heard.get(result.request_id, {})
        if self._result is None and len(heard) >= SEGMENTS:
            self._result, self._segments = result, list(heard.values())


if __name__ == "__main__":
    rclpy.init()
    Forger(sys.argv[1]).run()
