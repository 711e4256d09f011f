"""The ROS side of a plan client."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from timely_llm import msg, srv
from timely_llm.action import Plan
from timely_llm.core.request import PlanRequest
from timely_llm.core.segment import Segment
from timely_llm.ros import conversions, qos
from timely_llm.ros.asking_node import AskingNode, Taker


class ClientNode(AskingNode[Taker[Segment]]):
    """A node that asks for plans."""

    ACTION, NAME = Plan, "plan"

    def send(self, request: PlanRequest, max_tokens: int, task: Taker[Segment]) -> None:
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

    def ask_skill_set(self, name: str, answered: Future[Any]) -> bool:
        """Ask the server for a skill set; return whether it is there to be asked."""
        if not self._skill_sets.service_is_ready():
            return False
        sent = self._skill_sets.call_async(srv.GetSkillSet.Request(name=name))
        sent.add_done_callback(lambda future: answered.set_result(future.result()))
        return True

    def _listen(self, server: str) -> None:
        self._skill_sets: Any = self._node.create_client(
            srv.GetSkillSet, f"{server}/get_skill_set", qos_profile=qos.reliable()
        )
        self._hear(
            msg.Segment, f"{server}/segments", self._taker_of,
            lambda task, message: task.offer(conversions.segment(message)),
        )  # fmt: skip
