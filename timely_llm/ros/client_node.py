"""The ROS side of a plan client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from timely_llm import msg
from timely_llm.action import Plan
from timely_llm.core.request import PlanRequest
from timely_llm.core.segment import Segment
from timely_llm.ros import conversions, qos
from timely_llm.ros.asking_node import AskingNode, Finisher


class Taker(Finisher, Protocol):
    """Who waits for a plan: takes its segments, each maybe twice, and its result."""

    @property
    def agent(self) -> str:
        """The robot that asked."""
        ...

    def offer(self, segment: Segment) -> None:
        """Take a segment."""
        ...


class ClientNode(AskingNode):
    """A node that asks for plans.

    Args:
        server: name of the server's node.
        namespace: of the server.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        task_of: finds the open task of a request id.
    """

    ACTION, NAME = Plan, "plan"

    def __init__(
        self,
        server: str,
        namespace: str,
        domain: int | None,
        task_of: Callable[[str], Taker | None],
    ) -> None:
        self._task_of = task_of
        super().__init__(server, namespace, domain)

    def send(self, request: PlanRequest, max_tokens: int, task: Taker) -> None:
        """Send a goal; what comes of it goes to the task."""
        goal = Plan.Goal(
            request_id=request.request_id,
            agent=request.agent,
            skill_set=request.skill_set,
            task=request.task,
            time_utility=conversions.time_utility_message(request.time_utility),
            max_tokens=max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            closed_loop=request.closed_loop,
        )
        self._ask(
            goal, request, task, conversions.result_of,
            lambda message: task.offer(conversions.segment(message.feedback.segment)),
        )  # fmt: skip

    def _listen(self, server: str) -> None:
        self._node.create_subscription(
            msg.Segment, f"{server}/segments", self._on_segment, qos.reliable()
        )

    def _on_segment(self, message: msg.Segment) -> None:
        task = self._task_of(message.request_id)
        if task is not None and task.agent == message.agent:
            task.offer(conversions.segment(message))
