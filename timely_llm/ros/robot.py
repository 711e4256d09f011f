"""A simulated robot as a ROS node: asks for plans, executes them, reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rclpy.action import ActionClient
from rclpy.action.client import ClientGoalHandle
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.task import Future
from rclpy.timer import Timer

from timely_llm import msg
from timely_llm.action import Plan
from timely_llm.core.errors import PlanError
from timely_llm.core.journal import Journal
from timely_llm.core.request import ErrorCode, ExecutionReport, ReportState
from timely_llm.robots.execution import Happening, PlanRun
from timely_llm.robots.tasks import Task
from timely_llm.ros import conversions
from timely_llm.skills.skill_set import SkillSet


class Job:
    """One task of a robot, from asking to its end."""

    def __init__(self, request_id: str, task: Task, run: PlanRun) -> None:
        self.request_id = request_id
        self.task = task
        self.run = run
        self.handle: ClientGoalHandle[Any, Any, Any] | None = None
        self.result: Plan.Result | None = None
        self.canceled = False
        self.said_returned = False


class Robot(Node):
    """One robot; its plans come from the server's action `plan`.

    Args:
        agent: its name, also the node's.
        server: name of the plan server's node, for its topics.
        skill_set: what it can do.
        rng: randomness of its durations.
        journal: takes what happens to it.
    """

    def __init__(
        self,
        agent: str,
        server: str,
        skill_set: SkillSet,
        rng: np.random.Generator,
        journal: Journal,
    ) -> None:
        super().__init__(agent)
        self.agent = agent
        self._skill_set = skill_set
        self._rng = rng
        self._journal = journal
        self._job: Job | None = None
        self._count = 0
        self._timer: Timer | None = None
        reliable = QoSProfile(depth=256, reliability=ReliabilityPolicy.RELIABLE)
        self._client: ActionClient[Any, Any, Any] = ActionClient(
            self, Plan, "plan", feedback_sub_qos_profile=reliable
        )
        topic = f"{server}/execution_reports"
        self._reports = self.create_publisher(msg.ExecutionReport, topic, reliable)
        journal.write("robot", time.monotonic(), agent=agent)

    @property
    def busy(self) -> bool:
        """Whether it has a task."""
        return self._job is not None

    @property
    def in_emergency(self) -> bool:
        """Whether its task is urgent."""
        return self._job is not None and self._job.task.urgent

    def wait_for_server(self, timeout_s: float) -> bool:
        """Wait until the plan action is there; return whether it is."""
        return self._client.wait_for_server(timeout_s)

    def ask(self, task: Task) -> None:
        """Ask for a plan; a task in work is canceled."""
        if self._job is not None:
            self._cancel(self._job)
        self._count += 1
        request_id = f"{self.agent}-{self._count}"
        now, utility = time.monotonic(), task.time_utility
        job = Job(request_id, task, PlanRun(self._skill_set, task.world, self._rng, now))
        self._job = job
        self._journal.write(
            "ask", now, id=request_id, agent=self.agent, urgent=task.urgent, task=task.text,
            beta=utility.beta, alpha=utility.alpha, ert_s=utility.ert_s,
        )  # fmt: skip
        goal = Plan.Goal(
            request_id=request_id,
            agent=self.agent,
            skill_set=self._skill_set.name,
            task=task.text,
            time_utility=conversions.time_utility_message(utility),
        )
        sent = self._client.send_goal_async(
            goal, lambda message: self._on_segment(job, message.feedback.segment)
        )
        sent.add_done_callback(lambda future: self._on_accepted(job, _answer(future)))

    def stop(self) -> None:
        """Cancel the task in work."""
        if self._job is not None:
            self._cancel(self._job)

    def _on_accepted(self, job: Job, handle: ClientGoalHandle[Any, Any, Any]) -> None:
        job.handle = handle
        if job.canceled:
            handle.cancel_goal_async()
        handle.get_result_async().add_done_callback(
            lambda future: self._on_result(job, _answer(future).result)
        )

    def _on_segment(self, job: Job, segment: msg.Segment) -> None:
        if job is not self._job:
            return
        now = time.monotonic()
        self._journal.write(
            "receive", now, id=job.request_id, index=segment.index, final=segment.final
        )
        self._execute(job, lambda: job.run.receive(segment.index, segment.text, segment.final, now))

    def _on_result(self, job: Job, result: Plan.Result) -> None:
        job.result = result
        if job is not self._job:
            return
        if result.error_code == ErrorCode.NONE:
            # Feedback that was lost to discovery is made up for by the whole plan.
            self._execute(job, lambda: job.run.complete(result.plan, time.monotonic()))
        else:
            self._after(job)

    def _execute(self, job: Job, work: Callable[[], None]) -> None:
        """Execute something of a plan; what this robot cannot read, it reports as failed."""
        try:
            work()
        except PlanError as error:
            self.get_logger().error(f"{job.request_id}: {error}")
            self._send(job, ReportState.FAILED, value=str(error))
            self._end(job, "failed")
            return
        self._after(job)

    def _wake(self, job: Job) -> None:
        self._drop_timer()
        if job is self._job:
            job.run.wake(time.monotonic())
            self._after(job)

    def _after(self, job: Job) -> None:
        """Report what happened, set the timer for what is running, see whether the job ended."""
        for happening in job.run.drain():
            self._report(job, happening)
        if job.run.wake_s is not None and self._timer is None:
            pause_s = max(job.run.wake_s - time.monotonic(), 0.0)
            self._timer = self.create_timer(pause_s, lambda: self._wake(job))
        if job.run.returned and job.result is None and not job.said_returned:
            job.said_returned = True
            self._send(job, ReportState.RETURNED)
        if job.result is None:
            return
        if job.result.error_code != ErrorCode.NONE:
            self._end(job, "error")
        elif job.run.ended:
            self._end(job, "finished")

    def _report(self, job: Job, happening: Happening) -> None:
        if happening.kind == "call":
            self._journal.write(
                "call", happening.at_s, id=job.request_id, index=happening.index,
                call=str(happening.call), s=round(happening.duration_s, 6),
            )  # fmt: skip
        elif happening.kind == "started":
            self._journal.write("start", happening.at_s, id=job.request_id, index=happening.index)
            self._send(job, ReportState.STARTED, happening.index)
        else:
            self._journal.write(
                "finish", happening.at_s, id=job.request_id, index=happening.index,
                skipped=happening.skipped,
            )  # fmt: skip
            self._send(job, ReportState.FINISHED, happening.index, happening.duration_s)

    def _send(
        self, job: Job, state: ReportState, index: int = 0, duration_s: float = 0.0, value: str = ""
    ) -> None:
        report = ExecutionReport(job.request_id, self.agent, state, index, duration_s, value)
        self._reports.publish(conversions.report_message(report))

    def _cancel(self, job: Job) -> None:
        job.canceled = True
        if job.handle is not None and job.result is None:
            job.handle.cancel_goal_async()
        self._end(job, "canceled")

    def _end(self, job: Job, outcome: str) -> None:
        self._job = None
        self._drop_timer()
        result, run = job.result or Plan.Result(), job.run
        served = run.response_s >= 0
        utility = job.task.time_utility.clamped(run.response_s) if served else 0.0
        self._journal.write(
            "done", time.monotonic(), id=job.request_id, agent=self.agent,
            urgent=job.task.urgent, outcome=outcome, error_code=result.error_code,
            error_msg=result.error_msg, response_s=round(run.response_s, 6),
            waiting_s=round(run.waiting_s, 6), utility=round(utility, 6), plan=result.plan,
            segments=run.segments, prompt_tokens=result.prompt_tokens,
            generated_tokens=result.generated_tokens,
            recomputed_tokens=result.recomputed_tokens,
        )  # fmt: skip

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self.destroy_timer(self._timer)
            self._timer = None


def _answer(future: Future[Any]) -> Any:
    """Return what a finished future holds."""
    return future.result()
