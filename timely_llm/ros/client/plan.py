r"""Plans for your robot in plain Python: ask for a plan, and execute it as it comes.

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

import time
import uuid
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from timely_llm import msg, srv
from timely_llm.core.arguments import kind, text
from timely_llm.core.errors import RequestError, SkillFailed, TimelyError
from timely_llm.core.request import PlanRequest, PlanResult, check_name
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.robots.client.call_log import CallLog
from timely_llm.robots.client.execution import Executed, MadeCall, Progress
from timely_llm.robots.client.open_plan import Execution
from timely_llm.robots.client.pending import PlanClientError, PlanTimeout, ServerLost
from timely_llm.robots.client.plan_task import PlanTask
from timely_llm.robots.client.taking_up import PlanTakingUp
from timely_llm.ros import conversions
from timely_llm.ros.client.node import ClientNode
from timely_llm.ros.client.session import ServerClient, check_mode, check_sampling

if TYPE_CHECKING:  # its import takes a while, and only an execution needs it
    from timely_llm.skills.skill_set import SkillSet

__all__ = [
    "CallLog", "Executed", "Execution", "MadeCall", "PlanClient", "PlanClientError", "PlanTask",
    "PlanTimeout", "Progress", "ServerLost", "SkillFailed",
]  # fmt: skip

HEAR_S = 2.0
"""Longest wait of a simulated robot for the first message on /clock, seconds of the wall."""


class PlanClient(ServerClient[ClientNode, PlanTask, PlanResult]):
    """Asks one plan server for plans of one robot.

    Args:
        agent: the robot's name.
        skill_set: name of the registered skill set of the robot.
        server: name of the server's node.
        namespace: of the server.
        alive_period_s: period of the signs of life while requests are open, seconds.
        find_s: longest wait of `submit` for the server, seconds.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        use_sim_time: the robot is simulated: durations of its skills are measured on /clock, and
            `Execution.wait` waits for it. The server must have `use_sim_time` too. Time-outs of
            this client are seconds of the wall.
        key_file: file with the robot's key, which signs what this client sends; what its server
            did not sign is dropped. None: nothing is signed.
        recovery_s: longest pause of a plan while its server is gone, seconds, if that one has
            a recovery journal or is a dispatcher; 0: the plan ends with `ServerLost`.
        accept_unsigned: with a key, take what a server without `agent_keys`, or a dispatcher, sends
            too: any node can send in its name.

    Raises:
        PlanClientError: ROS cannot use these names, or the key cannot be used.
    """

    NODE, KIND, RESULT = ClientNode, msg.RequestStatus.PLAN, PlanResult
    TAKING_UP = PlanTakingUp

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
        use_sim_time: bool = False,
        key_file: str | Path | None = None,
        recovery_s: float = 30.0,
        accept_unsigned: bool = False,
    ) -> None:
        try:
            check_name("skill_set", skill_set)
        except RequestError as error:
            raise PlanClientError(str(error)) from error
        self._skill_set = skill_set
        super().__init__(
            agent, server, namespace, alive_period_s=alive_period_s, find_s=find_s, domain=domain,
            use_sim_time=use_sim_time, key_file=key_file, accept_unsigned=accept_unsigned,
            recovery_s=recovery_s,
        )  # fmt: skip

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
        plan: str | None = None,
        mode: str = "direct",
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
            closed_loop: True: the request ends with the execution of its plan, so that the failure
                of any segment, also of the last one, leads to a new plan; another program may
                execute and report. False: the request ends with the plan's last token. None: with
                its execution if this client executes or reads the plan, else with its last token.
            plan: a plan written by hand, which the server checks, cuts and times like one of its
                model; the task may be empty then. None: the model makes the plan. The server needs
                `accept_plans`. A failed segment ends the request with EXECUTION_FAILED: the model
                does not continue such a plan.
            mode: the plan's author: `direct`: the server alone; `progressive`: a cloud names the
                steps, and the server plans them; `auto`: the server chooses. Without a cloud the
                server writes all alone, and `fallback` of the result says why.

        Raises:
            RequestError: a field is empty, too large or not a sane number.
            PlanTimeout: there is no server.
            PlanClientError: a request of this id is open, or the client is closed.
        """
        max_tokens, temperature, seed = check_sampling(max_tokens, temperature, seed)
        if closed_loop is not None:
            kind("closed_loop", closed_loop, bool)
        if plan is not None and not text("the given plan", plan).strip():
            raise RequestError("the given plan is empty: leave it out if the model shall make one")
        request = PlanRequest(
            text("request_id", request_id) or uuid.uuid4().hex, self.agent, self._skill_set, task,
            time_utility, closed_loop is not False, plan or "", max_tokens=max_tokens or 1,
            temperature=temperature, seed=seed, mode=check_mode(mode),
        )  # fmt: skip
        if self._use_sim_time:
            self._node.simulation.await_clock(HEAR_S)
        elsewhere = closed_loop is True
        made = PlanTask(
            request.request_id, self.agent, self, self._skill_set, elsewhere, self._seconds,
            self._replaces,
        )  # fmt: skip
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
        plan: str | None = None,
        log: CallLog | None = None,
        mode: str = "direct",
    ) -> Executed:
        """Ask for a plan, execute it as it comes, and return what was done: `submit` and `execute`.

        To cancel from another thread, keep the task that `submit` returns, or `cancel` the
        request's id.

        Args:
            task: what to do, and what the robot sees.
            skills: a mapping of skills' names to callables, or an object with such methods.
            time_utility: worth of the first segment over time.
            on_progress: called with each event, in the same thread.
            absent: skills that the robot does not have.
            otherwise: called with the `SkillCall` of skills without a callable.
            skill_set: the skill set or its file; None: the server is asked for it.
            timeout_s: longest wait for each segment, and for the end of the request.
            max_tokens: most tokens of the plan; 0: the server's default.
            temperature: 0: always the most likely token; up to 2.
            seed: with a temperature, the same seed gives the same plan.
            request_id: unique; empty: one is made.
            plan: a plan written by hand, as in `submit`; None: the model makes the plan.
            log: keeps the calls for `resume`.
            mode: the plan's author, as in `submit`.

        Raises:
            RequestError: a field is empty, too large or not a sane number.
            PlanTimeout, PlanClientError: as in `submit` and `PlanTask.execute`. Skills without a
                callable are refused before the request is sent.
        """
        from timely_llm.robots.client.plan_run import check_execution, fitting
        from timely_llm.skills.callables import Callables

        check_execution(on_progress, absent, skill_set, timeout_s, log)
        known = fitting(skill_set, self._skill_set, self.skill_set)
        Callables(known, skills, absent, otherwise, PlanClientError)  # refuses what does not fit
        asked = self.submit(
            task, time_utility, max_tokens=max_tokens, temperature=temperature, seed=seed,
            request_id=request_id, plan=plan, mode=mode,
        )  # fmt: skip
        return asked.execute(
            skills, on_progress=on_progress, absent=absent, otherwise=otherwise,
            skill_set=known, timeout_s=timeout_s, log=log,
        )  # fmt: skip

    @property
    def _seconds(self) -> Callable[[], float]:
        """Return the robot's time."""
        return self._node.simulation.seconds if self._use_sim_time else time.monotonic

    def _replaces(self) -> bool:
        """Return whether the server replaces plans that did not fail."""
        return self._node.watch.replaces_plans

    def resume(self, request_id: str) -> PlanTask:
        """Return a plan that the server still serves, for a robot that was restarted.

        The segments of the newest epoch come again from the first one, and new ones follow.
        `execute` the plan with the former `CallLog`, so that no call is made twice. Reports
        continue. A robot that is away is silent: the server ends its requests after
        `client_timeout_s`.

        Args:
            request_id: of this agent; see `running` and `CallLog.request_id`.

        Raises:
            PlanTimeout: there is no server.
            PlanClientError: the server does not serve it, or it is another agent's.
        """
        if not request_id:
            raise PlanClientError("which plan is to be resumed: give the id of its request")
        made = PlanTask(
            request_id, self.agent, self, self._skill_set, seconds=self._seconds,
            replaces=self._replaces, resumed=True,
        )  # fmt: skip
        task = self._open(made, lambda: self._node.follow(request_id))
        try:
            answer = self._ask(partial(self._node.ask_segments, request_id, self.agent))
            if answer.error_code:
                raise refusal(answer)
            task.adopt(map(conversions.SEGMENT.read, answer.segments))
        except TimelyError as error:
            task.close(str(error))
            raise
        return task

    def skill_set(self, name: str = "") -> SkillSet:
        """Return a skill set as the server has registered it.

        Args:
            name: empty: this client's own.

        Raises:
            PlanTimeout: there is no server, or it did not answer in time.
            PlanClientError: the server has no skill set of this name, or the client is closed.
        """
        from timely_llm.skills.skill_set import parse_skill_set

        name = text("the name of a skill set", name) or self._skill_set
        self._need_server()
        try:
            answer = self._ask(lambda answered: self._node.ask_skill_set(name, answered))
        except PlanTimeout as error:
            raise PlanTimeout(
                f"{self._node.server} did not answer get_skill_set: pass skill_set= with the file"
            ) from error
        if answer.error_code:
            raise refusal(answer)
        try:
            return parse_skill_set(answer.yaml, f"skill set {name!r}")
        except TimelyError as error:
            raise PlanClientError(f"the server's {error}") from error


def refusal(answer: srv.GetSegments.Response | srv.GetSkillSet.Response) -> PlanClientError:
    """Return the error in a server's answer; a code of a later release is ENGINE_FAILED."""
    return PlanClientError(answer.error_msg, conversions.error_code(answer.error_code))
