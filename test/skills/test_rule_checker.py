"""Plans in languages that users describe by rules are cut as soon as nothing can change a match."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from test.examples import examples
from test.skills.reading import pieces_of
from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall
from timely_llm.skills.checkers import make_checker
from timely_llm.skills.execution_time import parse_arguments
from timely_llm.skills.minispec.interpreter import Do, Ended, Interpreter, NeedMore
from timely_llm.skills.rule_checker import MAX_STATEMENT, RuleChecker
from timely_llm.skills.rules import Budget
from timely_llm.skills.skill import Skill
from timely_llm.skills.skill_set import SkillSet, parse_skill_set
from timely_llm.skills.stop_checker import Piece, StopChecker

CALL = r"(?P<skill>\w+)\((?P<arguments>[^()]*)\)\s*(->|;|\n)?"
GO = {
    "description": "go to a place",
    "arguments": [
        {"name": "place", "type": "text", "maximum_length": 20},
        {"name": "speed", "type": "number", "minimum": 0.1, "maximum": 2},
    ],
    "duration": {"polynomial": [1.0, 2.0]},
}
STOP = {"description": "stop", "duration": {"polynomial": [0.5]}}
LOOK = STOP | {"returns": "text", "blocking": True}


def cart(*rules: str) -> SkillSet:
    """Return a skill set with these rules."""
    document: dict[str, Any] = {
        "name": "cart", "prompt": "You control a cart.", "language": "regex", "rules": list(rules),
        "skills": {"go": GO, "stop": STOP, "look": LOOK},
    }  # fmt: skip
    return parse_skill_set(yaml.safe_dump(document))


CART = cart(CALL)


def read(checker: StopChecker, *chunks: str) -> tuple[list[Piece], str]:
    """Return all pieces of a text that comes in chunks, and its tail."""
    pieces = [piece for chunk in chunks for piece in checker.feed(chunk)]
    last, tail = checker.finish()
    return pieces + ([last] if last else []), tail


def test_each_match_is_a_piece_with_a_checked_call() -> None:
    pieces, tail = read(make_checker(CART), "go('the lab', 1.5);\nstop()\nstop();")
    assert [piece.text for piece in pieces] == ["go('the lab', 1.5);", "\nstop()\n", "stop();"]
    assert pieces[0].calls == (SkillCall("go", ("the lab", 1.5), 4.0),)
    assert [piece.predicted_s for piece in pieces] == [4.0, 0.5, 0.5]
    assert tail == ""


def test_words_and_texts_are_arguments() -> None:
    (piece,) = pieces_of(CART, "go(lab 2, 1);")
    assert piece.calls[0].arguments == ("lab 2", 1)
    (piece,) = pieces_of(CART, r"go('it\'s', 2)")
    assert piece.calls[0].arguments == ("it's", 2)


@pytest.mark.parametrize(
    ("chunks", "cuts"),
    [
        (["stop()", ";"], [0, 1]),  # the end is optional: it is waited for
        (["stop();", "st"], [1, 0]),  # nothing can follow: cut at once
        (["stop()", " ", " st"], [0, 0, 1]),
    ],
)
def test_a_piece_is_cut_as_soon_as_no_more_text_can_change_it(
    chunks: list[str], cuts: list[int]
) -> None:
    checker = make_checker(CART)
    assert [len(checker.feed(chunk)) for chunk in chunks] == cuts


def test_of_several_rules_the_longest_match_counts() -> None:
    rules = cart("stop", "stop all", "(?P<skill>look)!")
    pieces, _ = read(make_checker(rules), "stop stop all stop al", "l look!")
    assert [piece.text for piece in pieces] == ["stop", " stop all", " stop all", " look!"]
    assert [len(piece.calls) for piece in pieces] == [0, 0, 0, 1]


def test_a_shorter_match_is_taken_when_the_longer_fails() -> None:
    pieces, _ = read(make_checker(cart("a", "abc", "b")), "ab", "a")
    assert [piece.text for piece in pieces] == ["a", "b", "a"]


def test_a_blocking_call_ends_a_reading() -> None:
    checker = make_checker(CART)
    assert checker.feed("look()") == []
    (piece,) = checker.feed("stop();")
    assert (piece.text, piece.blocking, checker.rest) == ("look()", True, "stop();")
    assert [piece.text for piece in checker.feed("stop();")] == ["stop();"]
    assert checker.rest == ""


def test_the_rest_is_never_longer_than_what_was_just_read() -> None:
    checker = make_checker(cart(r"(?P<skill>look)(?=[ab]{3})", "[ab]+!"))
    checker.feed("looka")
    checker.feed("b")
    (piece,) = checker.feed("a")
    assert (piece.text, checker.rest) == ("look", "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fly();", "after character 0 of the plan: unknown skill 'fly': cart has go, look, stop"),
        ("stop();go(x);", "after character 7 of the plan: go takes 2 arguments, not 1"),
        ("go('x', 3);", "go: speed must be 0.1 to 2, not 3"),
        ("go(x, fast);", "go: speed must be a number, not the text 'fast'"),
        ("go('x, 1);", "arguments must be numbers, texts in quotes or words"),
        ("go(x\0, 1);", "arguments must not contain control characters"),
        ("Sure, here it is: stop();", "no rule of cart matches 'Sure,'"),
        ("stop() please", "the plan ends in the middle of a statement: 'please'"),
        ("go(", "the plan ends in the middle of a statement: 'go\\('"),
        ("", "the plan is empty"),
        (" ;\n ", "the plan is empty"),
        ("go(" + "x" * MAX_STATEMENT + ",1);", "a statement is longer than 4000 characters"),
    ],
)
def test_what_no_rule_allows_gets_one_sentence(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message) as error:
        pieces_of(CART, text)
    assert "\n" not in str(error.value)


def test_what_is_complete_before_a_fault_comes_first() -> None:
    checker = make_checker(CART)
    assert [piece.text for piece in checker.feed("stop();???")] == ["stop();"]
    for _ in range(2):
        with pytest.raises(PlanError, match=r"no rule of cart matches '\?'"):
            checker.feed("stop();")


@pytest.mark.parametrize("rule", [r"(a|aa)+$", r"(a|a)*b", r"(.*a){20}$", r"(\w+\s?)*;"])
def test_no_rule_hangs_whatever_it_repeats(rule: str) -> None:
    checker = RuleChecker(cart(rule, "stop"), budget=Budget(feed_s=0.05, plan_s=0.1))
    with pytest.raises(PlanError) as error:
        for _ in range(60):
            checker.feed("a" * 60)
        checker.feed("!")
        checker.finish()
    message = str(error.value)
    assert "rule 1" in message or "longer than 4000" in message or "no rule" in message


def test_a_rule_that_takes_too_long_is_named() -> None:
    checker = RuleChecker(cart("stop", "(a|aa)+b"), budget=Budget(feed_s=0.05, plan_s=0.1))
    with pytest.raises(
        PlanError, match=r"rule 2 \('\(a\|aa\)\+b'\) takes too long, more than 0.05"
    ):
        checker.feed("a" * 63 + "!")


STATEMENTS = [
    "stop();",
    "stop()\n",
    " stop() ;",
    "go('a;b', 2);",
    "go(x y,0.5)",
    "look()->",
    "look();",
]


@examples(100)
@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=6).map("".join), st.data())
def test_where_the_text_is_split_makes_no_difference(text: str, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    chunks = [text[a:b] for a, b in pairwise([0, *places, len(text)])]
    one, other = reading(chunks), reading([text])
    assert one == other == reading(list(text))
    pieces, tail = one
    assert "".join(pieces) + tail == text


@examples(150)
@given(st.text("go(),;' x1\n!-b>", max_size=40))
def test_any_text_is_read_alike_however_it_is_split(text: str) -> None:
    assert outcome([text]) == outcome(list(text))


def outcome(chunks: list[str]) -> object:
    try:
        return reading(chunks)
    except PlanError as error:
        return str(error)


def reading(chunks: list[str]) -> tuple[list[str], str]:
    """Return texts of pieces and the tail; what stands after a blocking call is read again."""
    checker, pieces = make_checker(CART.model_copy(update={"skills": unblocked()})), []
    for chunk in chunks:
        pieces += checker.feed(chunk)
    last, tail = checker.finish()
    return [piece.text for piece in pieces + ([last] if last else [])], tail


def unblocked() -> dict[str, Skill]:
    return {name: s.model_copy(update={"blocking": False}) for name, s in CART.skills.items()}


@settings(deadline=None)
@given(st.text(max_size=40) | st.text("'\",\\ 1.-+ax", max_size=40))
def test_arguments_are_read_or_refused(text: str) -> None:
    try:
        values = parse_arguments(text, CART.skills["go"])
    except PlanError:
        return
    assert all(isinstance(value, int | float | str) for value in values)


def test_a_robot_executes_a_segment_whatever_could_have_followed_it() -> None:
    robot, calls = Interpreter(CART), []
    for index, text in enumerate(["stop()", " go(lab, 1) ", "look()"]):
        robot.add(index, text)
        while isinstance(action := robot.next(), Do):
            calls.append((action.index, str(action.call)))
            robot.resume("a pen")
        assert isinstance(action, NeedMore)
    robot.add(2, "look() ;", final=True)
    assert robot.next() == Ended()
    assert calls == [(0, "stop()"), (1, "go('lab',1)"), (2, "look()")]
    assert [e.value for e in robot.events() if e.kind == "finished"] == [None, None, "a pen"]


def test_a_robot_executes_a_whole_plan() -> None:
    robot, calls = Interpreter(CART), []
    robot.complete("stop()look()stop();")
    while isinstance(action := robot.next(), Do):
        calls.append(action.call.name)
        robot.resume(True)
    assert calls == ["stop", "look", "stop"]
