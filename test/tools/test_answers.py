"""Answers in two phases: the model's own text, and the tool output between."""

from __future__ import annotations

from tools.tiny_planner.answers import Part, outside, outside_words, own_words, parts_of

ANSWER = "look();=> red cup, ball\npick('ball');->True;"


def test_tool_output_is_a_list_of_names_or_nothing() -> None:
    assert outside(["red cup", "ball"]) == "=> red cup, ball\n"
    assert outside([]) == "=> nothing\n"


def test_an_answer_is_parted_into_own_text_and_tool_output() -> None:
    assert parts_of(ANSWER) == (
        Part("look();", ours=True),
        Part("=> red cup, ball\n", ours=False),
        Part("pick('ball');->True;", ours=True),
    )
    assert own_words(ANSWER) == "look();pick('ball');->True;"
    assert outside_words(ANSWER) == ["=> red cup, ball\n"]


def test_a_plan_without_a_look_is_one_part() -> None:
    assert parts_of("tp();->True;") == (Part("tp();->True;", ours=True),)
    assert outside_words("tp();->True;") == []
