"""One robot of a fleet, and a server that refuses or forgets its goal: real nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest
import rclpy
from action_msgs.msg import GoalStatus
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import qos_profile_action_status_default

from timely_llm import msg, srv
from timely_llm.action import Plan
from timely_llm.core.events.log import MemoryEventLog
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import DoneEvent, FailEvent
from timely_llm.core.request import ErrorCode, PlanRequest
from timely_llm.resources import resource
from timely_llm.robots.tasks import load_task_set
from timely_llm.ros import qos
from timely_llm.ros.client.goal_client import RequestClient
from timely_llm.ros.fleet.robot_node import RobotNode
from timely_llm.skills.skill_set import load_skill_set

WAIT_S = 20.0
SERVER = "plan_server"
AnyEvent = TypeVar("AnyEvent", bound=RunEvent)


class Scene:
    """A robot, and an action server: the test sets its answers.

    Attributes:
        accepts: whether goals are accepted; their results are unknown then.
        kept: the answer of `get_result`.
        events: of the robot.
    """

    def __init__(self) -> None:
        self.accepts = True
        self.kept = srv.GetResult.Response()
        self.server = Node(SERVER)
        action: Any = Plan.Impl
        for kind, name, answer in (
            (action.SendGoalService, "plan/_action/send_goal", self._on_goal),
            (action.GetResultService, "plan/_action/get_result", self._on_result),
            (action.CancelGoalService, "plan/_action/cancel_goal", lambda _, response: response),
            (srv.GetResult, "get_result", lambda *_: self.kept),
        ):
            self.server.create_service(kind, f"{SERVER}/{name}", answer)
        feedback, status = f"{SERVER}/plan/_action/feedback", f"{SERVER}/plan/_action/status"
        self.server.create_publisher(action.FeedbackMessage, feedback, qos.reliable())
        latched = qos_profile_action_status_default
        self.server.create_publisher(action.GoalStatusMessage, status, latched)
        self.events = MemoryEventLog()
        self.results: Any = self.server.create_client(srv.GetResult, f"{SERVER}/get_result")
        self.robot = RobotNode(
            "robot_0", SERVER, self.results,
            load_skill_set(resource("config/skill_sets/drone.yaml")),
            np.random.default_rng(0), self.events,
        )  # fmt: skip
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.server)
        self.executor.add_node(self.robot)

    def until(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end_s, self.events.events
            self.executor.spin_once(timeout_sec=0.05)

    def done(self) -> DoneEvent:
        """Let the robot ask for a plan; return the end of its task."""
        self.until(lambda: self.robot.server_is_there and self.results.service_is_ready())
        tasks = load_task_set(resource("config/tasks/drone.yaml"))
        self.robot.ask(tasks.draw(False, np.random.default_rng(0)))
        self.until(lambda: not self.robot.busy)
        (done,) = self.all(DoneEvent)
        return done

    def all(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        return [event for event in self.events.events if isinstance(event, kind)]

    def _on_goal(self, _: Any, response: Any) -> Any:
        response.accepted = self.accepts
        return response

    def _on_result(self, _: Any, response: Any) -> Any:
        response.status = GoalStatus.STATUS_UNKNOWN
        return response


@pytest.fixture
def scene(domain: int) -> Iterator[Scene]:
    rclpy.init(args=[], domain_id=domain)
    try:
        made = Scene()
        yield made
        made.executor.shutdown()
        made.robot.destroy_node()
        made.server.destroy_node()
    finally:
        rclpy.try_shutdown()


def test_a_refused_goal_ends_the_task_with_an_error_and_no_report_of_a_failure(
    scene: Scene,
) -> None:
    scene.accepts = False
    done = scene.done()
    assert (done.outcome, done.error_code) == ("error", ErrorCode.INVALID_REQUEST)
    assert done.error_msg == "the server did not accept the goal"
    assert not scene.all(FailEvent)


def test_a_forgotten_goal_ends_the_task_with_the_server_that_forgot_it(scene: Scene) -> None:
    done = scene.done()
    assert (done.outcome, done.error_code) == ("error", ErrorCode.SHUTTING_DOWN)
    assert done.error_msg == "the server /plan_server does not know this request any more"
    assert not scene.all(FailEvent)


def test_a_client_can_ask_for_the_result_of_a_forgotten_goal_itself(scene: Scene) -> None:
    client = RequestClient(scene.robot, Plan, "plan", SERVER, scene.results)
    scene.until(lambda: client.server_is_there)
    request = PlanRequest("r", "robot_0", "drone", "Look.")
    happened: list[Any] = []
    client.send_request(
        Plan.Goal(), request, happened.append, happened.append,
        on_ended=lambda: happened.append("ended"),
        on_forgotten=lambda: happened.append("forgotten"),
    )  # fmt: skip
    scene.until(lambda: bool(happened))
    for _ in range(10):
        scene.executor.spin_once(timeout_sec=0.05)
    assert happened == ["forgotten"]


def test_a_forgotten_goal_has_the_result_that_the_server_kept(scene: Scene) -> None:
    scene.kept.state = srv.GetResult.Response.PLAN
    kept = msg.PlanResult(request_id="robot_0-1", agent="robot_0", plan="->True;", segments=1)
    scene.kept.plan = kept
    done = scene.done()
    assert (done.outcome, done.error_code, done.plan) == ("finished", ErrorCode.NONE, "->True;")
