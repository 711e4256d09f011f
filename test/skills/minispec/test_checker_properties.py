"""What holds for every plan: however it is written, however it is split."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.skills.plans import ALPHABET, DRONE, Written, is_allowed, plans
from test.skills.reading import read
from timely_llm.core.errors import PlanError
from timely_llm.skills.minispec.checker import MiniSpecChecker
from timely_llm.skills.stop_checker import Piece


@examples(100)
@given(plans())
def test_any_way_of_writing_a_plan_gives_the_same_pieces(plan: Written) -> None:
    pieces, tail = read(plan.text)
    assert [piece.text for piece in pieces] == [text for text, _ in plan.pieces]
    assert tail == plan.tail
    predicted = [seconds for _, seconds in plan.pieces]
    assert [piece.predicted_s for piece in pieces] == pytest.approx(predicted)
    for piece in pieces:
        assert all(is_allowed(call.name, call.arguments) for call in piece.calls)


@examples(50)
@given(plans(), st.data())
def test_where_the_text_is_split_makes_no_difference(plan: Written, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(plan.text)), max_size=6).map(sorted))
    chunks = [plan.text[a:b] for a, b in pairwise([0, *cuts, len(plan.text)])]
    assert read(*chunks) == read(plan.text) == read(*plan.text)


def unsafe_places(text: str) -> set[int]:
    """Return the places inside a condition, arguments or a quoted text."""
    unsafe, quote, arguments, condition, escaped = set(), "", False, False, False
    for place, char in enumerate(text):
        if quote or arguments or condition:
            unsafe.add(place)
        if quote:
            if not escaped and char == quote:
                quote = ""
            escaped = char == "\\" and not escaped
        elif char in "'\"":
            quote = char
        elif char in "()":
            arguments = char == "("
        elif char in "?{":
            condition = char == "?"
    return unsafe


@examples(50)
@given(plans())
def test_no_boundary_is_inside_a_condition_an_argument_or_a_text(plan: Written) -> None:
    pieces, tail = read(plan.text)
    assert "".join(piece.text for piece in pieces) + tail == plan.text
    ends = set(accumulate(len(piece.text) for piece in pieces))
    assert not ends & unsafe_places(plan.text)


FRAGMENTS = [
    "mf(", "mf(100)", "d(True)", "tc(0)", "tc(360)", "?", "iv('a')", "s(\"b\")", "->", "==", "<",
    "!=", "&", "|", "{", "}", "}", ";", ";", "(", ")", ",", "3", "0", "-7", "1.5", "True", "'c'",
    "'", "\\", " ", "tp()", "l('x')", "_", "é", "\n", "1000{", "-", "=",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A plan with some characters lost, doubled, replaced or put in."""
    text = draw(plans()).text
    rng = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 4))):
        place, length = rng.randrange(len(text) + 1), rng.randrange(3)
        middle = rng.choice(["", text[place : place + 5], rng.choice(FRAGMENTS)])
        text = text[:place] + middle + text[place + length :]
    return text


@examples(200)
@given(
    st.text(max_size=30)
    | st.text(ALPHABET + "mftcivgsp", max_size=30)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=15).map("".join)
    | damaged()
)
def test_any_text_is_a_plan_or_refused_and_never_breaks_a_limit(text: str) -> None:
    checker, found = MiniSpecChecker(DRONE), []
    try:
        for char in text:
            found += checker.feed(char)
        last, tail = checker.finish()
    except PlanError as error:
        assert pieces_before(error, text) == found
    else:
        found += [last] if last else []
        rebuilt = "".join(piece.text for piece in found) + tail
        assert text.startswith(rebuilt) if checker.done else rebuilt == text
    for piece in found:
        assert all(is_allowed(call.name, call.arguments) for call in piece.calls)
        assert piece.predicted_s >= 0


def pieces_before(error: PlanError, text: str) -> list[Piece]:
    """Return the pieces before the same error if the text comes all at once."""
    checker, found = MiniSpecChecker(DRONE), []
    with pytest.raises(PlanError) as again:
        found += checker.feed(text)
        checker.finish()
    assert str(again.value) == str(error)
    return found
