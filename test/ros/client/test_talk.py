"""An answer as its client sees it: chunks may come in any order and several times."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.request import ErrorCode, StreamChunk, StreamResult
from timely_llm.robots.client.pending import PlanClientError, PlanTimeout
from timely_llm.ros.client.talk import Answer

TEXTS = ("Good", "", " mor", "ning", ".")
CHUNKS = [StreamChunk("r", "me", i, text) for i, text in enumerate(TEXTS)]
WHOLE = StreamResult("r", "me", ErrorCode.NONE, "", "Good morning.", ttft_s=0.1)
SOON_S = 0.05


class Post:
    """Keeps what is canceled."""

    def __init__(self) -> None:
        self.canceled: list[str] = []

    def cancel(self, request_id: str) -> None:
        self.canceled.append(request_id)


@pytest.fixture
def answer() -> Answer:
    return Answer("r", "me", Post())


def offer(answer: Answer, *indices: int) -> None:
    for index in indices:
        answer.offer(CHUNKS[index])


def test_text_comes_as_far_as_it_is_there(answer: Answer) -> None:
    reading = answer.chunks(SOON_S)
    offer(answer, 0)
    assert next(reading) == "Good"
    offer(answer, 2, 1)
    assert next(reading) == " mor"
    offer(answer, 3, 4)
    answer.finish(WHOLE)
    assert list(reading) == ["ning."]


@given(
    order=st.lists(st.integers(0, len(TEXTS) - 1), max_size=12),
    finished_at=st.integers(0, 12),
    read_at=st.sets(st.integers(0, 12)),
)
def test_whatever_comes_when_the_text_is_whole_and_in_order(
    order: list[int], finished_at: int, read_at: set[int]
) -> None:
    answer = Answer("r", "me", Post())
    reading, read = answer.chunks(0.0), ""
    for now, index in enumerate(order):
        if now == finished_at:
            answer.finish(WHOLE)
        offer(answer, index)
        if now in read_at:
            try:
                read += next(reading, "")
            except PlanTimeout:
                reading = answer.chunks(0.0)
    answer.finish(WHOLE)
    assert read + "".join(answer.chunks(0.0)) == WHOLE.text


def test_an_empty_answer_is_an_answer(answer: Answer) -> None:
    answer.finish(replace(WHOLE, text=""))
    assert list(answer.chunks(SOON_S)) == []


def test_an_error_is_raised_after_what_had_come(answer: Answer) -> None:
    offer(answer, 0)
    failed = replace(WHOLE, error_code=ErrorCode.ENGINE_FAILED, error_msg="broken", text="Good mor")
    answer.finish(failed)
    reading = answer.chunks(SOON_S)
    assert next(reading) == "Good mor"
    with pytest.raises(PlanClientError, match=r"^broken$") as raised:
        next(reading)
    assert raised.value.code is ErrorCode.ENGINE_FAILED
    assert answer.result(SOON_S) is failed


def test_every_wait_ends(answer: Answer) -> None:
    with pytest.raises(PlanTimeout, match=r"'r' sent nothing within 0.05 s"):
        next(answer.chunks(SOON_S))
    with pytest.raises(TimeoutError, match=r"'r' did not end within 0.05 s"):
        answer.result(SOON_S)


def test_closing_ends_a_wait(answer: Answer) -> None:
    timer = threading.Timer(SOON_S, answer.close, ("the client is closed",))
    timer.start()
    with pytest.raises(PlanClientError, match="the client is closed"):
        list(answer.chunks(30.0))
    timer.join()


def test_canceling_says_whether_it_was_in_time() -> None:
    post = Post()
    ended = Answer("ended", "me", post)
    ended.finish(WHOLE)
    assert not ended.cancel(SOON_S)
    assert post.canceled == []
    going_on = Answer("going on", "me", post)
    with pytest.raises(PlanTimeout):
        going_on.cancel(0.0)
    assert post.canceled == ["going on"]


def test_what_was_missed_of_an_answer_comes_at_once(answer: Answer) -> None:
    reading = answer.chunks(SOON_S)
    offer(answer, 0)
    assert next(reading) == "Good"
    offer(answer, 3)  # of the server that goes on; those before it came while there was none
    answer.adopt("Good mor", 3)
    assert next(reading) == " morning"
    answer.adopt("Good", 1)  # a late answer
    offer(answer, 1, 2, 4)
    assert next(reading) == "."


def test_another_text_is_not_mixed_with_what_has_come(answer: Answer) -> None:
    reading = answer.chunks(SOON_S)
    offer(answer, 0)
    assert next(reading) == "Good"
    answer.adopt("Bad mor", 3)
    offer(answer, 1, 2)
    assert next(reading) == " mor"
