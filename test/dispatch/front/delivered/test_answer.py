"""What a client has got of an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from test.dispatch.front.fronts import DRONE, Words
from test.dispatch.views import question
from timely_llm.core.request import ChatMessage, ErrorCode, StreamChunk, StreamResult
from timely_llm.dispatch.front.delivered.answer import DeliveredAnswer
from timely_llm.dispatch.front.delivered.recovery import GO_ON, asked_first
from timely_llm.dispatch.front.delivered.recovery import Words as AsServed
from timely_llm.dispatch.link import Found


def chunk(index: int, text: str = " so", final: bool = False) -> StreamChunk:
    return StreamChunk("p", "person", index, text, final)


def test_tokens_come_once_and_in_order() -> None:
    made = DeliveredAnswer(question("p"), 0.0)
    taken = [made.take(chunk(index), 1.0) for index in (0, 0, 2, 1, 2, 1)]
    assert taken == [True, False, False, True, True, False] and not made.whole
    assert made.take(chunk(3, "", True), 2.0) and made.whole


def test_the_rest_begins_with_the_token_after_the_last() -> None:
    made = DeliveredAnswer(question("p"), 0.0)
    made.take(chunk(0), 1.0)
    rest = made.rest(Words(), 2.0)
    assert (rest.stream.first_token, rest.stream.max_tokens, rest.answer_tokens) == (1, 255, 99.0)


def test_an_answer_that_another_dispatcher_continued_goes_on_from_there() -> None:
    asked = replace(question("p"), request=replace(question("p").stream, first_token=4))
    made = DeliveredAnswer(asked, 0.0)
    made.adopt(Found(made.waiting.request, text=" a b", tokens=2), 1.0)
    assert not made.take(chunk(2), 1.1) and made.take(chunk(6), 1.1)
    assert made.rest(Words(), 2.0).stream.first_token == 7


def test_a_new_dispatcher_knows_what_servers_before_the_present_one_delivered() -> None:
    before = DeliveredAnswer(question("p"), 0.0)
    for index, text in enumerate((" one", " two")):
        before.take(chunk(index, text), 1.0)
    rest = before.rest(AsServed(lambda name: DRONE), 2.0).stream
    assert rest.first_token == 2
    first, said = asked_first(rest)
    assert (first, said) == (question("p").request, " one two")

    made = DeliveredAnswer(replace(question("p"), request=first), 0.0)
    assert made.is_behind(Found(rest)), "the server of the rest answers after one with an old run"
    made.adopt(Found(rest, text=" three", tokens=1), 3.0)
    assert not made.is_behind(Found(rest)) and made.count == 3
    assert made.take(chunk(3, " four", True), 4.0)
    got = StreamResult("p", "person", ErrorCode.NONE, "", text=" three four", generated_tokens=2)
    assert made.has_come(got)
    merged = made.merged(got)
    assert isinstance(merged, StreamResult)
    assert (merged.text, merged.generated_tokens) == (" one two three four", 4)


def test_a_request_in_other_words_says_nothing_of_what_was_before() -> None:
    asked = question("p").stream
    said = (ChatMessage("assistant", "so"), ChatMessage("user", GO_ON))
    for request in (
        asked,
        replace(asked, first_token=2),
        replace(asked, messages=said, first_token=2),
        replace(asked, messages=(*asked.messages, *said)),
    ):
        assert asked_first(request) == (request, "")


def test_a_result_has_what_all_servers_delivered() -> None:
    made = DeliveredAnswer(question("p"), 0.0)
    made.take(chunk(0, " one"), 0.5)
    got = StreamResult("p", "person", ErrorCode.NONE, "", text=" two", generated_tokens=1)
    assert made.merged(got) == got, "one server has it all"
    made.rest(Words(), 2.0)
    made.take(chunk(1, " two", True), 3.5)
    merged = made.merged(got)
    assert isinstance(merged, StreamResult) and merged.text == " one two"
    assert (merged.ttft_s, merged.completion_s, merged.generated_tokens) == (0.5, 3.5, 2)
    assert merged.largest_gap_s == pytest.approx(3.0) and not merged.slo_met
