"""Choices: the only values that an argument may have, wherever a skill set is used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import ConfigurationError, PlanError
from timely_llm.engines.example_script import every_skill
from timely_llm.skills.callables import Callables
from timely_llm.skills.checkers import SegmentReader, cut
from timely_llm.skills.choices import literal
from timely_llm.skills.minispec.checker import MiniSpecChecker, check_plan
from timely_llm.skills.minispec.grammar import summary
from timely_llm.skills.skill import Argument, Duration, Skill
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Piece

SHELVES = ["A1", "A2", "B1"]


def amr(shelves: list[Any] = SHELVES, **more: Any) -> SkillSet:
    """Return a skill set: its skill `goto` takes a shelf, and `ride` a floor and a speed."""
    quick = {"polynomial": [1]}
    shelf = {"name": "shelf", "type": "text", "choices": shelves}
    floor = {"name": "floor", "type": "integer", "choices": [-1, 2, 3]}
    speed = {"name": "speed", "type": "number", "unit": "m/s", "choices": [0.5, 1]}
    skills = {
        "goto": {"description": "drive to a shelf", "arguments": [shelf], "duration": quick},
        "ride": {"description": "ride", "arguments": [floor, speed], "duration": quick},
    }
    return SkillSet.model_validate({"name": "amr", "prompt": "Go.", "skills": skills} | more)


def test_the_prompt_names_all_choices_as_plans_write_them() -> None:
    lines = amr().prompt_text().splitlines()
    assert lines[2] == "goto(shelf): drive to a shelf, shelf one of 'A1', 'A2', 'B1'"
    assert lines[3] == "ride(floor, speed): ride, floor one of -1, 2, 3, speed one of 0.5, 1 m/s"
    many = [f"S{number}" for number in range(200)]
    assert "'S199'" in amr(many).prompt_text()


def test_the_grammar_for_people_names_them() -> None:
    assert "goto(shelf: one of 'A1', 'A2', 'B1')" in summary(amr())


def test_a_plan_that_names_choices_is_read() -> None:
    pieces = check_plan(amr(), "goto('A1');ride(-1,0.5);ride(3,1.0);goto(\"B1\");")
    calls = [call.arguments for piece in pieces for call in piece.calls]
    assert calls == [("A1",), (-1, 0.5), (3, 1.0), ("B1",)]


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ("goto('C9');", "goto: shelf must be one of 'A1', 'A2', 'B1', not 'C9'"),
        ("goto('a1');", "goto: shelf must be one of 'A1', 'A2', 'B1', not 'a1'"),
        ("goto(A1);", "goto: shelf must be a text in quotes: quote it, 'A1'"),
        ("goto(A7);", "goto: shelf must be one of 'A1', 'A2', 'B1', in quotes, not A7"),
        ("goto(1);", "goto: shelf must be a quoted text such as 'A1', not 1"),
        ("goto(True);", "goto: shelf must be a quoted text such as 'A1', not True"),
        ("goto('A1', A2);", "goto takes 1 arguments, not more"),
        ("ride(1, 1);", "ride: floor must be one of -1, 2, 3, not 1"),
        ("ride(2, 0.7);", "ride: speed must be one of 0.5, 1, not 0.7"),
        ("ride(up, 1);", "ride: floor must be a number, not the word 'up'"),
        ("ride('2', 1);", "ride: floor must be a number, not the text '2'"),
        ("?goto('C9'){goto('A1');}", "goto: shelf must be one of"),
        ("?goto('A1')==there{goto('A1');}", "not 'there': quote it, as 'there'"),
        ("->done;", "not 'done': quote it, as 'done'"),
    ],
)
def test_another_value_gets_a_sentence_and_no_piece(plan: str, complaint: str) -> None:
    checker = MiniSpecChecker(amr())
    with pytest.raises(PlanError) as error:
        checker.feed(plan)
    assert complaint in str(error.value)


def test_what_is_complete_before_another_value_is_all_that_is_published() -> None:
    checker = MiniSpecChecker(amr())
    assert [piece.text for piece in checker.feed("goto('A1');goto('C9');goto('A2');")] == [
        "goto('A1');"
    ]
    with pytest.raises(PlanError, match="not 'C9'"):
        checker.feed("")


def test_of_many_choices_a_sentence_names_some_and_the_nearest() -> None:
    many = amr([f"shelf {number}" for number in range(100)])
    with pytest.raises(PlanError) as error:
        check_plan(many, "goto('shelf99');")
    assert "'shelf 15' and 84 more, not 'shelf99': did you mean 'shelf 99'?" in str(error.value)


def test_plans_of_rules_name_choices_too() -> None:
    rules = amr(language="regex", rules=[r"(?P<skill>\w+) (?P<arguments>.*?)\."])
    (piece,) = cut(rules, "goto A2.")
    assert isinstance(piece, Piece) and piece.calls[0].arguments == ("A2",)
    with pytest.raises(PlanError, match="shelf must be one of 'A1', 'A2', 'B1', not 'C9'"):
        cut(rules, "goto C9.")


shelves = st.lists(
    st.text("AB12 é'\"\\,", min_size=1, max_size=5).filter(lambda text: text.strip() == text),
    min_size=1,
    max_size=4,
    unique=True,
)


@given(shelves, shelves)
def test_rules_make_a_call_with_a_choice_or_none(named: list[str], others: list[str]) -> None:
    rules = amr(named, language="regex", rules=[r"(?P<skill>goto) (?P<arguments>[^;]*);"])
    for shelf in [*named, *others]:
        written = literal(shelf)
        if shelf in named:
            (piece,) = cut(rules, f"goto {written};")
            assert isinstance(piece, Piece) and piece.calls[0].arguments == (shelf,)
        else:
            with pytest.raises(PlanError, match="goto: shelf must be "):
                cut(rules, f"goto {written};")


def test_the_engine_without_a_model_calls_with_the_first_choice() -> None:
    assert every_skill(amr()) == "goto('A1');ride(-1,0.5);->True;"
    check_plan(amr(["it's"]), every_skill(amr(["it's"])))


def test_a_robot_that_knows_fewer_choices_executes_nothing_of_the_segment() -> None:
    reader = SegmentReader(amr(["A1"]))
    assert [piece.text for piece in reader.read("goto('A1');")] == ["goto('A1');"]
    with pytest.raises(PlanError, match="shelf must be 'A1', not 'B1'"):
        reader.read("ride(2,1);goto('B1');")


def test_a_callable_that_takes_no_choice_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigurationError) as error:
        Callables(amr(), {"goto": lambda: None, "ride": print})
    assert str(error.value) == (
        "the callable of goto must take 1 argument by position (shelf), not ()"
    )


def test_callables_get_the_choice_as_its_type() -> None:
    got: list[object] = []
    callables = Callables(amr(), {"goto": got.append, "ride": lambda *both: got.extend(both)})
    for piece in check_plan(amr(), "goto('A1');ride(2,1);"):
        callables.make(piece.calls[0], None, None)
    assert got == ["A1", 2, 1.0]
    assert [type(value) for value in got] == [str, int, float]


@pytest.mark.parametrize(
    ("value", "written"),
    [("A1", "'A1'"), ("it's", '"it\'s"'), ("\"'", "'\"\\''"), (1e-07, "0.0000001"), (3, "3")],
)
def test_values_are_written_as_plans_write_them(value: object, written: str) -> None:
    assert literal(value) == written


@pytest.mark.parametrize("bound", [{"minimum": 1}, {"maximum": 3}, {"maximum_length": 3}])
def test_choices_leave_no_place_for_bounds(bound: dict[str, int]) -> None:
    kind = "text" if "maximum_length" in bound else "integer"
    choices = ["a"] if kind == "text" else [1]
    with pytest.raises(ValueError, match="leave it out: choices say which values are allowed"):
        Argument.model_validate({"name": "a", "type": kind, "choices": choices} | bound)


def test_calls_carry_the_names_and_types_of_their_arguments() -> None:
    arguments = (
        Argument(name="shelf", type="text", choices=("A1", "B2")),
        Argument(name="level", type="integer", choices=(1, 2)),
        Argument(name="speed", type="number"),
        Argument(name="note", type="text"),
    )
    skill = Skill(description="d", arguments=arguments, duration=Duration(polynomial=(1.0,)))
    assert [(p.name, p.type.name) for p in skill.parameters] == [
        ("shelf", "CHOICE"), ("level", "INTEGER"), ("speed", "NUMBER"), ("note", "TEXT"),
    ]  # fmt: skip
