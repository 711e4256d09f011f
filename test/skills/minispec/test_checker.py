"""Plans are cut where a robot can begin to execute; what is no plan is refused."""

from __future__ import annotations

import pytest

from test.skills.plans import DRONE
from test.skills.reading import read
from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall
from timely_llm.skills.minispec.checker import MiniSpecChecker, check_plan
from timely_llm.skills.stop_checker import BlockEnd, Call, If, Piece, Repeat, Return, Term

MOVE_S, TURN_S = 1.8144 + 0.0072 * 100, 0.784 + 0.0165 * 90
FIND = SkillCall("s", ("cat",), 1.5275)
GO = SkillCall("g", ("cat",), 2.5)


@pytest.mark.parametrize(
    ("text", "pieces", "tail"),
    [
        ("?s('cat')==True{g('cat')};", ["?s('cat')==True{", "g('cat')}"], ";"),
        (
            "?iv('keys')&iv('wallet')->{l('Yes');->True;}l('No');->False;",
            ["?iv('keys')&iv('wallet')->{", "l('Yes');", "->True;", "}l('No');", "->False;"],
            "",
        ),
        (
            "mu(40);?iv('book')==True{tp()}->False",
            ["mu(40);", "?iv('book')==True{", "tp()}", "->False"],
            "",
        ),
        (
            "md(40);?iv('toy')==True{g('toy')}->False",
            ["md(40);", "?iv('toy')==True{", "g('toy')}", "->False"],
            "",
        ),
        ("tc(45);", ["tc(45);"], ""),
        (
            "?iv('boy')==True{tc(45)}->False;",
            ["?iv('boy')==True{", "tc(45)}", "->False;"],
            "",
        ),
        (
            "4{mf(100);tc(90);};tp();->True;",
            ["4{mf(100);", "tc(90);", "}", ";tp();", "->True;"],
            "",
        ),
        ("?iv('a'){?iv('b'){tp();};};\n", ["?iv('a'){", "?iv('b'){", "tp();"], "};};\n"),
        ("2{?iv('a'){tp();}};", ["2{?iv('a'){", "tp();", "}}"], ";"),
        ("1{tp();};", ["1{tp();"], "};"),
        ("2{1{tp();}}", ["2{1{tp();", "}}"], ""),
        ("2{?tp(){}}", ["2{?tp(){", "}}"], ""),
        ("tp();3{};", ["tp();"], "3{};"),
        ("?iv('a'){}", ["?iv('a'){"], "}"),
        ("l('a;}{\\'?');tp()  ", ["l('a;}{\\'?');", "tp()  "], ""),
    ],
)
def test_a_plan_is_cut_after_each_call_return_condition_and_loop(
    text: str, pieces: list[str], tail: str
) -> None:
    found, left = read(text)
    assert [piece.text for piece in found] == pieces
    assert left == tail
    assert [piece.text for piece in check_plan(DRONE, text)] == pieces


def test_a_piece_says_what_to_execute() -> None:
    assert [(piece.calls, piece.ops) for piece in check_plan(DRONE, "?s('cat'){g('cat')}->1")] == [
        ((FIND,), (If(((Term(FIND, "==", True),),)),)),
        ((GO,), (Call(GO), BlockEnd())),
        ((), (Return(1),)),
    ]


def test_and_binds_tighter_than_or() -> None:
    (piece, *_) = check_plan(DRONE, "?tp()|tp()!=2&tp()<'x'{tp();}")
    photo = SkillCall("tp", (), 0.001)
    alternatives = ((Term(photo),), (Term(photo, "!=", 2), Term(photo, "<", "x")))
    assert piece.ops == (If(alternatives),)


def test_a_loop_is_predicted_once_by_its_body_and_the_rest_by_its_end() -> None:
    pieces = check_plan(DRONE, "4{mf(100);tc(90);};tp();->True;")
    rest_s = 3 * (MOVE_S + TURN_S)
    assert [p.predicted_s for p in pieces] == pytest.approx([MOVE_S, TURN_S, rest_s, 0.001, 0])
    assert pieces[0].ops[0] == Repeat(4)


def test_the_last_call_of_a_loop_without_its_mark_carries_the_rest() -> None:
    (piece,) = check_plan(DRONE, "4{mf(100)}")
    assert piece.predicted_s == pytest.approx(4 * MOVE_S)


def test_loops_in_loops_are_multiplied() -> None:
    pieces = check_plan(DRONE, "2{3{mf(100);}tc(90);}")
    assert sum(p.predicted_s for p in pieces) == pytest.approx(2 * (3 * MOVE_S + TURN_S))


def test_a_condition_is_predicted_by_its_first_call_which_is_sure_to_be_made() -> None:
    assert check_plan(DRONE, "?s('cat')&s('dog')|s('cow'){}")[0].predicted_s == 1.5275


def test_a_return_outside_all_blocks_ends_the_plan_and_the_rest_is_not_read() -> None:
    checker = MiniSpecChecker(DRONE)
    assert not checker.feed("->Tru")
    assert not checker.done
    (piece,) = checker.feed("e; I hope that helps {{{")
    assert (piece.text, checker.done) == ("->True;", True)
    assert checker.feed("((((") == []
    assert checker.finish() == (None, "")


def test_a_return_in_a_block_does_not_end_the_plan() -> None:
    checker = MiniSpecChecker(DRONE)
    checker.feed("?iv('a'){->True;}")
    assert not checker.done
    assert checker.finish() == (None, "}")


