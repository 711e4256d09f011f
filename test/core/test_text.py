"""Words from outside never forge a line, and never fill a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.text import (
    MOST,
    SENTENCE,
    clipped,
    count_of,
    echoed,
    joined,
    listed,
    quoted,
    sentence,
)

ANYTHING = st.text(st.characters(codec=None), max_size=300)


def is_safe(text: str, most: int) -> None:
    assert text.isprintable(), "a control character or a surrogate"
    assert len(text.splitlines()) <= 1, "a second line"
    assert len(text) <= 10 * (most + 3) + 2  # an escape has at most ten characters
    text.encode()


@given(ANYTHING, st.integers(1, 100))
def test_what_is_echoed_is_one_short_printable_line(text: str, most: int) -> None:
    is_safe(echoed(text, most), most)
    is_safe(quoted(text, most), most)


@given(ANYTHING)
def test_a_sentence_is_one_short_printable_line(text: str) -> None:
    is_safe(sentence(ValueError(text)), SENTENCE)


@given(st.text("abc_ 1é漢", max_size=MOST))
def test_usual_names_stand_as_they_are(name: str) -> None:
    assert clipped(name) == echoed(name) == name
    assert quoted(name) == repr(name)


@given(st.recursive(st.integers() | ANYTHING, lambda deeper: st.lists(deeper), max_leaves=50))
def test_values_of_documents_are_short(value: object) -> None:
    is_safe(quoted(value), MOST)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\n[INFO] [0.0] [plan_server]: forged", r"one\n[INFO] [0.0] [plan_server]: forged"),
        ("\x1b[2Jcleared", r"\x1b[2Jcleared"),
        ("\ud800", r"\ud800"),
        ("\u202eright to left", r"\u202eright to left"),
        ("a\u2028b\x85c", r"a\u2028b\x85c"),
        ("x" * 5_000_000, "x" * MOST + "..."),
    ],
)
def test_what_could_mislead_a_reader_is_escaped(text: str, shown: str) -> None:
    assert echoed(text) == shown


def test_big_documents_are_not_written_out() -> None:
    class Loud:
        def __repr__(self) -> str:
            return "loud\n" * 1000

    assert len(quoted([["x" * 1000] * 1000] * 1000)) < 200
    assert len(quoted(Loud())) < 200
    assert len(quoted(10**4000)) < 200


def test_of_many_names_a_few_are_listed() -> None:
    assert listed([]) == "none"
    assert listed(["arm", "drone"]) == "arm, drone"
    assert listed([f"s{i}" for i in range(64)]).endswith("s14, s15 and 48 more")


def test_a_noun_is_as_many_as_its_number() -> None:
    assert count_of(1, "robot") == "1 robot"
    assert count_of(3000, "robot") == "3,000 robots"
    assert count_of(2, "plan was", "plans were") == "2 plans were"


def test_words_are_joined_like_in_a_sentence() -> None:
    assert joined([]) == ""
    assert joined(["a"]) == "a"
    assert joined(["a", "b", "c"]) == "a, b and c"
