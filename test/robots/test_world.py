"""Simulated perception."""

from typing import Any, Literal

import numpy as np
import pytest

from timely_llm.core.segment import SkillCall
from timely_llm.resources import resource
from timely_llm.robots.world import World
from timely_llm.skills.skill import Duration, Skill
from timely_llm.skills.skill_set import load_skill_set

DRONE = load_skill_set(resource("config/skill_sets/drone.yaml"))
STEP_S = 1.5275


def do(world: World, name: str, *arguments: str | int) -> Any:
    rng = np.random.default_rng(0)
    return world.do(SkillCall(name, arguments), DRONE.skills[name], rng, spread=0.0)


def test_what_is_in_view_is_seen_at_once_and_found_in_one_step() -> None:
    world = World(in_view=["Red cup"])
    assert do(world, "iv", "red cup") == (pytest.approx(0.001), True)
    assert do(world, "s", "red cup") == (pytest.approx(STEP_S), True)


def test_what_is_hidden_is_in_view_after_a_search() -> None:
    world = World(hidden=["cat"])
    assert do(world, "iv", "cat")[1] is False
    seconds, found = do(world, "s", "cat")
    assert found is True
    assert STEP_S <= seconds <= 8 * STEP_S
    assert do(world, "iv", "cat")[1] is True


def test_a_search_for_what_is_not_there_takes_a_whole_turn() -> None:
    assert do(World(), "s", "cat") == (pytest.approx(8 * STEP_S), False)


def test_moving_takes_as_long_as_the_model_says() -> None:
    assert do(World(), "mf", 100) == (pytest.approx(0.72 + 1.8144), True)


def test_what_is_in_view_is_named_or_counted_and_the_hidden_is_not() -> None:
    world = World(in_view=["Red cup", "pen"], hidden=["cat"])
    assert perceive(world, "text") == "Red cup, pen"
    assert perceive(world, "number") == 2
    assert perceive(World(hidden=["cat"]), "text") == "nothing"
    assert perceive(world, "nothing") is True


def test_what_a_search_found_is_named_after_it() -> None:
    world = World(in_view=["pen"], hidden=["Cat"])
    do(world, "s", "cat")
    assert perceive(world, "text") == "pen, Cat"


def perceive(world: World, returns: Literal["nothing", "number", "text"]) -> Any:
    skill = Skill(description="", duration=Duration(polynomial=(0.5,)), returns=returns)
    seconds, value = world.do(SkillCall("look"), skill, np.random.default_rng(0), spread=0.0)
    assert seconds == 0.5
    return value
