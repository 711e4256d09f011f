"""The executable `robot_fleet`: simulated robots, each a node, in one process.

A robot asks for plans, executes them and reports. With `use_sim_time`, the time of bursts, skills
and reports is that of /clock.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from rclpy.executors import Executor
from rclpy.parameter import Parameter

from timely_llm import msg, srv
from timely_llm.action import Plan
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.events.log import EventLog
from timely_llm.core.events.schema import (
    AskEvent,
    CallEvent,
    DoneEvent,
    FailEvent,
    FinishEvent,
    ReceiveEvent,
    ReturnedEvent,
    RobotEvent,
    RunEvent,
    StartEvent,
)
from timely_llm.core.request import ErrorCode, ExecutionReport, PlanRequest, PlanResult, ReportState
from timely_llm.core.segment import Segment
from timely_llm.resources import resource
from timely_llm.robots.epoch_run import ExecutionEvent
from timely_llm.robots.execution import PlanExecution
from timely_llm.robots.plan_follower import PlanFollower
from timely_llm.robots.tasks import Burst, Task, TaskSet, bursts, load_task_set
from timely_llm.ros import conversions, qos
from timely_llm.ros.client.inquiries import Inquiries
from timely_llm.ros.client.server_watch import ServerWatch, not_found
from timely_llm.ros.conversions import stamped
from timely_llm.ros.fleet.agents import (
    ALIVE_PERIOD_S,
    DRAIN_S,
    LOG,
    SEED,
    SERVER_TIMEOUT,
    AgentsNode,
    run,
    waiting_for,
)
from timely_llm.ros.goal_client import RequestClient, SentGoal
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.parameters import SERVER, NodeParameter
from timely_llm.ros.process import EXECUTOR, spin
from timely_llm.ros.simulation import Simulation
from timely_llm.skills.skill_set import SkillSet, load_skill_set

TICK_S = 0.02
FAREWELL_S = 0.3
PARAMETERS = (
    NodeParameter("robots", 8, "simulated robots", 1, 512),
    NodeParameter("duration_s", 60.0, "seconds in which robots ask for plans", 0.1, 1e6),
    SEED,
    SERVER,
    NodeParameter("events_per_s", 0.5, "mean bursts of tasks a second", 0.001, 1000.0),
    NodeParameter("max_tasks", 8, "most robots that one burst gives a task", 1, 512),
    NodeParameter("urgent_share", 0.375, "share of tasks that are urgent", 0.0, 1.0),
    NodeParameter("failure_share", 0.0,
              "share of segments that robots cannot execute, so that new plans are asked for",
              0.0, 1.0),
    NodeParameter("tasks", "", "task set file; empty: drones"),
    NodeParameter("skill_set", "", "skill set file; empty: drones"),
    LOG,
    SERVER_TIMEOUT,
    EXECUTOR,
)  # fmt: skip


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
        self.goal: SentGoal | None = None

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
        simulation: the robot's time and the stamps of its messages; None: its own node's.
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
        simulation: Simulation | None = None,
    ) -> None:
        # One node of the process listens to /clock; that is enough.
        others = [Parameter("use_sim_time", value=False)] if simulation else []
        super().__init__(agent, parameter_overrides=others)
        self._simulation = simulation or Simulation(self)
        self.agent = agent
        self._skill_set = skill_set
        self._rng = rng
        # A stream of its own: failures do not change durations.
        self._failures = rng.spawn(1)[0]
        self._failure_share = failure_share
        self._reasons = list(reasons)
        self._event_log = event_log
        self._job: RobotJob | None = None
        self._count = 0
        self._alive_s = 0.0
        self._client = RequestClient(self, Plan, "plan", server, results)
        topic = f"{server}/execution_reports"
        self._reports = self.create_publisher(msg.ExecutionReport, topic, qos.reliable())
        event_log.write(RobotEvent(time.monotonic(), agent))

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
        request = PlanRequest(
            request_id, self.agent, self._skill_set.name, task.text, utility, closed_loop=True
        )
        job = RobotJob(request, task, self._follower(task))
        self._job, self._alive_s = job, 0.0
        self._event_log.write(
            AskEvent(
                now, request_id, self.agent, task.urgent, task.text,
                utility.beta, utility.alpha, utility.ert_s,
            )
        )  # fmt: skip
        # The server's own limit of tokens.
        goal = Plan.Goal(**(conversions.PLAN_REQUEST.fields(request) | {"max_tokens": 0}))
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

        return PlanFollower(new_run, self._failure)

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
            ReceiveEvent(now, job.request_id, segment.index, segment.epoch, segment.final)
        )
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


class RobotFleet(AgentsNode):
    """Gives the robots their tasks, in bursts at Poisson times.

    Args:
        collector: takes all events, beside the file of the parameter `log`.
    """

    def __init__(self, collector: EventLog) -> None:
        super().__init__("robot_fleet", PARAMETERS, collector)
        values = self.values
        self._simulation = Simulation(self)
        skill_set = load_skill_set(values["skill_set"] or resource("config/skill_sets/drone.yaml"))
        self._tasks: TaskSet = load_task_set(values["tasks"] or resource("config/tasks/drone.yaml"))
        # Arrivals, texts and each robot's durations are separate streams of one seed: a robot's
        # execution never changes the tasks of another.
        arrivals, self._texts, *seeds = np.random.default_rng(values["seed"]).spawn(
            2 + values["robots"]
        )
        results: Any = self.create_client(srv.GetResult, f"{values['server']}/get_result")
        self.robots = [
            RobotNode(
                f"robot_{i}",
                values["server"],
                results,
                skill_set,
                seed,
                self.event_log,
                values["failure_share"],
                self._tasks.failures,
                self._simulation,
            )
            for i, seed in enumerate(seeds)
        ]
        self._choice = arrivals.spawn(1)[0]
        self._bursts = bursts(
            arrivals, values["events_per_s"], values["max_tasks"], values["urgent_share"]
        )
        self._duration_s = values["duration_s"]
        self._next: Burst = next(self._bursts)
        self._began_s = self._skipped_s = 0.0
        self._by_agent = {robot.agent: robot for robot in self.robots}
        name = self.resolve_service_name(values["server"])
        self._inquiries = Inquiries(results, self._robot_with, name)
        self._watch = ServerWatch(self, values["server"], self._inquiries.hurry)

    def begin(self, executor: Executor) -> None:
        """Wait for the server and start the clock; raises as `AgentsNode.begin`."""

        def search() -> bool:
            self._look_after_server()
            return not self._watch.fits

        for robot in self.robots:
            executor.add_node(robot)
        limit_s = self.values["server_timeout_s"]
        spin(executor, search, limit_s)
        if search():
            raise ConfigurationError(not_found(self._watch.server, limit_s))
        # The clock starts with the first burst, so that robots are not idle at first.
        self._began_s = self._simulation.seconds()
        self._skipped_s = self._next.time_s
        self.get_logger().info(f"{len(self.robots)} robots ask for {self._duration_s:g} s")

    def tick(self) -> bool:
        """Let robots go on and give them due tasks; return whether there is more to do."""
        self._simulation.log_changes(time.monotonic())
        now = self._simulation.seconds()
        self._look_after_server()
        for robot in self.robots:
            robot.tick(now)
        elapsed_s = now - self._began_s
        while self._next.time_s - self._skipped_s <= min(elapsed_s, self._duration_s):
            self._give(self._next)
            self._next = next(self._bursts)
        if elapsed_s < self._duration_s:
            return True
        return any(r.busy for r in self.robots) and elapsed_s < self._duration_s + DRAIN_S

    def pause_s(self) -> float:
        """Return the seconds until a skill ends, at most one tick."""
        due_s = min(robot.wake_s for robot in self.robots)
        return min(max(due_s - self._simulation.seconds(), 0.0), TICK_S)

    def _give(self, burst: Burst) -> None:
        """Give a burst's tasks to different robots; an urgent task replaces a normal one."""
        order = self._choice.permutation(len(self.robots))
        for index, urgent in zip(order, burst.urgent, strict=False):
            task = self._tasks.draw(urgent, self._texts)
            robot = self.robots[int(index)]
            free = not robot.busy or (urgent and not robot.in_emergency)
            if free and self._watch.fits:
                robot.ask(task)
                self._inquiries.open(robot.request_id, period_s=math.inf)

    def _look_after_server(self) -> None:
        lost = self._watch.lost()
        if lost:
            self._inquiries.clear()
        self._inquiries.tick()
        robots = self.robots
        self._check_server(
            self._watch, robots, lost, lambda: all(robot.server_is_there for robot in robots)
        )

    def _robot_with(self, request_id: str) -> RobotNode | None:
        """Return the robot that waits for a request."""
        return waiting_for(request_id, self._by_agent)

    def stop(self, executor: Executor) -> None:
        """Cancel all open requests, and give the cancellations time to reach the server."""
        for robot in self.robots:
            robot.stop()
        spin(executor, timeout_s=FAREWELL_S)


def main(args: list[str] | None = None, collector: EventLog | None = None) -> int:
    """Run the fleet until it has finished or is interrupted; return the exit status."""
    return run("robot_fleet", RobotFleet, args, collector)


if __name__ == "__main__":
    sys.exit(main())
