"""Conversions of messages of conversations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rclpy.serialization import deserialize_message, serialize_message

from timely_llm import msg, srv
from timely_llm.action import Converse
from timely_llm.core.errors import ConfigurationError, RequestError
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    PlanRequest,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.slo import REAL_TIME, SLO_CLASSES, TEXT, VOICE, Slo, SloClass
from timely_llm.core.time_utility import URGENT
from timely_llm.ros import conversions
from timely_llm.ros.server.setup import DEFAULT_SLO_CLASSES, slo_classes
from timely_llm.serving.server.face import RunningRequest

CLASSES = {made.name: made for made in SLO_CLASSES}
NUMBERS = st.floats(0.001, 1000.0)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1)


def request_of(kind: Any = msg.StreamRequest, **fields: Any) -> StreamRequest:
    """Return the request in a message with these fields."""
    message = kind(**({"agent": "a", "prompt": "Hi."} | fields))
    return conversions.stream_request(message, "r", 99, CLASSES)


def test_a_goal_and_a_flat_message_are_the_same_request() -> None:
    fields = {"slo_class": "voice", "conversation": "c", "turn": 2, "seed": 7, "temperature": 0.5}
    assert request_of(Converse.Goal, **fields) == request_of(msg.StreamRequest, **fields)


def test_a_message_that_says_little_gets_the_defaults() -> None:
    request = request_of()
    assert request.messages == (ChatMessage("user", "Hi."),)
    assert (request.request_id, request.max_tokens, request.words_per_s) == ("r", 99, 5.0)
    assert (request.slo, request.weight) == (TEXT.slo, TEXT.weight)
    assert (request.conversation, request.turn) == ("", 0)


@pytest.mark.parametrize(
    ("made", "words_per_s"), [(VOICE, 3.0), (TEXT, 5.0), (REAL_TIME, 5.0)], ids=str
)
def test_a_service_level_by_name(made: SloClass, words_per_s: float) -> None:
    request = request_of(slo_class=made.name)
    assert (request.slo, request.weight, request.words_per_s) == (
        made.slo, made.weight, words_per_s,
    )  # fmt: skip


def test_what_a_request_says_itself_comes_before_its_service_level() -> None:
    request = request_of(slo_class="real-time", ttft=0.5, weight=7.0, words_per_s=2.0)
    assert request.slo == replace(REAL_TIME.slo, ttft_s=0.5)
    assert (request.weight, request.words_per_s) == (7.0, 2.0)
    assert request_of(slo_class="real-time", deadline=math.inf).slo.deadline_s == math.inf


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"slo_class": "quick"},
         "unknown service level 'quick': choose one of voice, text, real-time"),
        ({"tpot": math.nan}, "tpot must be above 0 and at most 86400 s, not nan"),
        ({"ttft": -1.0}, "ttft must be above 0"),
        ({"weight": math.inf}, "weight must be 0 to"),
        ({"words_per_s": -5.0}, "words_per_s must be 0.1 to 1000, not -5"),
        ({"prompt": "", "messages": [msg.ChatMessage(role="user", content=" ")]},
         "the last message must be the user's and say something"),
    ],
)  # fmt: skip
def test_what_is_not_possible_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError) as raised:
        request_of(**fields)
    assert words in str(raised.value)


@given(
    ttft_s=NUMBERS, tpot_s=NUMBERS, deadline_s=NUMBERS | st.just(math.inf), weight=NUMBERS,
    words_per_s=st.floats(0.1, 1000.0), turn=st.integers(0, 2**32 - 1), text=TEXTS,
)  # fmt: skip
def test_an_accepted_request_says_everything(
    ttft_s: float, tpot_s: float, deadline_s: float, weight: float, words_per_s: float, turn: int,
    text: str,
) -> None:  # fmt: skip
    messages = (ChatMessage("system", text), ChatMessage("user", "Hi."))
    request = StreamRequest(
        "r", "a", messages, Slo(ttft_s, tpot_s, deadline_s), weight, "c", turn, words_per_s,
        max_tokens=5, temperature=1.5, seed=9,
    )  # fmt: skip
    message = conversions.stream_request_message(request)
    others = {"text": SloClass("text", Slo(9.0, 9.0, 9.0), 9.0)}
    assert conversions.stream_request(message, "r", 99, others) == request


def test_chunks_and_results_survive_the_way_there_and_back() -> None:
    chunk = StreamChunk("r", "a", 3, "word", True)
    assert conversions.STREAM_CHUNK.read(conversions.STREAM_CHUNK.message(chunk)) == chunk
    result = StreamResult(
        "r", "a", ErrorCode.CANCELED, "why", "text", True, 0.1, 0.2, 0.3, 0.4, 0.5, True, 1, 2, 3, 4
    )
    message = conversions.STREAM_RESULT.message(result, Converse.Result)
    assert conversions.STREAM_RESULT.read(message, agent="a") == result
    flat = conversions.STREAM_RESULT.message(result)
    assert conversions.STREAM_RESULT.read(flat) == result


def test_the_requests_of_a_dispatcher_survive_the_way_there_and_back() -> None:
    plan = PlanRequest("r", "a", "drone", "Go.", URGENT, True, epoch=3, dispatcher="/front")
    said = (ChatMessage("user", "Hi."),)
    talk = StreamRequest(
        "t", "a", said, Slo(0.5, 0.2, 9.0), 2.0, first_token=7, dispatcher="/front"
    )
    served = [RunningRequest(talk, 2, "Hello"), RunningRequest(plan)]
    response = conversions.fill_requests(srv.GetRequests.Response(), served)
    assert [(text.index, text.text) for text in response.texts] == [(9, "Hello")]
    got: Any = deserialize_message(serialize_message(response), srv.GetRequests.Response)
    assert conversions.requests_in(got) == [served[1], served[0]]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "the requests of a server have other texts than answers"),
        ([msg.StreamChunk(request_id="other")], "have other texts than answers"),
        ([msg.StreamChunk(request_id="t", index=6)], "the number of an answer's tokens must be 0"),
    ],
)
def test_texts_of_other_requests_are_refused(texts: list[msg.StreamChunk], words: str) -> None:
    message = msg.StreamRequest(
        request_id="t", agent="a", prompt="Hi.", first_token=7, max_tokens=9
    )
    response = srv.GetRequests.Response(answers=[message], texts=texts)
    with pytest.raises(RequestError, match=words):
        conversions.requests_in(response)


def test_the_parameters_default_is_the_papers_classes() -> None:
    assert slo_classes({"slo_classes": DEFAULT_SLO_CLASSES}) == CLASSES
    assert slo_classes({"slo_classes": [""]}) == {"text": TEXT}
    assert list(slo_classes({"slo_classes": ["text:rate=4", "slow:rate=1"]})) == ["text", "slow"]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["a:rate=1", "a:rate=2"], "parameter slo_classes names a service level twice"),
        (["a:speed=1"], "service level 'a:speed=1': 'speed=1' is not one of ttft, rate"),
    ],
)
def test_a_wrong_service_level_is_named(texts: list[str], words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        slo_classes({"slo_classes": texts})
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt": "\ud800"}, r"message 0 holds '\\ud800' at place 0, which is no character"),
        ({"prompt": "a\0"}, r"message 0 holds '\\x00' at place 1, a control character"),
        ({"conversation": "c\n"}, r"conversation must be of printable characters, not 'c\\n'"),
        ({"slo_class": "x" * 100_000}, r"unknown service level 'x{80}\.\.\.': choose one of voice"),
    ],
)
def test_what_is_no_text_is_refused_in_one_short_sentence(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestError, match=words) as error:
        request_of(**fields)
    assert len(str(error.value).encode()) < 300


def test_a_message_carries_no_more_messages_than_a_request_may_have() -> None:
    said = [msg.ChatMessage(role="user", content="Hi.")] * 256
    message = msg.StreamRequest(agent="a", messages=said)
    with pytest.raises(RequestError, match="there must be 1 to 256 messages, not 257"):
        message.prompt = "And this?"
        conversions.stream_request(message, "r", 99, CLASSES)
    with pytest.raises(Exception, match="serialize"):
        serialize_message(msg.StreamRequest(agent="a", messages=[*said, said[0]]))


def test_a_code_that_is_not_known_here_is_a_failure_of_the_server() -> None:
    result = conversions.STREAM_RESULT.read(msg.StreamResult(request_id="r", error_code=999))
    assert result.error_code is ErrorCode.ENGINE_FAILED
