r"""Plans for your robot in plain Python: ask, and execute what comes.

    with PlanClient("drone_1") as client:
        done = client.execute(
            "Scene: [chair]\nTask: [A] Find the cat.",
            {"mf": forward, "s": look_for, "g": go_to},
            absent=["tp"],
        )
        print(done.plan)

Your code may block, use several threads, and be an rclpy application itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from timely_llm.core.errors import SkillFailed, TimelyError
from timely_llm.core.request import ErrorCode, PlanRequest, PlanResult
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.ros.client_node import ClientNode
from timely_llm.ros.execution import Executed, Execution, MadeCall, Progress
from timely_llm.ros.pending import PlanClientError, PlanTimeout
from timely_llm.ros.plan_task import PlanTask
from timely_llm.ros.server_client import ServerClient, check_seed

if TYPE_CHECKING:  # it takes a while to import, and only who executes needs it
    from timely_llm.skills.skill_set import SkillSet

__all__ = [
    "Executed", "Execution", "MadeCall", "PlanClient", "PlanClientError", "PlanTask",
    "PlanTimeout", "Progress", "SkillFailed",
]  # fmt: skip


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
        closed_loop: bool | None = None,
    ) -> PlanTask:
        """Ask for a plan and return at once; a refusal comes with its segments or its result.

        Then `execute` it, or read its `segments`, or wait for its `result` alone.

        Args:
            task: what to do, and what the robot sees.
            time_utility: worth of the first segment over time.
            max_tokens: most tokens of the plan; 0: the server's default.
            temperature: 0: always the most likely token; up to 2.
            seed: with a temperature, the same seed gives the same plan.
            request_id: unique; empty: one is made.
            closed_loop: whether the request ends with the execution of its plan, so that the
                failure of any segment, also of the last one, leads to a new plan, or with the
                plan's last word. None: with its execution, if this client executes or reads it,
                else with its last word. True: with its execution, also if another program executes
                and reports.

        Raises:
            RequestError: a field is empty, too large or not a sane number.
            PlanTimeout: there is no server.
            PlanClientError: a request of this id is open, or the client is closed.
        """
        check_seed(seed)
        request = PlanRequest(
            request_id or uuid.uuid4().hex, self.agent, self._skill_set, task, time_utility,
            closed_loop is not False, max_tokens=max_tokens or 1, temperature=temperature,
            seed=seed,
        )  # fmt: skip
        elsewhere = closed_loop is True
        made = PlanTask(request.request_id, self.agent, self, self._skill_set, elsewhere)
        return self._open(made, lambda: self._node.send(request, max_tokens, made))

    def execute(
        self,
        task: str,
        skills: object,
        time_utility: TimeUtility = NORMAL,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        absent: Collection[str] = (),
        otherwise: Callable[..., object] | None = None,
        skill_set: SkillSet | str | Path | None = None,
        timeout_s: float = 30.0,
        max_tokens: int = 0,
        temperature: float = 0.0,
        seed: int = 0,
        request_id: str = "",
    ) -> Executed:
        """Ask for a plan, execute it as it comes, and return what was done: `submit` and `execute`.

        To cancel from another thread, keep what `submit` returns, or `cancel` the request's id.

        Args:
            task: what to do, and what the robot sees.
            skills: a mapping of skills' names to callables, or an object with such methods.
            time_utility: worth of the first segment over time.
            on_progress: called with everything that happens, in the same thread.
            absent: skills that the robot does not have.
            otherwise: called with the `SkillCall` of skills without a callable.
            skill_set: the skill set or its file; None: the server is asked for it.
            timeout_s: how long to wait for each segment, and for the end of the request.
            max_tokens: most tokens of the plan; 0: the server's default.
            temperature: 0: always the most likely token; up to 2.
            seed: with a temperature, the same seed gives the same plan.
            request_id: unique; empty: one is made.

        Raises:
            RequestError: a field is empty, too large or not a sane number.
            PlanTimeout, PlanClientError: as in `submit` and `PlanTask.execute`. Skills without a
                callable are refused before anything is asked.
        """
        from timely_llm.ros.plan_run import callables_of, fitting

        known = fitting(skill_set, self._skill_set, self.skill_set)
        callables_of(known, skills, absent, otherwise)
        asked = self.submit(
            task, time_utility, max_tokens=max_tokens, temperature=temperature, seed=seed,
            request_id=request_id,
        )  # fmt: skip
        return asked.execute(
            skills, on_progress=on_progress, absent=absent, otherwise=otherwise,
            skill_set=known, timeout_s=timeout_s,
        )  # fmt: skip

    def skill_set(self, name: str = "") -> SkillSet:
        """Return a skill set as the server has registered it.

        Args:
            name: empty: this client's own.

        Raises:
            PlanTimeout: there is no server, or it did not answer in time.
            PlanClientError: it has no skill set of this name, or the client is closed.
        """
        from timely_llm.skills.skill_set import parse_skill_set

        name = name or self._skill_set
        self._need_server()
        try:
            answer = self._ask(lambda answered: self._node.ask_skill_set(name, answered))
        except PlanTimeout as error:
            raise PlanTimeout(
                f"{self._node.server} did not answer get_skill_set: pass skill_set= with the file"
            ) from error
        if answer.error_code:
            raise PlanClientError(answer.error_msg, ErrorCode(answer.error_code))
        try:
            return parse_skill_set(answer.yaml, f"skill set {name!r}")
        except TimelyError as error:
            raise PlanClientError(f"the server's {error}") from error

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
