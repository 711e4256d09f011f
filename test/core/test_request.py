"""Requests are checked when they are made."""

import pytest

from timely_llm.core.errors import RequestError
from timely_llm.core.request import MAX_TASK_CHARACTERS, PlanRequest


def request(**values: object) -> PlanRequest:
    fields = {"request_id": "r1", "agent": "a1", "skill_set": "drone", "task": "fly"} | values
    return PlanRequest(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"request_id": ""}, "request_id must have 1 to 128 characters"),
        ({"agent": "x" * 129}, "agent must have 1 to 128 characters, not 129"),
        ({"task": " \n"}, "the task is empty"),
        ({"task": "x" * (MAX_TASK_CHARACTERS + 1)}, "at most 8000 are allowed"),
        ({"max_tokens": 0}, "max_tokens must be 1 to 4096, not 0"),
    ],
)
def test_bad_fields_get_one_clear_sentence(values: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        request(**values)


def test_a_request_of_the_largest_size_is_fine() -> None:
    assert request(task="x" * MAX_TASK_CHARACTERS).max_tokens == 256
