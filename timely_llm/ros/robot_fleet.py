"""The executable `robot_fleet`: simulated robots, each a node, in one process."""

from __future__ import annotations

import sys
import time

import numpy as np

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.journal import FileJournal, Journal, NoJournal
from timely_llm.resources import resource
from timely_llm.robots.arrivals import Burst, bursts
from timely_llm.robots.tasks import TaskSet, load_task_set
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.parameters import Parameter, declare
from timely_llm.ros.robot import Robot
from timely_llm.ros.spinning import EXECUTOR, executor_of, exit_status, ros, spin, undisturbed
from timely_llm.skills.skill_set import load_skill_set

DRAIN_S = 15.0
TICK_S = 0.02
FAREWELL_S = 0.3
PARAMETERS = (
    Parameter("robots", 8, "simulated robots", 1, 512),
    Parameter("duration_s", 60.0, "seconds in which robots ask for plans", 0.1, 1e6),
    Parameter("seed", 0, "seed of everything random", 0, 2**31 - 1),
    Parameter("server", "plan_server", "name of the plan server's node"),
    Parameter("events_per_s", 0.5, "mean bursts of tasks a second", 0.001, 1000.0),
    Parameter("max_tasks", 8, "most robots that one burst gives a task", 1, 512),
    Parameter("urgent_share", 0.375, "share of tasks that are urgent", 0.0, 1.0),
    Parameter("failure_share", 0.0,
              "share of segments that robots cannot execute, so that new plans are asked for",
              0.0, 1.0),
    Parameter("tasks", "", "task set file; empty: drones"),
    Parameter("skill_set", "", "skill set file; empty: drones"),
    Parameter("log", "", "write what happens to this file as JSON lines; empty: do not"),
    Parameter("server_timeout_s", 60.0, "seconds to wait for the plan server", 0.1, 3600.0),
    EXECUTOR,
)  # fmt: skip


class RobotFleet(Guarded):
    """Gives the robots their tasks, in bursts at Poisson times."""

    def __init__(self) -> None:
        super().__init__("robot_fleet")
        self.values = values = declare(self, PARAMETERS)
        skill_set = load_skill_set(values["skill_set"] or resource("config/skill_sets/drone.yaml"))
        self._tasks: TaskSet = load_task_set(values["tasks"] or resource("config/tasks/drone.yaml"))
        journal: Journal = FileJournal(values["log"]) if values["log"] else NoJournal()
        # Arrivals, texts and each robot's durations are separate streams of one seed: what one
        # robot does never changes what another is asked.
        arrivals, self._texts, *seeds = np.random.default_rng(values["seed"]).spawn(
            2 + values["robots"]
        )
        self.robots = [
            Robot(
                f"robot_{i}",
                values["server"],
                skill_set,
                seed,
                journal,
                values["failure_share"],
                self._tasks.failures,
            )
            for i, seed in enumerate(seeds)
        ]
        self._choice = arrivals.spawn(1)[0]
        self._bursts = bursts(
            arrivals, values["events_per_s"], values["max_tasks"], values["urgent_share"]
        )
        self._duration_s = values["duration_s"]
        self._timeout_s = values["server_timeout_s"]
        self._next: Burst = next(self._bursts)
        self._began_s = self._skipped_s = 0.0

    def begin(self) -> None:
        """Wait for the server and start the clock.

        Raises:
            ConfigurationError: the server is not there in time.
        """
        deadline_s = time.monotonic() + self._timeout_s
        for robot in self.robots:
            if not robot.wait_for_server(max(deadline_s - time.monotonic(), 0.0)):
                raise ConfigurationError(
                    f"no plan server answered within {self._timeout_s:g} s: is it running, "
                    "in the same ROS_DOMAIN_ID?"
                )
        # The clock starts with the first burst: nobody wants to watch idle robots.
        self._began_s = time.monotonic()
        self._skipped_s = self._next.time_s
        self.get_logger().info(f"{len(self.robots)} robots ask for {self._duration_s:g} s")

    def tick(self) -> bool:
        """Let robots go on and hand out tasks that are due; return whether there is more to do."""
        now = time.monotonic()
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
        """Return how long nothing is due, in seconds."""
        due_s = min(robot.wake_s for robot in self.robots)
        return min(max(due_s - time.monotonic(), 0.0), TICK_S)

    def _give(self, burst: Burst) -> None:
        """Give a burst's tasks to different robots; a normal plan is dropped for an urgent one."""
        order = self._choice.permutation(len(self.robots))
        for index, urgent in zip(order, burst.urgent, strict=False):
            task = self._tasks.draw(urgent, self._texts)
            robot = self.robots[int(index)]
            if not robot.busy or (urgent and not robot.in_emergency):
                robot.ask(task)

    def stop(self) -> None:
        """Cancel what is in work."""
        for robot in self.robots:
            robot.stop()


def main(args: list[str] | None = None) -> int:
    """Run the fleet until it has finished or is interrupted; return the exit status."""

    def work() -> None:
        with ros(args):
            fleet = RobotFleet()
            with executor_of(fleet.values["executor"]) as executor:
                for node in (fleet, *fleet.robots):
                    executor.add_node(node)
                try:
                    fleet.begin()
                    spin(executor, fleet.tick, poll_s=fleet.pause_s)
                finally:
                    with undisturbed():
                        # Cancellations must reach the server.
                        fleet.stop()
                        spin(executor, timeout_s=FAREWELL_S)

    return exit_status("robot_fleet", work)


if __name__ == "__main__":
    sys.exit(main())
