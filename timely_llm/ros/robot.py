"""A simulated robot as a ROS node: asks for plans, executes them, reports."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rclpy.action import ActionClient
from rclpy.action.client import ClientGoalHandle
from rclpy.task import Future

from timely_llm import msg
from timely_llm.action import Plan
from timely_llm.core.errors import PlanError
from timely_llm.core.journal import Journal
from timely_llm.core.request import ErrorCode, ExecutionReport, ReportState
from timely_llm.robots.execution import Happening, PlanRun
from timely_llm.robots.tasks import Task
from timely_llm.ros import conversions, qos
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.job import Job
from timely_llm.skills.skill_set import SkillSet

ALIVE_PERIOD_S = 1.0


class Robot(Guarded):
    """One robot; its plans come from the server's action `plan`.

    Args:
        agent: its name, also the node's.
        server: name of the plan server's node, for its topics.
        skill_set: what it can do.
        rng: randomness of its durations and failures.
        journal: takes what happens to it.
        failure_share: share of segments that it cannot execute.
        reasons: why not.
    """

    def __init__(
        self,
        agent: str,
        server: str,
        skill_set: SkillSet,
        rng: np.random.Generator,
        journal: Journal,
        failure_share: float = 0.0,
        reasons: Sequence[str] = ("something is in the way",),
    ) -> None:
        super().__init__(agent)
        self.agent = agent
        self._skill_set = skill_set
        self._rng = rng
        # A stream of its own: failures do not change how long things take.
        self._failures = rng.spawn(1)[0]
        self._failure_share = failure_share
        self._reasons = list(reasons)
        self._journal = journal
        self._job: Job | None = None
        self._count = 0
        self._alive_s = 0.0
        self._client: ActionClient[Any, Any, Any] = ActionClient(
            self, Plan, "plan", **qos.of_action("sub")
        )
        topic = f"{server}/execution_reports"
        self._reports = self.create_publisher(msg.ExecutionReport, topic, qos.reliable())
        journal.write("robot", time.monotonic(), agent=agent)

    @property
    def busy(self) -> bool:
        """Whether it has a task."""
        return self._job is not None

    @property
    def in_emergency(self) -> bool:
        """Whether its task is urgent."""
        return self._job is not None and self._job.task.urgent

    @property
    def wake_s(self) -> float:
        """When the running skill ends, on the monotonic clock; infinite if none runs."""
        job = self._job
        return math.inf if job is None or job.failed else job.run.next_wake_s

    def tick(self, now: float) -> None:
        """Go on with what is due: the plan, and a sign of life."""
        job = self._job
        if job is None:
            return
        if now >= self._alive_s + ALIVE_PERIOD_S:
            self._alive_s = now
            self._send(job, ReportState.ALIVE)
        if now >= self.wake_s:
            job.run.wake(now)
            self._after(job)

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
        job = Job(request_id, task, self._new_run(task, now))
        self._job, self._alive_s = job, 0.0
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
            closed_loop=True,
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

    def _new_run(self, task: Task, now: float) -> PlanRun:
        return PlanRun(self._skill_set, task.world, self._rng, now)

    def _on_segment(self, job: Job, segment: msg.Segment) -> None:
        if job is not self._job or not self._follow(job, segment.epoch):
            return
        now = time.monotonic()
        self._journal.write(
            "receive", now, id=job.request_id, index=segment.index, epoch=segment.epoch,
            final=segment.final,
        )  # fmt: skip
        self._execute(
            job,
            segment.index,
            lambda: job.run.receive(segment.index, segment.text, segment.final, now),
        )

    def _follow(self, job: Job, epoch: int) -> bool:
        """Go over to a newer epoch; return whether `epoch` is what is being executed."""
        if epoch > job.epoch:
            job.begin(epoch, self._new_run(job.task, time.monotonic()))
        return epoch == job.epoch and not job.failed

    def _on_result(self, job: Job, result: Plan.Result) -> None:
        job.result = result
        if job is not self._job:
            return
        if result.error_code == ErrorCode.NONE and self._follow(job, result.epoch):
            # Feedback that was lost to discovery is made up for by the whole plan.
            last = job.run.segments
            self._execute(job, last, lambda: job.run.complete(result.plan, time.monotonic()))
        else:
            self._after(job)

    def _execute(self, job: Job, index: int, work: Callable[[], None]) -> None:
        """Execute something of a plan; what this robot cannot read, it reports as failed."""
        try:
            work()
        except PlanError as error:
            self.get_logger().error(f"{job.request_id}: {error}")
            self._fail(job, index, str(error))
        self._after(job)

    def _after(self, job: Job) -> None:
        """Report what happened, see whether the job ended."""
        for happening in job.run.drain():
            if not job.failed:
                self._report(job, happening)
        if job.run.returned and job.result is None and not (job.failed or job.said_returned):
            job.said_returned = True
            self._journal.write("returned", time.monotonic(), id=job.request_id, epoch=job.epoch)
            self._send(job, ReportState.RETURNED)
        if job.result is None:
            return
        if job.result.error_code != ErrorCode.NONE:
            self._end(job, "error")
        elif job.failed:  # its plan was complete already, nobody makes a new one
            self._end(job, "failed")
        elif job.run.ended:
            self._end(job, "finished")

    def _report(self, job: Job, happening: Happening) -> None:
        if happening.kind == "call":
            self._journal.write(
                "call", happening.at_s, id=job.request_id, index=happening.index,
                call=str(happening.call), s=round(happening.duration_s, 6),
            )  # fmt: skip
        elif happening.kind == "started":
            self._journal.write(
                "start", happening.at_s, id=job.request_id, index=happening.index, epoch=job.epoch
            )
            self._send(job, ReportState.STARTED, happening.index)
        elif not happening.skipped and self._failures.random() < self._failure_share:
            reason = str(self._failures.choice(self._reasons))
            self._fail(job, happening.index, reason, happening.duration_s)
        else:
            self._journal.write(
                "finish", happening.at_s, id=job.request_id, index=happening.index,
                epoch=job.epoch, skipped=happening.skipped,
            )  # fmt: skip
            value = conversions.value_text(happening.value)
            self._send(job, ReportState.FINISHED, happening.index, happening.duration_s, value)

    def _fail(self, job: Job, index: int, reason: str, duration_s: float = 0.0) -> None:
        """Stop executing, and wait for the next epoch's segments."""
        job.failed = True
        self._journal.write(
            "fail", time.monotonic(), id=job.request_id, index=index, epoch=job.epoch,
            reason=reason,
        )  # fmt: skip
        self._send(job, ReportState.FAILED, index, duration_s, reason)

    def _send(
        self, job: Job, state: ReportState, index: int = 0, duration_s: float = 0.0, value: str = ""
    ) -> None:
        report = ExecutionReport(
            job.request_id, self.agent, state, index, duration_s, value, job.epoch
        )
        self._reports.publish(conversions.report_message(report))

    def _cancel(self, job: Job) -> None:
        job.canceled = True
        if job.handle is not None and job.result is None:
            job.handle.cancel_goal_async()
        self._end(job, "canceled")

    def _end(self, job: Job, outcome: str) -> None:
        self._job = None
        self._journal.write(
            "done", time.monotonic(), id=job.request_id, agent=self.agent, outcome=outcome,
            **job.outcome(),
        )  # fmt: skip


def _answer(future: Future[Any]) -> Any:
    """Return what a finished future holds."""
    return future.result()
