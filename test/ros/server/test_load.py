"""What a server says of itself, as a message and back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rclpy.serialization import deserialize_message, serialize_message

from test.dispatch.views import dues, positive
from test.examples import examples
from timely_llm import msg
from timely_llm.core.errors import RequestError
from timely_llm.dispatch.contract import MOST_DUE, ServerView
from timely_llm.ros.server.load import load_message, server_view

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
TOKENS = st.integers(0, 2**32 - 1)
numbers = st.floats(width=64) | st.sampled_from((math.inf, -math.inf, math.nan, -0.0))


@st.composite
def loads(draw: st.DrawFn) -> ServerView:
    served = draw(st.lists(NAMES, unique=True, max_size=5))
    return ServerView(
        "a",
        tuple(draw(st.lists(positive, min_size=1, max_size=5))),
        draw(st.floats(0, 10)),
        draw(st.floats(0, 1)),
        draw(st.integers(0, 2**64 - 1)),
        draw(st.integers(0, 2**64 - 1)),
        draw(st.integers(1, 2**32 - 1)),
        draw(st.dictionaries(NAMES, TOKENS, max_size=3)),
        draw(st.dictionaries(st.tuples(NAMES, NAMES), TOKENS, max_size=3)),
        tuple(draw(st.lists(positive, max_size=3))),
        tuple(draw(st.lists(dues, max_size=5))),
        len(served),
        frozenset(key for key in served if draw(st.booleans())),
        draw(st.floats(0, 1)),
        draw(st.floats(0, 10)),
        tuple(served),
    )


def sent(message: msg.ServerLoad) -> Any:
    return deserialize_message(serialize_message(message), msg.ServerLoad)


@examples(150)
@given(loads(), st.booleans())
def test_a_view_survives_the_way_there_and_back(view: ServerView, active: bool) -> None:
    message = sent(load_message(view, "life", active))
    assert (message.life, message.active) == ("life", active)
    read = server_view(message, "a", view.rtt_s, view.age_s)
    assert read == replace(view, active=active)


def load(**changes: Any) -> msg.ServerLoad:
    view = ServerView("a", (0.02,), max_rows=8)
    message = load_message(view, "life", True)
    for name, value in changes.items():
        setattr(message, name, value)
    return message


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": []},
        {"steps": [0.02, math.nan]},
        {"row": -0.1},
        {"prompt_token": math.inf},
        {"rates": [-1.0]},
        {"max_rows": 0},
        {"due": [msg.DueSegment(due_in=0.1, tokens=1.0, weight=1.0)]},
        {"due": [msg.DueSegment(tokens=-1.0, weight=1.0, grace=1.0)]},
        {"due": [msg.DueSegment(tokens=1.0, weight=-1.0, grace=1.0)]},
    ],
)
def test_an_impossible_load_is_refused_in_one_sentence(changes: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="the view of server 'b' has an impossible number"):
        server_view(sent(load(**changes)), "b")


def test_a_due_list_has_an_end() -> None:
    due = [msg.DueSegment(tokens=1.0, weight=1.0, grace=1.0)] * (MOST_DUE + 1)
    assert len(server_view(load(due=due[1:]), "b").due) == MOST_DUE
    with pytest.raises(RequestError, match="has 257 entries in its due list, at most 256 are"):
        server_view(load(due=due), "b")


@examples(300)
@given(
    st.lists(numbers, max_size=3), st.lists(numbers, max_size=3), st.lists(numbers, max_size=5),
    TOKENS,
)  # fmt: skip
def test_any_load_is_a_view_or_refused(
    steps: list[float], rates: list[float], others: list[float], rows: int
) -> None:
    row, token, due_in, weight, grace = (*others, 0.0, 0.0, 0.0, 1.0, 1.0)[:5]
    due = [msg.DueSegment(due_in=due_in, tokens=1.0, weight=weight, grace=grace)]
    message = load(steps=steps, rates=rates, row=row, prompt_token=token, due=due, max_rows=rows)
    try:
        view = server_view(sent(message), "b")
    except RequestError:
        return
    assert math.isfinite(sum((*view.steps_s, view.step_s(40), *view.rates, *view.due[0])))
    assert replace(view, age_s=1.0).step_s(1) > 0.0
