"""Robots, an edge and a cloud: what plans, when, and what a robot then executes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from timely_llm.core.segment import Segment
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.virtual.sketches.plan_bench import (
    AskedPlan,
    PlanBench,
    PlanDevices,
    PlanningRobot,
    PlanWay,
)
from timely_llm.experiments.virtual.sketches.recorded_plans import HeldOutPlan
from timely_llm.experiments.virtual.sketches.testbed import PATH, edge_profile
from timely_llm.progressive.settings import HelpSettings

RIGHT = "mf(300);mb(200);tp();->True;"
LONG = HeldOutPlan(
    "move", "drone", "Scene: []\nTask: [A] Move forward 300 cm, back 200 cm and take a picture.",
    RIGHT, "mf(300);mb(300);tp();->True;",
    "1. move forward 300 cm\n2. move back 200 cm\n3. take a picture", RIGHT, RIGHT,
)  # fmt: skip


def robot_of(way: PlanWay, plan: HeldOutPlan = LONG, at_s: float = 3.0) -> PlanningRobot:
    devices = PlanDevices(
        shipped_skill_sets(), edge_profile("qwen2.5-1.5b"), PROFILES["a100x4-llama3-70b"], 20, PATH
    )
    (robot,) = PlanBench([AskedPlan("one", at_s, plan)], way, devices, HelpSettings()).run()
    return robot


def test_the_edge_alone_executes_what_its_model_says() -> None:
    robot = robot_of(PlanBench.plan_at_edge)
    assert (robot.text, robot.exact, robot.valid, robot.helped) == (LONG.small, False, True, False)
    assert robot.cloud_tokens == 0
    assert 0.0 < robot.response_s < 0.3


def test_help_corrects_what_the_robot_has_not_begun() -> None:
    alone, helped = robot_of(PlanBench.plan_at_edge), robot_of(PlanBench.help)
    assert (helped.text, helped.helped, helped.valid) == (RIGHT, True, True)
    assert helped.response_s == pytest.approx(alone.response_s, abs=1e-6), "no later than alone"
    assert helped.cloud_tokens > 10


def test_help_cannot_take_back_what_the_robot_has_begun() -> None:
    wrong = replace(LONG, small="mf(200);mb(200);tp();->True;")
    robot = robot_of(PlanBench.help, wrong)
    assert robot.helped
    assert not robot.exact
    assert robot.text == f"mf(200);{RIGHT}"


def test_a_sketch_first_makes_the_robot_wait_for_all_of_it() -> None:
    robot = robot_of(PlanBench.sketch_first)
    assert robot.exact
    assert robot.helped
    pace = PROFILES["a100x4-llama3-70b"]
    assert robot.response_s > (robot.cloud_tokens - 1) * pace.step_s(1)


@pytest.mark.parametrize("way", [PlanBench.sketch_first, PlanBench.help])
def test_steps_of_which_the_task_does_not_speak_are_left_out(way: PlanWay) -> None:
    robot = robot_of(way, replace(LONG, sketch="1. open the gripper\n2. burn the house", guided=""))
    assert (robot.text, robot.helped) == (LONG.small, False)


def test_the_cloud_alone_sends_each_segment_as_it_comes() -> None:
    robot = robot_of(PlanBench.plan_in_cloud)
    assert (robot.text, robot.exact, robot.valid) == (RIGHT, True, True)
    assert (robot.edge_tokens, robot.helped) == (0, False)
    whole_s = robot.cloud_tokens * PROFILES["a100x4-llama3-70b"].step_s(1)
    assert robot.response_s < 0.6 * whole_s


@pytest.mark.parametrize("way", [PlanBench.plan_at_edge, PlanBench.plan_in_cloud])
def test_a_plan_with_an_unknown_skill_ends_where_it_stands(way: PlanWay) -> None:
    bad = "mf(300);fly();tp();->True;"
    robot = robot_of(way, replace(LONG, small=bad, large=bad))
    assert (robot.text, robot.valid, robot.exact) == ("mf(300);", False, False)


def test_a_robot_without_an_action_has_no_times() -> None:
    robot = PlanningRobot(AskedPlan("one", 0.0, LONG))
    assert math.isnan(robot.response_s)
    assert math.isnan(robot.waiting_s)


def test_a_new_epoch_makes_void_what_has_not_begun() -> None:
    robot = PlanningRobot(AskedPlan("one", 0.0, LONG))
    for index in range(3):
        robot.take(Segment("one", "one", index, f"{index};", predicted_s=1.0), 0.0)
    robot.take(Segment("one", "one", 0, "new;", predicted_s=1.0, epoch=1), 1.5)
    assert robot.text == "0;1;new;"
    assert (robot.done_s, robot.waiting_s) == (3.0, 0.0)


def test_a_segment_of_a_void_epoch_is_ignored() -> None:
    robot = PlanningRobot(AskedPlan("one", 0.0, LONG))
    robot.take(Segment("one", "one", 0, "new;", predicted_s=1.0, epoch=1), 0.0)
    robot.take(Segment("one", "one", 1, "old;", predicted_s=1.0), 0.5)
    assert robot.text == "new;"