def test_a_return_at_the_end_of_the_text_is_done() -> None:
    checker = MiniSpecChecker(DRONE)
    assert checker.feed("->-1.5") == []
    piece, tail = checker.finish()
    assert piece == Piece("->-1.5", (), 0.0, (Return(-1.5),))
    assert (tail, checker.done) == ("", True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fly(10);", "character 4 of the plan: unknown skill 'fly': drone has mf, mb, ml, mr, mu,"),
        ("True{tp();}", "unknown skill 'True': drone has mf"),
        ("mf();", "character 4 of the plan: mf takes 1 arguments, not 0"),
        ("tp(1);", "tp takes 0 arguments, not 1"),
        ("mf(10,20);", "mf takes 1 arguments, not 2"),
        ("mf(9);", "character 5 of the plan: mf: distance must be 10 to 500 cm, not 9"),
        ("mf(-10);", "mf: distance must be 10 to 500 cm, not -10"),
        ("mu(301);", "mu: distance must be 10 to 300 cm, not 301"),
        ("?tc(361){}", "tc: angle must be 1 to 360 deg, not 361"),
        ("mf(10.5);", "mf: distance must be a whole number, not 10.5"),
        ("mf('10');", "mf: distance must be a number, not the text '10'"),
        ("d(True);", "d: time must be a number, not True"),
        ("g(10);", "g: object must be a quoted text, not 10"),
        ("g(cat);", "g: object must be a text in quotes: quote it, 'cat'"),
        ("g('');", "g: object must have 1 to 40 characters, not 0"),
        (f"g('{'x' * 41}');", "g: object must have 1 to 40 characters, not 41"),
        ("mf(10;", r"expected '\)', not ';'|expected ',', not ';'"),
        ("mf(,);", "expected an argument, not ','"),
        ("mf 10;", r"expected '\(', not '10'"),
        ("mf(10)mf(10);", "expected ';', not 'mf'"),
        ("mf(10)->True;", "expected ';', not '->'"),
        ("'cat';", "expected a statement, not 'cat'"),
        (")", r"expected a statement, not '\)'"),
        ("tp();}", "character 6 of the plan: '}' without a block to close"),
        ("2{tp();", "the plan ends with 1 open blocks: '}' missing"),
        ("2{?tp(){tp()", "the plan ends with 2 open blocks: '}' missing"),
        ("l('Hello", "the plan ends inside a quoted text"),
        ("l('Hello\\'", "the plan ends inside a quoted text"),
        ("l('Hello\\", "the plan ends inside a quoted text"),
        ("mf(10", "the plan ends in the middle of a statement"),
        ("mf", "the plan ends in the middle of a statement"),
        ("?iv('a')", "the plan ends in the middle of a statement"),
        ("?iv('a')>", "the plan ends in the middle of a statement"),
        ("3", "the plan ends in the middle of a statement"),
        ("->", "the plan ends in the middle of a statement"),
        ("", "the plan is empty"),
        (" ;\n; ", "the plan is empty"),
        ("3{2{};}", "the plan is empty"),
        ("1{" * 17, "character 34 of the plan: blocks are nested deeper than 16"),
        ("?tp(){" * 17, "blocks are nested deeper than 16"),
        ("1000{11{", "character 8 of the plan: loops repeat a statement more than 10000 times"),
        ("1001{", "a loop repeats 1 to 1000 times, a whole number, not 1001"),
        ("0{", "a loop repeats 1 to 1000 times, a whole number, not 0"),
        ("-2{", "a loop repeats 1 to 1000 times, a whole number, not -2"),
        ("2.0{", "a loop repeats 1 to 1000 times, a whole number, not 2.0"),
        ("3(", "expected '{', not '\\('"),
        ("x" * 65, "character 65 of the plan: a name is longer than 64 characters"),
        ("1" * 17, "character 17 of the plan: a number is longer than 16 characters"),
        ("l('" + "x" * 121, "character 124 of the plan: a text is longer than 120 characters"),
        ("l('a\nb');", r"a text must not contain the control character '\\n'"),
        ("l('a\\\0');", r"a text must not contain the control character '\\x00'"),
        ("mf(1.2.3);", "'1.2.3' is not a number"),
        ("#", "character 1 of the plan: '#' cannot be part of a plan"),
        ("tp();\0", r"'\\x00' cannot be part of a plan"),
        ("mf(１０);", "'１' cannot be part of a plan"),  # noqa: RUF001
        ("é", "'é' cannot be part of a plan"),
        ("?tp()=True{", "'=' must be followed by '='"),
        ("?tp()!{", "'!' must be followed by '='"),
        ("tp();-", "'-' must be followed by '>'"),
        ("?True{", "expected a skill, not 'True'"),
        ("?{", "expected a skill, not '{'"),
        ("?tp()&&tp(){", "expected a skill, not '&'"),
        ("?tp()==maybe{", "expected True, False, a number or a text, not 'maybe'"),
        ("?tp();", "expected '{', not ';'"),
        ("->;", "expected True, False, a number or a text, not ';'"),
        ("->True}", "'}' without a block to close"),
    ],
)
def test_what_is_no_plan_gets_one_sentence(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message) as error:
        check_plan(DRONE, text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text", ["1{" * 16 + "tp();" + "}" * 16, "1000{10{tp();}}", f"l('{'x' * 120}')"]
)
def test_the_largest_that_is_allowed_is_read(text: str) -> None:
    assert check_plan(DRONE, text)


def test_what_is_complete_before_a_fault_comes_first() -> None:
    checker = MiniSpecChecker(DRONE)
    assert [piece.text for piece in checker.feed("tp();mf(10);#;tp();")] == ["tp();", "mf(10);"]
    for _ in range(2):
        with pytest.raises(PlanError, match="character 13 of the plan: '#' cannot be"):
            checker.feed("tp();")
    with pytest.raises(PlanError, match="character 13 of the plan: '#' cannot be"):
        checker.finish()
