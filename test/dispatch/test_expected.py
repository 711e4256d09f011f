"""What a dispatcher expects of requests."""

from __future__ import annotations

from test.dispatch.views import plan, question, server
from timely_llm.core.request import ErrorCode, PlanResult, StreamResult
from timely_llm.dispatch.expected import FIRST_TOKENS, SEGMENT_TOKENS, ExpectedLengths


def test_until_something_came_lengths_are_guessed() -> None:
    expected = ExpectedLengths()
    made = expected.waiting(plan().request, 1.0, [server()])
    assert (made.asked_s, made.tokens, made.answer_tokens) == (1.0, SEGMENT_TOKENS, FIRST_TOKENS)
    assert made.prompt_tokens > 700, "the shared prompt counts"


def test_plans_and_answers_have_lengths_of_their_own() -> None:
    expected = ExpectedLengths()
    for tokens in (10, 20):
        expected.ended(PlanResult("r", "a", ErrorCode.NONE, "", generated_tokens=tokens))
        expected.ended(StreamResult("p", "a", ErrorCode.NONE, "", generated_tokens=9 * tokens))
    assert expected.waiting(plan().request, 0.0, []).answer_tokens == 15.0
    assert expected.waiting(question().request, 0.0, []).answer_tokens == 135.0


def test_no_answer_is_longer_than_its_request_allows() -> None:
    expected = ExpectedLengths()
    expected.ended(StreamResult("p", "a", ErrorCode.NONE, "", generated_tokens=10_000))
    asked = question().request
    assert expected.waiting(asked, 0.0, []).answer_tokens == asked.max_tokens
