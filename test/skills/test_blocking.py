"""A blocking call ends what is read: its value comes before the words that follow it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.core.errors import PlanError, SkillSetError
from timely_llm.skills.minispec.checker import MiniSpecChecker, check_plan
from timely_llm.skills.minispec.interpreter import Do, Ended, Event, Interpreter, NeedMore
from timely_llm.skills.skill_set import parse_skill_set

ARM_YAML = """
name: arm
prompt: You control an arm.
skills:
  pick:
    description: take an object
    arguments: [{name: object, type: text}]
    duration: {polynomial: [3.6]}
  sees:
    description: is the object in view
    arguments: [{name: object, type: text}]
    duration: {polynomial: [0.001]}
    returns: boolean
  look:
    description: name the objects on the table
    duration: {polynomial: [0.5]}
    returns: text
    blocking: true
"""
ARM = parse_skill_set(ARM_YAML)


def texts(checker: MiniSpecChecker, words: str) -> list[str]:
    return [piece.text for piece in checker.feed(words)]


def test_a_call_knows_that_it_blocks() -> None:
    look, pick = check_plan(ARM, "look();pick('pen');")
    assert [call.blocking for call in (*look.calls, *pick.calls)] == [True, False]
    assert (look.blocking, pick.blocking) == (True, False)


def test_what_a_token_says_after_a_blocking_call_is_not_read() -> None:
    checker = MiniSpecChecker(ARM)
    assert texts(checker, "pick('pen');look") == ["pick('pen');"]
    assert texts(checker, "();pick(#garbage") == ["look();"]
    assert checker.rest == "pick(#garbage"
    assert checker.tail == ""
    assert texts(checker, "pick('cup');") == ["pick('cup');"]
    assert checker.rest == ""


def test_white_space_after_a_blocking_call_is_nothing() -> None:
    checker = MiniSpecChecker(ARM)
    assert texts(checker, "look(); \n") == ["look();"]
    assert checker.rest == ""


def test_the_tail_is_what_was_read_after_the_last_boundary() -> None:
    checker = MiniSpecChecker(ARM)
    checker.feed("pick('pen');pick('c")
    assert checker.tail == "pick('c"


def test_a_blocking_call_may_stand_in_an_if_block() -> None:
    checker = MiniSpecChecker(ARM)
    assert texts(checker, "?sees('box'){look()}pick('pen');") == ["?sees('box'){", "look()}"]
    assert checker.rest == "pick('pen');"


def test_a_plan_may_end_with_a_blocking_call() -> None:
    checker = MiniSpecChecker(ARM)
    assert texts(checker, "look()") == []
    piece, tail = checker.finish()
    assert piece is not None
    assert (piece.text, piece.blocking, tail) == ("look()", True, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "?look()=='pen'{pick('pen');}",
            r"look is blocking and cannot be part of a condition: write look\(\.\.\.\); as a",
        ),
        ("?sees('pen')&look(){", "look is blocking and cannot be part of a condition"),
        ("2{look();}", "look is blocking and cannot stand inside a loop: write it outside, or in"),
        ("2{?sees('pen'){look();}}", "look is blocking and cannot stand inside a loop"),
    ],
)
def test_where_its_value_could_not_be_read_a_blocking_call_is_refused(
    text: str, message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        check_plan(ARM, text)


STATEMENTS = ["look();", "pick('pen');", "?sees('a'){look();}", " look() ; ", "2{pick('b');}"]


@examples(60)
@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=6), st.data())
def test_however_a_plan_is_split_each_blocking_call_ends_a_reading(
    statements: list[str], data: st.DataObject
) -> None:
    plan = "".join(statements)
    places = data.draw(st.lists(st.integers(0, len(plan)), max_size=8).map(sorted))
    checker, read, found = MiniSpecChecker(ARM), "", []
    for start, end in pairwise([0, *places, len(plan)]):
        words = plan[start:end]
        while words:
            pieces = checker.feed(words)
            assert not any(piece.blocking for piece in pieces[:-1])
            if checker.rest:
                assert pieces[-1].blocking
                assert words.endswith(checker.rest)
            dropped = words.rstrip() if pieces and pieces[-1].blocking else words
            read += words[: len(words) - len(checker.rest)] if checker.rest else dropped
            words = checker.rest
            found += pieces
    last, tail = checker.finish()
    assert last is None
    assert [p.text.strip() for p in found] == [p.text.strip() for p in check_plan(ARM, plan)]
    assert "".join(piece.text for piece in found) + tail == read


def run(plan: list[str], value: str = "pen", sees: bool = True) -> tuple[list[str], list[Event]]:
    """Return the calls made and the events of a plan with segments one after another."""
    interpreter, calls, events = Interpreter(ARM), [], []
    for index, text in enumerate(plan):
        interpreter.add(index, text, final=index == len(plan) - 1)
        while isinstance(action := interpreter.next(), Do):
            calls.append(str(action.call))
            interpreter.resume(value if action.call.name == "look" else sees)
        events += interpreter.events()
    assert isinstance(action, Ended)
    return calls, events


def test_a_segment_finishes_with_the_value_of_its_blocking_call() -> None:
    calls, events = run(["look();", "pick('pen');", "look();"], value="pen, cup")
    assert calls == ["look()", "pick('pen')", "look()"]
    assert [e.value for e in events if e.kind == "finished"] == ["pen, cup", None, "pen, cup"]


def test_a_blocking_segment_is_finished_before_more_comes() -> None:
    interpreter = Interpreter(ARM)
    interpreter.add(0, "look();")
    assert isinstance(interpreter.next(), Do)
    interpreter.resume("pen")
    assert isinstance(interpreter.next(), NeedMore)
    assert interpreter.events()[-1] == Event("finished", 0, value="pen")


def test_a_skipped_blocking_call_has_no_value() -> None:
    calls, events = run(["?sees('box'){", "look();", "};pick('pen');"], sees=False)
    assert calls == ["sees('box')", "pick('pen')"]
    assert Event("finished", 1, skipped=True, value=None) in events


def test_a_whole_plan_is_executed_past_its_blocking_calls() -> None:
    interpreter, calls = Interpreter(ARM), []
    interpreter.complete("look();pick('pen');look();pick('cup');")
    while isinstance(action := interpreter.next(), Do):
        calls.append(str(action.call))
        interpreter.resume("")
    assert calls == ["look()", "pick('pen')", "look()", "pick('cup')"]


def test_the_model_reads_what_a_blocking_call_returned() -> None:
    assert ARM.answer_text("pen, cup") == "=> pen, cup\n"
    assert ARM.answer_text(" a{value}{0}\nb\x1b\u2028c\ud800 ") == "=> a{value}{0} b  c\n"
    assert ARM.answer_text("") == ARM.answer_text(" \n") == "=> nothing\n"
    assert len(ARM.answer_text("x" * 5000)) == len("=> \n") + 1000


def test_a_failed_plan_is_repeated_with_its_history() -> None:
    assert ARM.recovery_text("Clean up.", "look();pick('pen');", "the pen\nslipped", "look();") == (
        "Clean up.\n[E] You provided me with plan look();pick('pen');, but I failed because"
        " the pen slipped. Execution history: look();"
    )
    assert ARM.recovery_text("{plan}", "{done}", "{task}", "").endswith(
        "{plan}\n[E] You provided me with plan {done}, but I failed because {task}."
        " Execution history: nothing"
    )


def test_formats_are_the_users() -> None:
    mine = parse_skill_set(
        ARM_YAML + "answer_format: '{ {value} }'\nrecovery_format: '{reason}: {task}'"
    )
    assert mine.answer_text("pen") == "{ pen }"
    assert mine.recovery_text("Go.", "", "lost", "") == "lost: Go."
    assert mine.prompt_text() == ARM.prompt_text()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("answer_format: '=>'", r"answer_format: must contain {value} once, not 0 times"),
        ("answer_format: '{value}{value}'", r"must contain {value} once, not 2 times"),
        ("answer_format: '{value}{task}'", r"must not contain {task}: allowed are {value}"),
        ("recovery_format: '{task}'", r"recovery_format: must contain {reason} once"),
        (
            "recovery_format: '{task}{reason}{scene}'",
            r"must not contain {scene}: allowed are {task}, {reason}, {plan}, {done}",
        ),
    ],
)
def test_a_format_without_its_fields_is_refused(line: str, message: str) -> None:
    with pytest.raises(SkillSetError, match=message):
        parse_skill_set(ARM_YAML + line)
