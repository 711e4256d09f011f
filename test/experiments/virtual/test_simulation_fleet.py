"""Fleets in virtual time: each robot has one plan after the other."""

from __future__ import annotations

from itertools import islice, pairwise

from timely_llm.experiments.sources import shipped_skill_sets, shipped_tasks
from timely_llm.experiments.virtual.outcome import JobOutcome, Run
from timely_llm.experiments.virtual.simulation import (
    PAUSE_S,
    SPREAD_S,
    SimulationSettings,
    drawn_tasks,
    robot_works,
    simulate_fleet,
)
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.policies.registry import make_policy

UNTIL_S = 30.0


def works(robot: int, count: int = 200, seed: int = 0) -> list[JobInstance]:
    tasks = {name: shipped_tasks().tasks[name] for name in ("1", "2", "6")}
    skill_sets = shipped_skill_sets()
    return list(
        islice(robot_works(robot, drawn_tasks(tasks, skill_sets), skill_sets, seed, 0.2), count)
    )


def fleet(robots: int, policy: str = "stream") -> Run:
    queues = [iter(works(robot)) for robot in range(robots)]
    return simulate_fleet(queues, make_policy(policy), SimulationSettings(), UNTIL_S)


def of(run: Run, robot: int) -> list[JobOutcome]:
    return [one for one in run.outcomes if one.work.agent == f"robot_{robot}"]


def test_the_tasks_of_a_robot_depend_on_its_number_and_the_seed_only() -> None:
    assert works(3, 5) == works(3, 5)
    assert works(3, 5) != works(4, 5)
    assert works(3, 5) != works(3, 5, seed=1)
    assert 0 <= works(3, 1)[0].arrival_s <= SPREAD_S


def test_a_robot_asks_again_after_its_plan_was_executed() -> None:
    made = fleet(2)
    assert all(one.finished for one in made.outcomes)
    for robot in range(2):
        mine = of(made, robot)
        assert len(mine) > 2
        assert [one.work.id for one in mine] == [f"robot_{robot}.{n}" for n in range(len(mine))]
        for one, later in pairwise(mine):
            assert later.work.arrival_s >= one.segments[-1].end_s + PAUSE_S - 1e-9
        assert mine[-1].work.arrival_s < UNTIL_S <= mine[-1].segments[-1].end_s + PAUSE_S + 1.0


def test_every_policy_serves_the_same_tasks_in_the_same_order() -> None:
    first, second = fleet(3), fleet(3, "deadline")
    for robot in range(3):
        pairs = zip(of(first, robot), of(second, robot), strict=False)
        assert all(a.work.parts == b.work.parts for a, b in pairs)


def test_more_robots_at_one_server_wait_longer() -> None:
    alone, many = fleet(1), fleet(40)
    assert of(many, 0)[0].response_s >= of(alone, 0)[0].response_s
    assert sum(o.response_s for o in many.outcomes) / len(many.outcomes) > sum(
        o.response_s for o in alone.outcomes
    ) / len(alone.outcomes)
