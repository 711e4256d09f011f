"""Requests are checked when they are made."""

import pytest

from timely_llm.core.errors import RequestError
from timely_llm.core.request import (
    MAX_ID_CHARACTERS,
    MAX_TASK_CHARACTERS,
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    ReportState,
    StreamRequest,
)


def request(**values: object) -> PlanRequest:
    fields = {"request_id": "r1", "agent": "a1", "skill_set": "drone", "task": "fly"} | values
    return PlanRequest(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"request_id": ""}, "request_id must have 1 to 128 characters"),
        ({"agent": "x" * 129}, "agent must have 1 to 128 characters, not 129"),
        ({"agent": "eve\n[ERROR]"}, r"printable characters, not 'eve\\n\[ERROR\]'"),
        ({"request_id": "\ud800"}, r"request_id must be of printable characters, not '\\ud800'"),
        ({"task": " \n"}, "the task is empty"),
        ({"task": "x" * (MAX_TASK_CHARACTERS + 1)}, "at most 8000 are allowed"),
        ({"task": "fly \ud800"}, r"the task holds '\\ud800' at place 4, which is no character:"),
        ({"task": "a\0b"}, r"the task holds '\\x00' at place 1, a control character: allowed are"),
        ({"task": "\x1b[2J"}, r"the task holds '\\x1b' at place 0, a control character"),
        ({"agent": "\udfff"}, r"agent must be of printable characters, not '\\udfff'"),
        ({"agent": "a\nERROR b"}, r"agent must be of printable characters, not 'a\\nERROR b'"),
        ({"request_id": "a\u2028"}, r"request_id must be of printable characters, not 'a\\u2028'"),
        ({"skill_set": "\ud800"}, r"skill_set must be of printable characters, not '\\ud800'"),
        ({"skill_set": "x" * 5_000_000}, "skill_set must have 1 to 128 characters, not 5000000"),
        ({"max_tokens": 0}, "max_tokens must be 1 to 4096, not 0"),
    ],
)
def test_bad_fields_get_one_clear_sentence(values: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message) as error:
        request(**values)
    assert len(str(error.value).encode()) < 300


def test_a_request_of_the_largest_size_is_fine() -> None:
    assert request(task="x\t\n" * (MAX_TASK_CHARACTERS // 3)).max_tokens == 256
    assert request(task="x" * MAX_TASK_CHARACTERS).max_tokens == 256


@pytest.mark.parametrize("name", ["x" * 129, "a\nb"])
def test_the_name_of_a_conversation_is_a_name(name: str) -> None:
    with pytest.raises(RequestError, match="the name of a conversation must"):
        StreamRequest("r1", "ann", (ChatMessage("user", "Why?"),), conversation=name)


@pytest.mark.parametrize(
    "values",
    [
        {"request_id": "x" * (MAX_ID_CHARACTERS + 1)},
        {"agent": "x" * (MAX_ID_CHARACTERS + 1)},
    ],
)
def test_a_report_has_no_huge_names(values: dict[str, str]) -> None:
    fields = {"request_id": "r1", "agent": "a1"} | values
    with pytest.raises(RequestError, match=r"execution report: .* are allowed"):
        ExecutionReport(state=ReportState.FAILED, **fields)  # type: ignore[arg-type]


def test_a_result_says_one_short_printable_sentence() -> None:
    result = request().refused(ErrorCode.MALFORMED_PLAN, "no plan:\n[ERROR]\x1b[2J" + "x" * 10**6)
    assert result.error_msg.startswith(r"no plan: [ERROR]\x1b[2Jxxx")
    assert result.error_msg.isprintable()
    assert len(result.error_msg) < 1000
