"""One simulated robot: a node that asks for plans, executes them and reports."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from rclpy.parameter import Parameter

from timely_llm import msg
from timely_llm.action import Plan
from timely_llm.core.events.log import EventLog
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import (
    AskEvent,
    CallEvent,
    DoneEvent,
    FailEvent,
    FinishEvent,
    ReceiveEvent,
    ReturnedEvent,
    RobotEvent,
    StartEvent,
)
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    ReportState,
    Request,
    RequestMode,
)
from timely_llm.core.segment import Segment
from timely_llm.robots.epoch_run import ExecutionEvent
from timely_llm.robots.execution import PlanExecution
from timely_llm.robots.plan_follower import PlanFollower
from timely_llm.robots.tasks import Task
from timely_llm.ros import conversions, qos
from timely_llm.ros.client.goal_client import RequestClient
from timely_llm.ros.conversions import stamped
from timely_llm.ros.fleet.agents import ALIVE_PERIOD_S
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.simulation import Simulation
from timely_llm.skills.skill_set import SkillSet


class PlanGoal(Protocol):
    """A request that was sent."""

    @property
    def accepted(self) -> bool:
        """Whether the server has accepted it."""
        ...

    def cancel(self) -> None:
        """Ask the server to end it."""
        ...


class PlanSender(Protocol):
    """Carries requests to one server; as `RequestClient`."""

    @property
    def server_is_there(self) -> bool:
        """Whether a request can be sent."""
        ...

    def send_request(
        self, goal: Any, request: Request, finish: Callable[[Any], None],
        lose: Callable[[str], None], *, on_feedback: Callable[[Any], None],
    ) -> PlanGoal:  # fmt: skip
        """Send a request; see `RequestClient.send_request`."""
        ...


class RobotJob:
    """One task of a robot, from its request to its end.

    Args:
        request: its request.
        task: the task.
        plan: executes the plan.

    Attributes:
        goal: the request's goal; None before it is sent.
    """

    def __init__(self, request: PlanRequest, task: Task, plan: PlanFollower[PlanExecution]) -> None:
        self.request = request
        self.request_id = request.request_id
        self.task = task
        self.plan = plan
        self.goal: PlanGoal | None = None

    def done(self, now: float, agent: str, outcome: str) -> DoneEvent:
        """Return the event of its end.

        Args:
            now: seconds on the machine's monotonic clock.
            agent: the robot.
            outcome: finished, canceled, failed or error.
        """
        result, runs = self.plan.result or PlanResult("", "", ErrorCode.NONE, ""), self.plan.runs
        response_s = runs[0].response_s
        utility = self.task.time_utility.clamped(response_s) if response_s >= 0 else 0.0
        return DoneEvent(
            t=now,
            id=self.request_id,
            agent=agent,
            outcome=outcome,
            urgent=self.task.urgent,
            error_code=int(result.error_code),
            error_msg=result.error_msg,
            response_s=round(response_s, 6),
            waiting_s=round(sum(run.waiting_s for run in runs), 6),
            utility=round(utility, 6),
            plan=result.plan,
            epochs=len(runs),
            segments=sum(run.segments for run in runs),
            prompt_tokens=result.prompt_tokens,
            generated_tokens=result.generated_tokens,
            recomputed_tokens=result.recomputed_tokens,
            helped=result.mode_used is RequestMode.PROGRESSIVE,
            cloud_tokens=result.cloud_tokens,
            cloud_s=round(result.cloud_time_s, 6),
            fallback=result.fallback,
        )


class RobotNode(Guarded):
    """One robot; its plans come from the server's action `~/plan`.

    Args:
        agent: name of the robot and of its node.
        server: name of the plan server's node.
        results: client of its service `get_result`.
        skill_set: the robot's skills.
        rng: randomness of durations and failures.
        event_log: takes the robot's events, at times of the machine's monotonic clock.
        failure_share: share of segments that the robot cannot execute.
        reasons: reasons of these failures.
        open_share: share of requests that end with the last token of their plan.
        simulation: the robot's time and the stamps of its messages; None: its own node's.
        mode: the author of its plans.
        replaces: returns whether the server replaces plans that did not fail.
    """

    def __init__(
        self,
        agent: str,
        server: str,
        results: Any,
        skill_set: SkillSet,
        rng: np.random.Generator,
        event_log: EventLog,
        failure_share: float = 0.0,
        reasons: Sequence[str] = ("something is in the way",),
        open_share: float = 0.0,
        simulation: Simulation | None = None,
        mode: RequestMode = RequestMode.DIRECT,
        replaces: Callable[[], bool] = lambda: False,
    ) -> None:
        # One node of the process listens to /clock; that is enough.
        others = [Parameter("use_sim_time", value=False)] if simulation else []
        super().__init__(agent, parameter_overrides=others)
        self._simulation = simulation or Simulation(self)
        self.agent = agent
        self._skill_set = skill_set
        self._rng = rng
        # A stream of its own: failures do not change durations.
        self._failures, self._loops = rng.spawn(2)
        self._failure_share = failure_share
        self._open_share = open_share
        self._mode = mode
        self._replaces = replaces
        self._reasons = list(reasons)
        self._event_log = event_log
        self._job: RobotJob | None = None
        self._count = 0
        self._alive_s = 0.0
        self._client = self._make_client(server, results)
        topic = f"{server}/execution_reports"
        self._reports = self.create_publisher(msg.ExecutionReport, topic, qos.reliable())
        event_log.write(RobotEvent(time.monotonic(), agent))

    def _make_client(self, server: str, results: Any) -> PlanSender:
        """Return what carries requests to the server."""
        return RequestClient(self, Plan, "plan", server, results)

    @property
    def busy(self) -> bool:
        """Whether the robot has a task."""
        return self._job is not None

    @property
    def request_id(self) -> str:
        """Id of the open request; empty: there is none."""
        return self._job.request_id if self._job is not None else ""

    @property
    def in_emergency(self) -> bool:
        """Whether the robot's task is urgent."""
        return self._job is not None and self._job.task.urgent

    @property
    def wake_s(self) -> float:
        """When the running skill ends, in the robot's time; infinite: none runs."""
        job = self._job
        return math.inf if job is None else job.plan.wake_s

    def tick(self, now: float) -> None:
        """Go on with the plan, and send a sign of life if it is due.

        Args:
            now: the robot's time, seconds.
        """
        job = self._job
        if job is None:
            return
        # Signs of life keep to the wall clock, also while the simulator stands still.
        if time.monotonic() >= self._alive_s + ALIVE_PERIOD_S:
            self._alive_s = time.monotonic()
            self._send(
                ExecutionReport(job.request_id, self.agent, ReportState.ALIVE, epoch=job.plan.epoch)
            )
        if now >= self.wake_s:
            job.plan.wake(now)
            self._after(job)

    @property
    def server_is_there(self) -> bool:
        """Whether the plan action can take goals."""
        return self._client.server_is_there

    def ask(self, task: Task) -> None:
        """Ask for a plan of a task; cancel the open request."""
        if self._job is not None:
            self._cancel(self._job)
        self._count += 1
        request_id = f"{self.agent}-{self._count}"
        now, utility = time.monotonic(), task.time_utility
        closed_loop = self._loops.random() >= self._open_share
        request = PlanRequest(
            request_id, self.agent, self._skill_set.name, task.text, utility, closed_loop,
            mode=self._mode,
        )  # fmt: skip
        job = RobotJob(request, task, self._follower(task))
        self._job, self._alive_s = job, 0.0
        self._event_log.write(
            AskEvent(
                now, request_id, self.agent, task.urgent, task.text,
                utility.beta, utility.alpha, utility.ert_s,
                self._mode.name.lower() if self._mode else "",
            )
        )  # fmt: skip
        # The server's own limit of tokens.
        goal = conversions.PLAN_REQUEST.message(request, Plan.Goal)
        goal.max_tokens = 0
        job.goal = self._client.send_request(
            goal,
            request,
            lambda result: self._on_result(job, result),
            lambda reason: self._lose(job, reason),
            on_feedback=lambda feedback: self._on_segment(
                job, conversions.SEGMENT.read(feedback.segment)
            ),
        )

    def finish(self, result: PlanResult) -> None:
        """Take the result of the open request, if it did not come by the action."""
        job = self._job
        if job is not None and job.plan.result is None and job.request_id == result.request_id:
            self._on_result(job, result)

    def lose(self, reason: str) -> None:
        """End the open request: its server is gone, or has forgotten it."""
        if self._job is not None:
            self._lose(self._job, reason)

    def stop(self) -> None:
        """Cancel the open request."""
        if self._job is not None:
            self._cancel(self._job)

    def _follower(self, task: Task) -> PlanFollower[PlanExecution]:
        def new_run() -> PlanExecution:
            seconds = self._simulation.seconds()
            return PlanExecution(self._skill_set, task.world, self._rng, seconds)

        return PlanFollower(new_run, self._failure, replaces=self._replaces)

    def _failure(self, event: ExecutionEvent) -> str:
        """Return the reason of a random failure of a segment; empty: it did not fail."""
        if event.skipped or self._failures.random() >= self._failure_share:
            return ""
        return str(self._failures.choice(self._reasons))

    def _on_segment(self, job: RobotJob, segment: Segment) -> None:
        if job is not self._job or not job.plan.offer(segment, self._simulation.seconds()):
            return
        now = time.monotonic()
        self._event_log.write(
            ReceiveEvent(
                now, job.request_id, segment.index, segment.epoch, segment.final, segment.text,
                segment.predicted_s,
            )
        )  # fmt: skip
        self._after(job)

    def _on_result(self, job: RobotJob, result: PlanResult) -> None:
        # The whole plan in the result replaces feedback that was lost before discovery.
        if job is self._job:
            job.plan.finish(result, self._simulation.seconds())
            self._after(job)

    def _lose(self, job: RobotJob, reason: str) -> None:
        if job is self._job and job.plan.result is None:
            lost = job.request.refused(ErrorCode.SHUTTING_DOWN, reason)
            job.plan.finish(lost, self._simulation.seconds())
            if job.goal is not None and not job.goal.accepted:
                job.goal.cancel()  # the server may still accept it
            self._end(job, "error")

    def _after(self, job: RobotJob) -> None:
        """Report the plan's events, and end the job if the plan has ended."""
        for event in job.plan.drain():
            self._report(job, event)
        if job.plan.ending:
            self._end(job, job.plan.ending)

    def _report(self, job: RobotJob, event: ExecutionEvent) -> None:
        now, key, index, epoch = time.monotonic(), job.request_id, event.index, job.plan.epoch
        happened: RunEvent
        match event.kind:
            case "call":
                happened = CallEvent(now, key, index, str(event.call), round(event.duration_s, 6))
            case "started":
                happened = StartEvent(now, key, index, epoch)
            case "finished":
                happened = FinishEvent(now, key, index, epoch, event.skipped)
            case "failed":
                if event.unreadable:
                    self.get_logger().error(f"{key}: {event.reason}")
                happened = FailEvent(now, key, index, epoch, event.reason)
            case "returned":
                happened = ReturnedEvent(now, key, epoch)
        self._event_log.write(happened)
        report = event.report(job.request_id, self.agent, epoch)
        if report is not None:
            self._send(report)

    def _send(self, report: ExecutionReport) -> None:
        message = conversions.EXECUTION_REPORT.message(report)
        self._reports.publish(stamped(self._simulation.node, message))

    def _cancel(self, job: RobotJob) -> None:
        if job.goal is not None and job.plan.result is None:
            job.goal.cancel()
        self._end(job, "canceled")

    def _end(self, job: RobotJob, outcome: str) -> None:
        self._job = None
        self._event_log.write(job.done(time.monotonic(), self.agent, outcome))
