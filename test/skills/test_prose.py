"""Texts that are read or spoken are cut after their sentences or paragraphs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.skills.reading import pieces_of
from timely_llm.core.errors import PlanError
from timely_llm.skills.checkers import make_checker
from timely_llm.skills.minispec.interpreter import Do, Ended, Interpreter
from timely_llm.skills.skill_set import SkillSet, parse_skill_set


def chat(language: str, more: str = "") -> SkillSet:
    return parse_skill_set(f"name: chat\nprompt: You tell stories.\nlanguage: {language}\n{more}")


SENTENCES, PARAGRAPHS = chat("sentence"), chat("paragraph")


def texts(skill_set: SkillSet, text: str) -> list[str]:
    return [piece.text for piece in pieces_of(skill_set, text)]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Hello there. ", "How are you? ", "Fine!"],
        ["It is 3.5 m, e.g. the table of Dr. J. Smith in the U.S. today. ", "Yes."],
        ["Wait… ", "Who?! ", '"No." ', "(Really.) ", "So do I. ", "Ok"],
        ["Steps:\n", "1. Go on. ", "2. Stop.\n", "\n  The end."],
        ["No. ", "It is version 2. ", "Good."],
        ["Go (e.g. now) at once. ", "v1.2.3 is out.\n", "Fig. 2 shows it."],
        ["你好。", "你是谁？", "“好。”", "是"],  # noqa: RUF001
        ["One two three"],
        [" ... ", "What"],
        ["a" * 50 + ". ", "b"],
    ],
)
def test_a_text_is_cut_after_its_sentences(sentences: list[str]) -> None:
    assert texts(SENTENCES, "".join(sentences)) == sentences


@pytest.mark.parametrize(
    "paragraphs",
    [
        ["One. Two.\nThree.\n\n", "Four.\n \t\n", "\n\nFive."],
        ["\n\n\nOne\r\n\r\n", "Two"],
        ["One"],
    ],
)
def test_a_text_is_cut_after_its_paragraphs(paragraphs: list[str]) -> None:
    assert texts(PARAGRAPHS, "".join(paragraphs)) == paragraphs


def test_a_piece_takes_the_time_of_reading_it() -> None:
    reading, speaking = SENTENCES, chat("sentence", "words_per_s: 3")
    text = "I see a red cup. It is big."
    assert [piece.predicted_s for piece in pieces_of(reading, text)] == [5 / 5, 3 / 5]
    assert [piece.predicted_s for piece in pieces_of(speaking, text)] == [5 / 3, 3 / 3]


def test_the_end_of_a_sentence_is_seen_with_the_white_space_after_it() -> None:
    checker = make_checker(SENTENCES)
    assert checker.feed("It is 3.") == []
    assert checker.feed("5 m. So") != []
    assert checker.tail == "So"
    assert (checker.done, checker.rest) == (False, "")


def test_what_follows_the_last_sentence_is_no_piece() -> None:
    checker = make_checker(SENTENCES)
    assert len(checker.feed("Yes. \n ")) == 1
    assert checker.finish() == (None, "\n ")


@pytest.mark.parametrize("skill_set", [SENTENCES, PARAGRAPHS])
@pytest.mark.parametrize("text", ["", " \n\n "])
def test_an_empty_text_is_refused(skill_set: SkillSet, text: str) -> None:
    with pytest.raises(PlanError, match="the text is empty"):
        pieces_of(skill_set, text)


def test_the_prompt_needs_no_skills() -> None:
    assert SENTENCES.prompt_text() == "You tell stories.\n"


def test_a_robot_says_each_piece() -> None:
    robot, said = Interpreter(SENTENCES), []
    for index, text in enumerate(texts(SENTENCES, "Hello there. How are you?")):
        robot.add(index, text, final=index == 1)
        while isinstance(action := robot.next(), Do):
            said.append((action.index, action.call.arguments, action.call.predicted_s))
            robot.resume(True)
    assert isinstance(action, Ended)
    assert said == [(0, ("Hello there. ",), 2 / 5), (1, ("How are you?",), 3 / 5)]


words = st.text("aB1.!?…。\"') \n", max_size=60)


@examples(200)
@given(words | st.text(max_size=30), st.sampled_from([SENTENCES, PARAGRAPHS]), st.data())
def test_pieces_make_up_the_text_however_it_is_split(
    text: str, skill_set: SkillSet, data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=6).map(sorted))
    chunks = [text[a:b] for a, b in pairwise([0, *places, len(text)])]
    found = []
    for way in (chunks, [text], list(text)):
        checker = make_checker(skill_set)
        pieces = [piece for chunk in way for piece in checker.feed(chunk)]
        tail = checker.tail
        assert "".join(piece.text for piece in pieces) + tail == text
        assert all(piece.predicted_s > 0 for piece in pieces)
        found.append([piece.text for piece in pieces])
    assert found[0] == found[1] == found[2]
