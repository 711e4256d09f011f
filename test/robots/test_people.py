"""What simulated people ask, and when."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.request import ErrorCode, StreamRequest, StreamResult
from timely_llm.resources import resource
from timely_llm.robots.people import MANNERS, MOST_TURNS, Person, Question, people
from timely_llm.robots.questions import QuestionSet, QuestionSetError, load_question_set

SHIPPED = load_question_set(resource("config/questions/small_talk.yaml"))
PLAIN = QuestionSet(system="Be kind.", first=["Hello?"], later=["And then?"])
VOICE, TEXT = MANNERS


def person(questions: QuestionSet = PLAIN, seed: int = 0) -> Person:
    return Person("ann", VOICE, questions, np.random.default_rng(seed), 2.0, 10.0)


def result(code: ErrorCode = ErrorCode.NONE, text: str = "Well.") -> StreamResult:
    return StreamResult("ann-1", "ann", code, "", text)


def turns(talker: Person, count: int, code: ErrorCode = ErrorCode.NONE) -> list[Question]:
    """Let a person ask so often, each answer being there at once; return the questions."""
    asked = []
    for _ in range(count):
        asked.append(talker.ask())
        talker.take(result(code), talker.next_s if talker.next_s < math.inf else 20.0)
    return asked


def test_every_other_person_hears_and_the_others_read() -> None:
    asking = people(5, PLAIN, 3, 1.0, 0.0)
    assert [p.agent for p in asking] == [f"person_{i}" for i in range(5)]
    assert [p.manner for p in asking] == [VOICE, TEXT, VOICE, TEXT, VOICE]
    assert (VOICE.slo_class, VOICE.words_per_s) == ("voice", 3.0)
    assert (TEXT.slo_class, TEXT.words_per_s) == ("text", 5.0)


def test_a_persons_questions_do_not_depend_on_other_people() -> None:
    alone, other = people(2, SHIPPED, 5, 1.0, 0.0)
    one, beside = people(2, SHIPPED, 5, 1.0, 0.0)
    turns(beside, 7)
    assert turns(one, 9) == turns(alone, 9)
    assert turns(other, 9) != turns(one, 9)


def test_conversations_have_one_to_four_turns_and_each_sends_only_what_is_new() -> None:
    asked = turns(person(), 60)
    lengths: dict[str, int] = {}
    for question in asked:
        assert question.turn == lengths.get(question.conversation, 0)
        lengths[question.conversation] = question.turn + 1
        roles = [message.role for message in question.messages]
        assert roles == (["user"] if question.turn else ["system", "user"])
        assert question.text == ("And then?" if question.turn else "Hello?")
    *whole, _ = lengths.values()
    assert set(whole) == set(range(1, MOST_TURNS + 1))


def test_a_server_that_has_forgotten_gets_the_whole_conversation_at_once() -> None:
    talker = person()
    later = talker.ask()
    while later.turn < 2:
        talker.take(result(), 20.0)
        later = talker.ask()
    talker.take(result(ErrorCode.UNKNOWN_CONVERSATION, ""), 30.0)
    assert talker.next_s == 30.0
    again = talker.ask()
    assert (again.text, again.turn, again.conversation) == (later.text, 0, later.conversation)
    roles = [message.role for message in again.messages]
    assert roles == ["system", *["user", "assistant"] * 2, "user"]
    talker.take(result(), 31.0)
    following = talker.ask()
    assert following.turn == (1 if following.conversation == again.conversation else 0)


def test_an_error_ends_the_conversation() -> None:
    asked = turns(person(), 10, ErrorCode.ENGINE_FAILED)
    assert [question.turn for question in asked] == [0] * 10
    assert len({question.conversation for question in asked}) == 10


def test_the_pause_begins_when_the_answer_is_taken_in() -> None:
    quick, slow = person(), person()
    for talker, words in ((quick, "one"), (slow, "one two three four five six")):
        talker.ask()
        assert talker.next_s == math.inf
        talker.receive(words, 20.0)
        talker.take(result(), 20.0)
    assert slow.next_s - quick.next_s == pytest.approx(5 / VOICE.words_per_s)


def test_a_listener_without_words_stalls() -> None:
    talker = person()
    talker.ask()
    for text, now in (("one", 20.0), (" two", 20.2), (" three", 23.0), (" four", 23.1)):
        talker.receive(text, now)
    assert talker.stalls == 1
    assert talker.stalled_s == pytest.approx(23.0 - 20.0 - 2 / VOICE.words_per_s)
    talker.take(result(), 24.0)
    talker.ask()
    assert (talker.stalls, talker.stalled_s) == (0, 0.0)


@given(seed=st.integers(0, 2**32 - 1), codes=st.lists(st.sampled_from(ErrorCode), max_size=20))
def test_whatever_the_server_says_the_next_question_is_a_sane_request(
    seed: int, codes: list[ErrorCode]
) -> None:
    talker, now = person(SHIPPED, seed), 10.0
    for code in codes:
        now = max(now, talker.next_s)
        asked = talker.ask()
        StreamRequest(
            "ann-1", "ann", asked.messages, conversation=asked.conversation, turn=asked.turn,
            seed=asked.seed,
        )  # fmt: skip
        now += 0.5
        talker.receive("a word or two", now)
        talker.take(result(code), now)
        assert now <= talker.next_s < math.inf


def test_the_shipped_questions_have_no_unfilled_places() -> None:
    rng = np.random.default_rng(0)
    texts = {SHIPPED.draw(first, rng) for first in [True, False] * 200}
    assert len(texts) > 50
    assert not [text for text in texts if "{" in text or "}" in text]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("first: [Hello]", "the field 'later' is missing"),
        ("{first: [], later: [x]}", "first: must not be empty"),
        ("{first: ['  '], later: [x]}", "a text must say something"),
        ("{first: ['What is {it}?'], later: [x]}", r"there are no words for \{it\}"),
        ("{first: ['What is {}?'], later: [x]}", "a placeholder must be a name in braces"),
        ("{words: {it: [a]}, first: ['{it:>9999}'], later: [x]}", "must be a name in braces"),
        ("{first: ['{'], later: [x]}", "write {{ or }} for a brace"),
        ("{first: [x], later: [x], last: [x]}", "unknown field 'last': did you mean 'later'"),
    ],
)
def test_a_broken_question_set_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "questions.yaml"
    path.write_text(text)
    with pytest.raises(QuestionSetError, match=message):
        load_question_set(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(QuestionSetError, match=r"cannot read question set .*: No such file"):
        load_question_set(tmp_path / "none.yaml")
