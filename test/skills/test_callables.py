"""A robot's skills as plans call them."""

from __future__ import annotations

import functools
import math
from enum import IntEnum, StrEnum
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from timely_llm.core.errors import ConfigurationError, SkillFailed
from timely_llm.core.segment import SkillCall
from timely_llm.skills.callables import Callables, Returns, used_value
from timely_llm.skills.skill_set import parse_skill_set
from timely_llm.skills.stop_checker import Term

SKILLS = parse_skill_set("""
name: robot
prompt: You control a robot.
skills:
  move:
    description: move
    arguments: [{name: x, type: number}, {name: how, type: text}]
    duration: {polynomial: [1.0]}
  ping:
    description: ping
    duration: {polynomial: [0.1]}
""")
MOVE = SkillCall("move", (2, "fast"))


def make(move: Any, call: SkillCall = MOVE, execution: object = None) -> object:
    skills = Callables(SKILLS, {"move": move, "ping": lambda: None})
    return skills.make(call, None, execution)


class Mover:
    def __init__(self) -> None:
        self.moved: list[object] = []

    def __call__(self, x: float, how: str) -> None:
        self.moved.append((x, how))


def test_anything_that_can_be_called_is_a_skill() -> None:
    mover, mock, seen = Mover(), Mock(), []
    for move in (mover, mock, functools.partial(lambda k, *a: seen.append(a), 1)):
        make(move)
    assert mover.moved == [(2.0, "fast")] == seen
    mock.assert_called_once_with(2.0, "fast")
    assert make(slice) is None, "it does not say how it is called"


def test_a_callable_that_asks_gets_the_execution() -> None:
    given: list[object] = []

    def asks(x: float, how: str, *, execution: object) -> None:
        given.append(execution)

    def has_an_argument_of_this_name(x: float, execution: str) -> None:
        given.append(execution)

    def takes_all(*arguments: object, **more: object) -> None:
        given.append(more)

    for move in (asks, has_an_argument_of_this_name, takes_all):
        make(move, execution="this one")
    assert given == ["this one", "fast", {}]


def test_a_keyword_that_plans_do_not_give_is_refused() -> None:
    def needs(x: float, how: str, *, speed: float) -> None: ...

    with pytest.raises(ConfigurationError, match="the callable of move must take 2 arguments by"):
        make(needs)


def test_modules_and_objects_have_methods() -> None:
    robot = Mock(spec=["move", "ping"])
    Callables(SKILLS, robot).make(SkillCall("ping"), None, None)
    robot.ping.assert_called_once_with()
    with pytest.raises(ConfigurationError, match="have no callable: move, ping"):
        Callables(SKILLS, math)


def test_what_a_skill_raises_comes_through() -> None:
    def stuck(x: float, how: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make(stuck)


def test_an_absent_skill_is_absent_also_if_it_has_a_callable() -> None:
    skills = Callables(SKILLS, Mock(spec=["move", "ping"]), absent="move", otherwise=print)
    with pytest.raises(SkillFailed, match="this robot has no skill move"):
        skills.make(MOVE, None, None)


CALL = SkillCall("look", ("cup",))
BLOCKING = SkillCall("look", ("cup",), blocking=True)


class Level(IntEnum):
    HIGH = 3


class Color(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("returns", "value", "used"),
    [
        ("boolean", np.bool_(False), False),
        ("boolean", np.array(True), True),
        ("number", np.int64(3), 3),
        ("number", np.float32(0.5), 0.5),
        ("number", Level.HIGH, 3),
        ("number", float("-inf"), float("-inf")),
        ("text", np.str_("cup"), "cup"),
        ("text", Color.RED, "red"),
        ("nothing", True, True),
    ],
)
def test_values_become_pythons_own(returns: Returns, value: Any, used: Any) -> None:
    for got in (
        used_value(BLOCKING, returns, None, value),
        used_value(CALL, returns, Term(CALL), value),
    ):
        assert got == used
        assert type(got) is type(used)


@pytest.mark.parametrize("value", [None, np.array([True]), np.float64("nan"), b"x", object(), 1j])
@pytest.mark.parametrize("returns", ["boolean", "number", "text", "nothing"])
def test_what_is_no_value_of_plans_is_refused_where_it_is_used(returns: Any, value: Any) -> None:
    with pytest.raises(SkillFailed, match=r"look must return .*, not "):
        used_value(BLOCKING, returns, None, value)
    with pytest.raises(SkillFailed, match=r"look must return .*, not "):
        used_value(CALL, returns, Term(CALL), value)
    assert used_value(CALL, returns, None, value) is None


@pytest.mark.parametrize("comparison", ["<", ">", "<=", ">="])
@pytest.mark.parametrize(("value", "literal"), [("2", 3), (3, "2"), (True, 1), (1, True)])
def test_an_order_of_different_kinds_means_nothing(
    comparison: str, value: Any, literal: Any
) -> None:
    with pytest.raises(SkillFailed, match=f"not comparable by {comparison} with"):
        used_value(CALL, "nothing", Term(CALL, comparison, literal), value)


def test_a_generator_has_done_nothing() -> None:
    with pytest.raises(SkillFailed, match="look returned a generator, so nothing was done"):
        used_value(CALL, "nothing", None, (n for n in range(3)))
