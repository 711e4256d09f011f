"""The executable `robot_fleet`: simulated robots, each a node, in one process.

A robot asks for plans, executes them and reports. With `use_sim_time`, the time of bursts, skills
and reports is that of /clock.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np
from rclpy.executors import Executor

from timely_llm import srv
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.events.log import EventLog
from timely_llm.core.request import RequestMode
from timely_llm.resources import resource
from timely_llm.robots.tasks import Burst, TaskSet, bursts, load_task_set
from timely_llm.ros.client.inquiries import Inquiries
from timely_llm.ros.client.server_watch import ServerWatch, not_found
from timely_llm.ros.fleet.agents import (
    DRAIN_S,
    LOG,
    MODE,
    SEED,
    SERVER_TIMEOUT,
    AgentsNode,
    run,
    waiting_for,
)
from timely_llm.ros.fleet.robot_node import RobotNode
from timely_llm.ros.parameters import SERVER, NodeParameter
from timely_llm.ros.process import EXECUTOR, spin
from timely_llm.ros.simulation import Simulation
from timely_llm.skills.skill_set import load_skill_set

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
    NodeParameter("open_share", 0.0,
              "share of requests that end with their plan's last token, not with its execution",
              0.0, 1.0),
    NodeParameter("tasks", "", "task set file; empty: drones"),
    NodeParameter("skill_set", "", "skill set file; empty: drones"),
    MODE,
    LOG,
    SERVER_TIMEOUT,
    EXECUTOR,
)  # fmt: skip


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
                values["open_share"],
                self._simulation,
                RequestMode[values["mode"].upper()],
                lambda: self._watch.replaces_plans,
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
