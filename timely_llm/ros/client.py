r"""Plans for your robot in plain Python: ask, iterate over segments, report.

    with PlanClient("drone_1") as client:
        task = client.submit("Scene: [chair]\nTask: [A] Find the cat.")
        for segment in task.segments():
            task.started(segment)
            fly(segment.calls)
            task.finished(segment)

Your code may block, use several threads, and be an rclpy application itself.
"""

from __future__ import annotations

import uuid

from timely_llm.core.request import PlanRequest, PlanResult
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.ros.client_node import ClientNode
from timely_llm.ros.pending import PlanClientError, PlanTimeout
from timely_llm.ros.plan_task import PlanTask
from timely_llm.ros.server_client import ServerClient, check_seed

__all__ = ["PlanClient", "PlanClientError", "PlanTask", "PlanTimeout"]


class PlanClient(ServerClient[ClientNode, PlanTask]):
    """Asks one plan server for plans, for one robot.

    Args:
        agent: the robot's name.
        skill_set: name of the registered skill set that says what it can do.
        server: name of the server's node.
        namespace: of the server.
        alive_period_s: while requests are open, the server hears that often that the robot lives.
        find_s: how long `submit` waits for the server the first time.
        domain: ROS domain; None: ROS_DOMAIN_ID.

    Raises:
        PlanClientError: ROS cannot be used with these names.
    """

    NODE = ClientNode

    def __init__(
        self,
        agent: str,
        skill_set: str = "drone",
        server: str = "plan_server",
        namespace: str = "",
        *,
        alive_period_s: float = 1.0,
        find_s: float = 10.0,
        domain: int | None = None,
    ) -> None:
        self._skill_set = skill_set
        super().__init__(
            agent, server, namespace, alive_period_s=alive_period_s, find_s=find_s, domain=domain
        )

    def submit(
        self,
        task: str,
        time_utility: TimeUtility = NORMAL,
        *,
        max_tokens: int = 0,
        temperature: float = 0.0,
        seed: int = 0,
        request_id: str = "",
        closed_loop: bool = True,
    ) -> PlanTask:
        """Ask for a plan and return at once; a refusal comes with its segments or its result.

        Args:
            task: what to do, and what the robot sees.
            time_utility: worth of the first segment over time.
            max_tokens: most tokens of the plan; 0: the server's default.
            temperature: 0: always the most likely token; up to 2.
            seed: with a temperature, the same seed gives the same plan.
            request_id: unique; empty: one is made.
            closed_loop: you report what is executed, and the request ends with that: the failure
                of any segment, also of the last one, leads to a new plan.

        Raises:
            RequestError: a field is empty, too large or not a sane number.
            PlanTimeout: there is no server.
            PlanClientError: a request of this id is open, or the client is closed.
        """
        check_seed(seed)
        request = PlanRequest(
            request_id or uuid.uuid4().hex, self.agent, self._skill_set, task, time_utility,
            closed_loop, max_tokens=max_tokens or 1, temperature=temperature, seed=seed,
        )  # fmt: skip
        made = PlanTask(request.request_id, self.agent, self)
        return self._open(made, lambda: self._node.send(request, max_tokens, made))

    def result_of(self, request_id: str, timeout_s: float = 60.0) -> PlanResult:
        """Return how an earlier request ended, also one of a client that is no more.

        One that is still being served is waited for. The server keeps results for a while
        (parameter `result_timeout_s`); those of requests that it refused it does not keep.

        Args:
            request_id: the request's.
            timeout_s: how long to wait for its end.

        Raises:
            PlanTimeout: there is no server, or the request did not end in time.
            PlanClientError: the server knows no such request, or has forgotten it.
        """
        return self._result_of(request_id, PlanResult, timeout_s)
