"""What a dispatcher expects of requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from test.dispatch.views import plan, question, server
from timely_llm.core.request import ErrorCode, PlanRequest, PlanResult, Request, StreamResult
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.contract import Waiting
from timely_llm.dispatch.expected import FIRST_TOKENS, SEGMENT_TOKENS, ExpectedLengths
from timely_llm.policies.lengths import ENOUGH


def test_until_something_came_lengths_are_guessed() -> None:
    expected = ExpectedLengths()
    made = expected.waiting(plan().request, 1.0, [server()])
    assert (made.asked_s, made.tokens, made.answer_tokens) == (1.0, SEGMENT_TOKENS, FIRST_TOKENS)
    assert made.prompt_tokens > 700, "the shared prompt counts"


def learned(request: Request, *tokens: int) -> ExpectedLengths:
    made = ExpectedLengths()
    kind = PlanResult if isinstance(request, PlanRequest) else StreamResult
    for each in tokens:
        made.ended(request, kind("r", "a", ErrorCode.NONE, "", generated_tokens=each))
    return made


@pytest.mark.parametrize(
    ("of", "other"), [(plan("r"), plan("r", URGENT)), (plan("r"), plan("r", skill_set="arm")),
                      (question("p"), question("p", ttft_s=2.0)), (plan("r"), question("p"))]
)  # fmt: skip
def test_the_median_of_a_type_of_task_is_expected(of: Waiting, other: Waiting) -> None:
    expected = learned(of.request, *[10] * 4, 30, *[200] * 4)
    assert expected.waiting(of.request, 0.0, []).answer_tokens == 30.0
    assert expected.waiting(other.request, 0.0, []).answer_tokens == FIRST_TOKENS


def test_a_few_lengths_are_not_enough_and_given_plans_have_none() -> None:
    few = learned(plan().request, *[10] * (ENOUGH - 1), *[0] * ENOUGH)
    assert few.waiting(plan().request, 0.0, []).answer_tokens == FIRST_TOKENS


def test_no_answer_is_longer_than_its_request_allows() -> None:
    asked = question().request
    expected = learned(asked, *[10_000] * ENOUGH)
    assert expected.waiting(asked, 0.0, []).answer_tokens == asked.max_tokens
    short = replace(asked, max_tokens=5)
    assert ExpectedLengths().waiting(short, 0.0, []).answer_tokens == 5.0
