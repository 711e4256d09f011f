"""Skill sets of a user's own robots, served without a language model and executed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from test.system.conftest import Start
from test.system.ros_client import Client, serving
from timely_llm import msg
from timely_llm.cli.skills import new_skill_set, write_new
from timely_llm.resources import resource
from timely_llm.ros.client.plan import PlanClient

WAIT_S = 30.0
AMR, AGV = (resource(f"examples/{name}.yaml") for name in ("amr", "agv"))


class Robot:
    """Takes every call, and remembers it; its scanner reads `label`."""

    def __init__(self, label: str = "pallet 17", arrives: bool = True) -> None:
        self.made: list[str] = []
        self._label = label
        self._arrives = arrives

    def goto(self, place: str) -> bool:
        self.made.append(f"goto {place}")
        return self._arrives

    def scan(self) -> str:
        self.made.append("scan")
        return self._label

    def lift(self, height: float) -> None:
        self.made.append(f"lift {height:g}")

    def dock(self) -> None:
        self.made.append("dock")

    def turn(self, angle: int) -> None:
        self.made.append(f"turn {angle}")

    def say(self, words: str) -> None:
        self.made.append(f"say {words}")

    look = scan


@pytest.fixture(scope="module")
def server(start: Start, domain: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server of the examples and of a new skill set, with the engine that has no model."""
    new = tmp_path_factory.mktemp("new") / "my_robot.yaml"
    write_new(new, new_skill_set("my_robot", new))
    drone = resource("config/skill_sets/drone.yaml")
    parameters = {
        "engine": "simulated",
        "skill_sets": f"[{drone},{AMR},{AGV},{new}]",
        "stats_period_s": 0.1,
    }
    with serving(start, Client, domain, **parameters) as made:
        yield made


def executed(domain: int, skill_set: str, task: str, robot: Robot) -> object:
    """Execute the plan for a task and return the plan's value."""
    names = ("goto", "scan", "lift", "dock", "turn", "say", "look")
    skills = {name: getattr(robot, name) for name in names}
    skills |= {"GOTO": robot.goto, "SCAN": robot.scan, "LIFT": robot.lift, "WAIT": robot.turn}
    with PlanClient("own", skill_set, domain=domain, find_s=WAIT_S) as client:
        return client.execute(
            f"Task: [A] {task}", skills, otherwise=lambda text: None, timeout_s=WAIT_S
        ).value


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("skill_set", "task", "made"),
    [
        ("amr", "Take stock of shelf B2: raise the lift twice to show it is checked.",
         ["goto B2", "scan", "lift 120", "lift 0", "lift 120", "lift 0", "dock"]),
        ("agv", "Scan the load on the ramp and lift it after 5 seconds.",
         ["goto ramp", "scan", "turn 5", "lift 1.5"]),
        ("my_robot", "Tell me what is on shelf 1.", ["goto shelf 1", "scan", "say a red box"]),
    ],
)  # fmt: skip
def test_a_robot_executes_the_examples_of_its_skill_set(
    domain: int, skill_set: str, task: str, made: list[str]
) -> None:
    robot = Robot()
    executed(domain, skill_set, task, robot)
    assert robot.made == made


@pytest.mark.usefixtures("server")
def test_a_condition_that_does_not_hold_skips_its_block(domain: int) -> None:
    robot = Robot(arrives=False)
    assert executed(domain, "amr", "Fetch the load of shelf A1.", robot) is False
    assert robot.made == ["goto A1"]


def test_a_segment_says_that_an_argument_is_a_choice(server: Client) -> None:
    task = "Task: [A] Fetch the load of shelf A1."
    goal = server.send(server.goal("typed", skill_set="amr", task=task))
    server.until(lambda: bool(server.of("typed")))
    (argument,) = server.of("typed")[0].calls[0].arguments
    assert (argument.name, argument.type, argument.value) == (
        "shelf", msg.SkillArgument.CHOICE, "A1",
    )  # fmt: skip
    server.result(goal.cancel_goal_async())
