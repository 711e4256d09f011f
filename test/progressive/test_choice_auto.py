"""What AUTO makes of prices and measured lengths."""

from __future__ import annotations

from typing import Any

import pytest

from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    PlanRequest,
    PlanResult,
    RequestMode,
    StreamRequest,
    StreamResult,
)
from timely_llm.progressive.choice import AutoHelp
from timely_llm.progressive.settings import HelpSettings

ANSWER = StreamRequest("a", "ann", (ChatMessage("user", "why?"),), mode=RequestMode.AUTO)
PLAN = PlanRequest("p", "rob", "drone", "find the cat", mode=RequestMode.AUTO)


def auto(price: float, **settings: Any) -> AutoHelp:
    return AutoHelp(HelpSettings(token_price=price, sketch_tokens=100, **settings))


def answered(made: int, asked: int = 0, code: ErrorCode = ErrorCode.NONE) -> StreamResult:
    return StreamResult("a", "ann", code, "", generated_tokens=made, cloud_tokens=asked)


def test_help_without_a_price_is_always_worth_it() -> None:
    free = auto(0.0)
    free.learn(answered(1, 10_000))
    assert free.refusal(ANSWER) is free.refusal(PLAN) is None


@pytest.mark.parametrize(("price", "helped"), [(0.0009, True), (0.0011, False)])
def test_help_is_worth_what_it_gains_at_the_price_of_a_sketch(price: float, helped: bool) -> None:
    assert (auto(price).refusal(PLAN) is None) == helped  # 0.1 for 100 tokens


def test_the_reason_names_cost_and_gain() -> None:
    assert auto(0.002).refusal(PLAN) == "help would cost 0.2, for about 100 tokens, and gain 0.1"


def test_the_measured_tokens_of_the_cloud_take_the_place_of_the_most() -> None:
    one = auto(0.002)
    one.learn(answered(500, 20))
    assert one.refusal(ANSWER) is None
    one.learn(answered(500, 180))
    assert one.refusal(ANSWER) is not None


def test_answers_that_turn_out_short_gain_less() -> None:
    one = auto(0.0005)
    assert one.refusal(StreamRequest("a", "ann", ANSWER.messages, max_tokens=600)) is None
    for made in (30, 40, 500):
        one.learn(answered(made))
    why = one.refusal(StreamRequest("a", "ann", ANSWER.messages, max_tokens=600))
    assert why == "help would cost 0.05, for about 100 tokens, and gain 0.0333"


def test_an_answer_has_no_more_tokens_than_it_may() -> None:
    short = StreamRequest("a", "ann", ANSWER.messages, max_tokens=50)
    assert auto(0.0001).refusal(short) is not None


def test_plans_learn_from_plans_and_failures_say_nothing() -> None:
    one = auto(0.0005)
    one.learn(answered(500, 1000, ErrorCode.ENGINE_FAILED))
    assert one.refusal(ANSWER) is None
    one.learn(answered(500, 1000))
    plan = PlanResult("p", "rob", ErrorCode.NONE, "", generated_tokens=40, cloud_tokens=20)
    one.learn(plan)
    assert one.refusal(PLAN) is None
    assert one.refusal(ANSWER) is not None
