"""Parts in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.core.errors import RequestError
from timely_llm.progressive.answer import Assembly, PartText


def test_text_is_held_back_until_the_parts_before_it_have_ended() -> None:
    made = Assembly()
    assert made.push(1, "second ") == []
    assert made.push(0, "fi") == [PartText(0, "fi")]
    assert made.end(1) == []
    assert made.push(0, "rst ") == [PartText(0, "rst ")]
    assert made.end(0) == [PartText(1, "second ")]
    assert (made.text, made.part, made.done) == ("first second ", 2, False)
    made.expect(2)
    assert made.done


def test_text_of_the_part_that_is_shown_is_shown_as_it_comes() -> None:
    made = Assembly()
    made.end(0)
    assert made.push(1, "a") == [PartText(1, "a")]
    assert made.push(1, "") == []


def test_an_empty_part_is_passed_over() -> None:
    made = Assembly()
    made.push(2, "c")
    made.end(1)
    assert made.end(0) == [PartText(2, "c")]


def test_nothing_follows_the_end_of_a_part() -> None:
    made = Assembly()
    made.end(1)
    with pytest.raises(RequestError, match="has ended"):
        made.push(1, "a")
    with pytest.raises(RequestError, match="has ended"):
        made.end(1)
    made.expect(2)
    with pytest.raises(RequestError, match="has 2 parts"):
        made.push(2, "a")


def test_the_number_of_parts_is_set_once() -> None:
    made = Assembly()
    made.push(2, "c")
    with pytest.raises(RequestError, match="with 3 parts cannot have 2"):
        made.expect(2)
    made.expect(3)
    made.expect(3)
    with pytest.raises(RequestError, match="with 3 parts cannot have 4"):
        made.expect(4)


@examples(60)
@given(st.data())
def test_whatever_the_order_the_text_is_that_of_the_parts_in_order(data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.text("ab", max_size=3), max_size=5))
    left = [[*text, None] for text in texts]
    made, shown = Assembly(), []
    made.expect(len(texts))
    while any(left):
        part = data.draw(st.sampled_from([place for place, one in enumerate(left) if one]))
        word = left[part].pop(0)
        shown += made.end(part) if word is None else made.push(part, word)
    assert [one.part for one in shown] == sorted(one.part for one in shown)
    assert "".join(one.text for one in shown) == made.text == "".join(texts)
    assert made.done
