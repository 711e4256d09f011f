"""A fleet in virtual time: each robot asks for its next plan when it has executed the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from timely_llm.core.clock import VirtualClock
from timely_llm.experiments.virtual import workload
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.simulation import (
    SimulationSettings,
    request_for,
    simulated_loop,
    true_seconds,
)
from timely_llm.experiments.virtual.stage import SimulatedClients, SimulatedRobot
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.policies.contract import Policy
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.compose import PLANNING_S
from timely_llm.traces.model import Job, Trace
from timely_llm.traces.tasks import TraceTask

PAUSE_S = PLANNING_S
"""Seconds between the end of a plan and the same robot's next request."""

SPREAD_S = 10.0
"""Robots ask for their first plans at random moments of this many seconds."""


Draw = Callable[[np.random.Generator], Job]
"""Returns a random job; its id, robot and time of arrival do not count."""


def drawn_tasks(tasks: Mapping[str, TraceTask], skill_sets: Mapping[str, SkillSet]) -> Draw:
    """Return what draws jobs of some kinds of tasks, each as likely as the others.

    Args:
        tasks: by name.
        skill_sets: by name.
    """
    names = list(tasks)

    def draw(rng: np.random.Generator) -> Job:
        name = names[int(rng.integers(len(names)))]
        task = tasks[name]
        return Job(
            id=name,
            arrival_s=0.0,
            agent=name,
            task=name,
            skill_set=task.skill_set,
            text=task.text,
            time_utility=task.time_utility,
            skill_times=task.execute(skill_sets[task.skill_set], rng),
            plan=task.plan,
            segment_tokens=task.segment_tokens,
        )

    return draw


def drawn_jobs(jobs: Sequence[Job]) -> Draw:
    """Return what draws some jobs, each as likely as the others."""
    return lambda rng: jobs[int(rng.integers(len(jobs)))]


def robot_works(
    robot: int,
    draw: Draw,
    skill_sets: Mapping[str, SkillSet],
    seed: int,
    prediction_error: float,
) -> Iterator[JobInstance]:
    """Yield the plans of a robot, without end; only the first has its time of arrival.

    The robot's number and the seed determine them, not the fleet and not the policy.

    Args:
        robot: its number.
        draw: its jobs.
        skill_sets: by name.
        seed: of tasks, execution times and the errors of their prediction.
        prediction_error: as in `SimulationSettings`.
    """
    rng = np.random.default_rng([seed, robot])
    first_s = float(rng.uniform(0.0, SPREAD_S))
    for number in count():
        job = replace(
            draw(rng),
            id=f"robot_{robot}.{number}",
            arrival_s=0.0 if number else first_s,
            agent=f"robot_{robot}",
        )
        (work,) = workload.works(
            Trace("fleet", jobs=(job,)), 1, int(rng.integers(2**31)), prediction_error, 0.0, 0,
            skill_sets,
        )  # fmt: skip
        yield work


def simulate_fleet(
    robots: Sequence[Iterator[JobInstance]],
    policy: Policy,
    settings: SimulationSettings,
    until_s: float,
) -> Run:
    """Return the outcomes of the plans that robots of one server asked for before `until_s`.

    A robot asks for its next plan `PAUSE_S` after the end of the last one. The run goes on until
    the last plan has ended.

    Args:
        robots: the plans of each robot, one after the other, without end.
        policy: a new one.
        settings: of the run; `load`, `seed`, `prediction_error`, `true_noise` and `skip` have no
            effect here.
        until_s: end of the window, which begins at 0, on the clock of the first arrivals.
    """
    clock = VirtualClock(0.0)
    clients = _FleetClients(clock, robots, settings, until_s)
    loop, skill_set = simulated_loop(
        lambda key: clients.robots[key].work.pieces, policy, settings, clock
    )
    clients.begin(skill_set)
    return clients.run(
        loop, lambda end_s: clock.advance(max(end_s - clock.now(), 0.0)), lambda done, total: None
    )


class _FleetClients(SimulatedClients):
    """Robots with one plan after the other."""

    def __init__(
        self,
        clock: VirtualClock,
        robots: Sequence[Iterator[JobInstance]],
        settings: SimulationSettings,
        until_s: float,
    ) -> None:
        super().__init__(clock, true_seconds, settings.network_s, settings.reports)
        self._works = robots
        self._by_agent: dict[str, Iterator[JobInstance]] = {}
        self._settings = settings
        self._until_s = until_s
        self._task = workload.task_text(settings.own_tokens)
        self._skill_set = ""

    def begin(self, skill_set: str) -> None:
        """Let each robot ask for its first plan."""
        self._skill_set = skill_set
        for works in self._works:
            work = next(works)
            self._by_agent[work.agent] = works
            self._enter(work)

    def plan_ended(self, robot: SimulatedRobot, at_s: float) -> None:
        """Let the robot ask for its next plan."""
        idle_s = max(robot.free_s, at_s + self._settings.network_s)
        work = next(self._by_agent[robot.work.agent])
        self._enter(replace(work, arrival_s=idle_s + PAUSE_S))

    def _enter(self, work: JobInstance) -> None:
        if work.arrival_s < self._until_s:
            self.enter(work, request_for(work, self._skill_set, self._task, self._settings))
