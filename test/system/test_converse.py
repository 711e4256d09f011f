"""Conversations with a real server and the embedded model, by action and by topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from test.system.conftest import Start
from test.system.ros_client import serving
from test.system.ros_talker import Talker
from timely_llm import msg
from timely_llm.core.request import ErrorCode


@pytest.fixture(scope="module")
def talker(start: Start, domain: int) -> Iterator[Talker]:
    with serving(
        start,
        Talker,
        domain,
        stats_period_s=0.1,
        slo_classes="['voice:rate=8', 'hurried:deadline=0.001,weight=5']",
    ) as made:
        yield made


def messages(*said: tuple[str, str]) -> list[msg.ChatMessage]:
    return [msg.ChatMessage(role=role, content=content) for role, content in said]


def test_tokens_come_each_once_and_make_up_the_text(talker: Talker) -> None:
    result = talker.answer("told", feedback=True)
    assert (result.error_code, result.error_msg, result.cut) == (ErrorCode.NONE, "", False)
    talker.until(lambda: len(talker.tokens_of("told")) == result.generated_tokens)
    tokens = talker.tokens_of("told")
    assert [token.index for token in tokens] == list(range(result.generated_tokens))
    assert "".join(token.text for token in tokens) == result.text != ""
    assert [token.final for token in tokens] == [False] * (len(tokens) - 1) + [True]
    assert {token.agent for token in tokens} == {"talker"}
    # A client's feedback ends with its result, which may overtake the last tokens.
    assert talker.fed_back == tokens[: len(talker.fed_back)] != []
    assert 0 < result.ttft <= result.completion
    assert 0 < result.tpot <= result.largest_gap <= result.completion
    assert result.slo_met
    assert (result.kept_tokens, result.recomputed_tokens) == (0, 0)


def test_only_a_goal_that_asks_for_feedback_gets_it(talker: Talker) -> None:
    result = talker.answer("quiet")
    talker.until(lambda: len(talker.tokens_of("quiet")) == result.generated_tokens)
    assert "quiet" not in {token.request_id for token in talker.fed_back}


def test_messages_and_prompt_are_one_chat(talker: Talker) -> None:
    said = messages(("system", "Be short."), ("user", "A?"), ("assistant", "B."))
    with_prompt = talker.answer("prompt", "C?", messages=said)
    in_full = talker.answer("messages", "", messages=[*said, *messages(("user", "C?"))])
    assert (with_prompt.text, with_prompt.prompt_tokens) == (in_full.text, in_full.prompt_tokens)
    assert talker.accepted("prompt").messages == talker.accepted("messages").messages


def test_a_later_turn_computes_only_what_is_new(talker: Talker) -> None:
    first = talker.answer("first", "Find the cat.", conversation="c")
    second = talker.answer("second", "And a cup?", conversation="c", turn=1)
    assert second.error_code == ErrorCode.NONE
    assert first.kept_tokens == 0 < second.kept_tokens < second.prompt_tokens
    history = messages(("user", "Find the cat."), ("assistant", first.text))
    anew = talker.answer("anew", "And a cup?", messages=history)
    assert anew.text == second.text
    talker.until(lambda: talker.stats[-1].kept_conversations >= 1)


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"conversation": "x", "turn": 1}, ErrorCode.UNKNOWN_CONVERSATION,
         "no conversation 'x' of 'talker' with 1 turns is kept: send all its messages"),
        ({"slo_class": "quick"}, ErrorCode.INVALID_REQUEST,
         "unknown service level 'quick': choose one of text, voice, hurried"),
        ({"prompt": ""}, ErrorCode.INVALID_REQUEST, "there must be 1 to 256 messages, not 0"),
        ({"turn": 2}, ErrorCode.INVALID_REQUEST, "a later turn needs the name of its conversation"),
        ({"tpot": -1.0}, ErrorCode.INVALID_REQUEST, "tpot must be above 0"),
        ({"deadline": float("nan")}, ErrorCode.INVALID_REQUEST, "deadline must be above 0"),
        ({"weight": -1.0}, ErrorCode.INVALID_REQUEST, "weight must be 0 to"),
        ({"temperature": 3.0}, ErrorCode.INVALID_REQUEST, "temperature must be 0 to 2, not 3"),
        ({"messages": messages(("robot", "Hi."))}, ErrorCode.INVALID_REQUEST,
         "the role of a message must be one of system, user, assistant, not 'robot'"),
        ({"prompt": "a1 " * 4000}, ErrorCode.INVALID_REQUEST, "tokens, at most 1536 are allowed"),
        ({"prompt": "word " * 4000}, ErrorCode.INVALID_REQUEST, "characters, at most 12288 are"),
        ({"prompt": "\0"}, ErrorCode.INVALID_REQUEST, "there must be 1 to 256 messages"),
        ({"prompt": "a\x1b[2J"}, ErrorCode.INVALID_REQUEST, r"message 0 holds '\x1b' at place 1"),
    ],
)  # fmt: skip
def test_what_is_not_possible_is_refused_in_one_sentence(
    talker: Talker, fields: dict[str, Any], code: ErrorCode, words: str
) -> None:
    talker.results.clear()
    result = talker.answer("refused", **fields)
    assert (result.error_code, result.text, result.ttft) == (code, "", -1.0)
    assert words in result.error_msg
    assert talker.ended("refused").error_msg == result.error_msg
    assert talker.listed() == {}


def test_a_request_may_come_by_topic(talker: Talker) -> None:
    talker.stream_requests.publish(
        msg.StreamRequest(request_id="flat", agent="bag", prompt="Hi.", slo_class="voice")
    )
    result, accepted = talker.ended("flat"), talker.accepted("flat")
    assert (result.agent, result.error_code) == ("bag", ErrorCode.NONE)
    talker.until(lambda: len(talker.tokens_of("flat")) == result.generated_tokens)
    # An accepted request has all its values, so that it can be replayed anywhere.
    assert (accepted.tpot, accepted.deadline) == (0.125, float("inf"))
    assert (accepted.words_per_s, accepted.max_tokens, accepted.weight) == (3.0, 256, 1.0)
    accepted.request_id = "again"
    talker.stream_requests.publish(accepted)
    assert talker.ended("again").text == result.text
    assert talker.accepted("again") == accepted


def test_an_answer_is_cut_at_its_most_tokens(talker: Talker) -> None:
    result = talker.answer("cut", max_tokens=3)
    assert (result.error_code, result.cut, result.generated_tokens) == (ErrorCode.NONE, True, 3)


def test_a_deadline_that_is_over_is_not_met(talker: Talker) -> None:
    result = talker.answer("late", slo_class="hurried")
    assert (result.error_code, result.slo_met) == (ErrorCode.NONE, False)
    talker.until(lambda: talker.stats[-1].slo_met < 1.0)
    assert talker.stats[-1].ttft_p95 >= talker.stats[-1].ttft_p50 > 0
    assert talker.stats[-1].chunks > 0


def test_plans_and_answers_are_served_side_by_side(talker: Talker) -> None:
    handle = talker.send(talker.goal("plan"))
    answer = talker.answer("answer")
    plan = talker.result(handle.get_result_async()).result
    assert (plan.error_code, answer.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert talker.answer("plan").error_code == ErrorCode.NONE  # the id is free again
