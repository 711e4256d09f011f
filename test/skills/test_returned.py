"""What skills return, as their plans use it."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pytest

from timely_llm.core.errors import SkillFailed
from timely_llm.core.segment import SkillCall
from timely_llm.skills.returned import Returns, used_value
from timely_llm.skills.stop_checker import Term

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
