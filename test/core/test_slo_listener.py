"""Listeners consume words at a steady speed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.slo import Listener


def test_words_that_came_early_are_credit() -> None:
    listener = Listener(words_per_s=5.0)
    assert listener.credit_s(3.0) == 0.0
    listener.receive("one two three", 10.0)
    assert listener.credit_s(10.0) == pytest.approx(0.6)
    listener.receive(" four", 10.5)
    assert listener.stalled_s == 0.0
    assert listener.credit_s(10.5) == pytest.approx(0.3)


def test_a_listener_without_words_stalls() -> None:
    listener = Listener(words_per_s=2.0)
    listener.receive("one", 0.0)
    assert listener.credit_s(2.0) == pytest.approx(-1.5)
    listener.receive(" two", 2.0)
    assert listener.stalled_s == pytest.approx(1.5)
    assert listener.credit_s(2.0) == pytest.approx(0.5)


def test_pieces_of_a_word_are_one_word() -> None:
    listener = Listener(words_per_s=1.0)
    for piece in ("to", "gether", "", " and", " ", "on"):
        listener.receive(piece, 0.0)
    assert listener.credit_s(0.0) == pytest.approx(3.0)


@given(st.lists(st.tuples(st.floats(0, 5), st.text(alphabet="ab ", max_size=5)), max_size=30))
def test_time_is_spent_on_words_or_on_waiting(heard: list[tuple[float, str]]) -> None:
    listener, now, first_s = Listener(5.0), 0.0, None
    for pause_s, text in heard:
        now += pause_s
        listener.receive(text, now)
        if first_s is None and text.strip():
            first_s = now
    if first_s is not None:
        words = len("".join(text for _, text in heard).split())
        assert first_s + words / 5.0 + listener.stalled_s == pytest.approx(
            now + listener.credit_s(now)
        )
