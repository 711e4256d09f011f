"""Rouge-1 on worked examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.progressive.ensemble.rouge import Rouge, rouge_1


def test_a_word_counts_as_often_as_it_occurs() -> None:
    found = rouge_1("the cat the cat sat", "The cat sat on the mat.")
    assert found == Rouge(4 / 5, 4 / 6)
    assert found.f1 == pytest.approx(8 / 11)


def test_texts_without_words_share_nothing() -> None:
    assert rouge_1("", "a b").f1 == rouge_1("a", "...").f1 == rouge_1("", "").f1 == 0.0


@examples(50)
@given(st.text(), st.text())
def test_it_is_a_share_and_turns_round(one: str, other: str) -> None:
    found = rouge_1(one, other)
    assert found == Rouge(*reversed(rouge_1(other, one)))
    assert 0.0 <= found.f1 <= 1.0
