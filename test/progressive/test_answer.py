"""Answers with help: what the listener gets, whatever the cloud and the edge do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.progressive.outlets import Noted
from timely_llm.cloud.contract import CloudEnd
from timely_llm.core.request import (
    MAX_MESSAGE_CHARACTERS,
    ChatMessage,
    ErrorCode,
    Rejected,
    RequestMode,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.progressive.answer import HelpedAnswer
from timely_llm.progressive.helped import GIVE_UP_S
from timely_llm.progressive.settings import HelpSettings

WIDE = HelpSettings(lead_s=1.0, most_parallel=5)
"""Several parts beside the opening, as for a listener that an edge hardly keeps up with."""


class Edge:
    """Speaks for the edge: the opening and the parts of one answer."""

    def __init__(self, settings: HelpSettings | None = None, **fields: Any) -> None:
        said = fields.pop("messages", (ChatMessage("user", "what is a cat?"),))
        fields = {"mode": RequestMode.PROGRESSIVE, "max_tokens": 200} | fields
        self.request = StreamRequest("a", "ann", said, **fields)
        self.out = Noted()
        self.now = 0.0
        self.answer = HelpedAnswer(self.request, self.out, settings or WIDE, 0.0)

    def key(self, part: int) -> str:
        if not part:
            return "a"
        return [one.request_id for one in self.out.asked if f"~{part}-" in one.request_id][-1]

    def says(self, part: int, *words: str) -> None:
        for word in words:
            self.answer.made(StreamChunk(self.key(part), "ann", 0, word), self.now)

    def ends(self, part: int, code: ErrorCode = ErrorCode.NONE, why: str = "") -> None:
        result = StreamResult(self.key(part), "ann", code, why, prompt_tokens=5)
        self.answer.piece_ended(result, self.now)

    def cloud(self, text: str) -> None:
        self.answer.cloud_words(text, self.now)

    def cloud_ends(self, error: str = "", tokens: int = 9) -> None:
        self.answer.cloud_ended(CloudEnd("a", self.now, 20, tokens, error), self.now)

    def tick(self, now: float) -> None:
        self.now = now
        self.answer.tick(now)

    @property
    def result(self) -> StreamResult:
        assert isinstance(self.out.result, StreamResult)
        return self.out.result


def test_the_opening_is_the_request_without_help() -> None:
    edge = Edge(conversation="home")
    opening = edge.answer.opening
    assert (opening.request_id, opening.mode, opening.conversation) == ("a", 0, "")
    assert opening.messages == edge.request.messages
    edge.says(0, "A", " cat")
    assert [(one.index, one.text, one.part) for one in edge.out.chunks] == [
        (0, "A", 0),
        (1, " cat", 0),
    ]


def test_parts_follow_the_sentence_of_the_opening_and_come_in_order() -> None:
    edge = Edge()
    edge.says(0, "A cat", " is")
    edge.cloud("1. It purrs.\n2. It hunts mice.\n")
    edge.says(2, "Mice", " fear it.")
    edge.says(0, " an animal.", " It has")
    assert not edge.out.ended, "no part that follows has words"
    edge.says(1, " It purrs")
    assert not edge.out.ended, "the sentence of the opening goes on"
    edge.says(0, " ears.", " It likes")
    assert edge.out.ended == ["a"]
    assert edge.out.text == "A cat is an animal. It has ears. It purrs"
    edge.says(1, " loudly.")
    edge.ends(1)
    edge.ends(2)
    assert edge.out.text == "A cat is an animal. It has ears. It purrs loudly. Mice fear it."
    assert [chunk.part for chunk in edge.out.chunks] == [0, 0, 0, 0, 0, 1, 1, 2, 2]
    assert edge.out.result is None, "the cloud may have more parts"
    edge.cloud_ends()
    assert edge.out.chunks[-1].final
    assert [chunk.index for chunk in edge.out.chunks] == list(range(10))
    result = edge.result
    assert (result.error_code, result.text) == (ErrorCode.NONE, edge.out.text)
    assert (result.mode_used, result.cloud_tokens, result.fallback) == (1, 9, "")
    assert result.generated_tokens == 9


def test_the_prompt_of_a_part_has_the_question_the_sketch_and_its_own_sentence() -> None:
    edge = Edge()
    edge.says(0, "Cats.")
    edge.cloud("1. It purrs.\n2. It hunts.\n")
    (part,) = edge.out.asked[:1]
    assert isinstance(part, StreamRequest)
    words = part.messages[-1].content
    assert "what is a cat?" in words
    assert "It purrs. It hunts" in words
    assert (part.mode, part.agent, part.conversation) == (RequestMode.DIRECT, "ann", "")


def test_parts_are_expanded_one_at_a_time_while_the_listener_has_words() -> None:
    edge = Edge(WIDE, words_per_s=1.0)
    edge.says(0, *(f" word{n}" for n in range(10)), ".")  # ten seconds of words
    edge.cloud("1. It purrs.\n2. It hunts.\n3. It sleeps.\n")
    assert len(edge.out.asked) == 1
    assert edge.answer.wake_s(edge.now) == pytest.approx(9.0)
    edge.tick(8.9)
    assert len(edge.out.asked) == 1
    edge.tick(9.0)
    assert len(edge.out.asked) == 3, "the listener would stall: as many as may run"
    slos = [one.slo.ttft_s for one in edge.out.asked if isinstance(one, StreamRequest)]
    assert slos == pytest.approx([10.0, 1.0, 1.0])


def test_a_part_that_the_edge_cannot_expand_is_left_out() -> None:
    edge = Edge()
    edge.says(0, "A cat.")
    edge.cloud("1. It purrs.\n2. It hunts.\n")
    edge.cloud_ends()
    edge.ends(1, ErrorCode.INVALID_REQUEST, "the prompt has 2000 tokens")
    assert not edge.out.ended, "the opening goes on meanwhile"
    edge.says(0, " It sleeps.")
    edge.says(2, "Mice", " fear it.")
    assert edge.out.ended == ["a"]
    edge.ends(2)
    assert edge.out.text == "A cat. It sleeps. Mice fear it."
    assert edge.result.error_code is ErrorCode.NONE
    assert edge.result.fallback == "a part was left out: the prompt has 2000 tokens"


def test_parts_that_no_request_can_carry_are_left_out() -> None:
    long = "word " * ((MAX_MESSAGE_CHARACTERS - 100) // 5)
    edge = Edge(messages=(ChatMessage("user", long),))
    edge.says(0, "A cat.")
    edge.cloud("1. It purrs.\n2. It hunts.\n")
    edge.cloud_ends()
    assert not edge.out.asked
    edge.says(0, " It sleeps.")
    edge.ends(0)
    assert (edge.result.error_code, edge.out.text) == (ErrorCode.NONE, "A cat. It sleeps.")
    assert edge.result.fallback.startswith("a part was left out: the messages have ")


def test_an_opening_that_ends_before_the_sketch_is_the_answer() -> None:
    edge = Edge()
    edge.says(0, "Yes.")
    edge.now = 2.0
    edge.ends(0)
    assert edge.out.chunks[-1].final
    result = edge.result
    assert (result.mode_used, result.cloud_time_s) == (RequestMode.DIRECT, 2.0)
    assert result.fallback == "the edge had finished before the cloud's help came"
    assert edge.out.forgotten == ["a"]


def test_without_a_sketch_the_opening_goes_on_to_its_end() -> None:
    edge = Edge()
    edge.says(0, "A", " cat", ".")
    edge.cloud_ends("the cloud did not answer within 5 s")
    edge.says(0, " It", " is soft.")
    edge.ends(0)
    assert edge.out.text == "A cat. It is soft."
    assert edge.result.fallback == "the cloud did not answer within 5 s"
    assert edge.result.mode_used is RequestMode.DIRECT
    assert not edge.out.asked


def test_a_sketch_that_breaks_off_gives_the_parts_that_came() -> None:
    edge = Edge()
    edge.says(0, "A cat.")
    edge.cloud("1. It purrs.\n2. It hu")
    edge.cloud_ends("the connection broke")
    edge.says(1, "It purrs.")
    edge.ends(1)
    assert edge.out.text == "A cat. It purrs."
    assert edge.result.error_code is ErrorCode.NONE
    assert edge.result.mode_used is RequestMode.PROGRESSIVE
    assert edge.result.fallback == "the connection broke; parts of its sketch that were expanded: 1"


def test_the_parts_share_the_tokens_of_the_answer() -> None:
    edge = Edge(replace(WIDE, part_tokens=50), max_tokens=60)
    edge.says(0, *["word"] * 20, ".")
    edge.cloud("1. It purrs.\n2. It hunts.\n")
    edge.cloud_ends()
    assert [one.max_tokens for one in edge.out.asked] == [16, 14], "half is the opening's"
    edge.says(0, *[" word"] * 20)
    assert edge.out.ended == ["a"], "no more tokens are left for it"
    edge.says(1, *[" word"] * 16)
    edge.ends(1)
    edge.says(2, *[" word"] * 14)
    edge.ends(2)
    assert edge.result.generated_tokens == 60


def test_an_answer_without_tokens_for_its_last_parts_is_cut() -> None:
    edge = Edge(max_tokens=20)
    edge.says(0, *["word"] * 9, ".")
    edge.cloud("1. It purrs.\n")
    edge.cloud("2. It hunts.\n")
    edge.cloud_ends()
    edge.says(1, *[" word"] * 10)
    edge.ends(1)
    assert edge.result.cut
    assert edge.result.generated_tokens == 20
    assert len(edge.out.asked) == 1


def test_a_refused_part_is_asked_for_again_and_not_for_ever() -> None:
    edge = Edge()
    edge.says(0, "A cat.")
    edge.cloud("1. It purrs.\n")
    busy = Rejected(ErrorCode.QUEUE_FULL, "too many requests", 2.0)
    edge.answer.refused(edge.key(1), busy, 0.0)
    assert edge.answer.wake_s(0.0) == 2.0
    edge.tick(1.0)
    assert len(edge.out.asked) == 1
    edge.tick(2.0)
    assert len(edge.out.asked) == 2
    edge.now = GIVE_UP_S
    edge.answer.refused(edge.key(1), busy, edge.now)
    assert (edge.result.error_code, edge.result.error_msg) == (
        ErrorCode.QUEUE_FULL,
        "too many requests",
    )


def test_a_refusal_long_after_another_is_a_new_one() -> None:
    edge = Edge()
    edge.says(0, "A cat.")
    edge.cloud("1. It purrs.\n2. It hunts.\n")
    busy = Rejected(ErrorCode.QUEUE_FULL, "too many requests", 2.0)
    edge.answer.refused(edge.key(1), busy, 0.0)
    edge.tick(2.0)
    edge.says(1, "Purr.")
    edge.tick(GIVE_UP_S)
    edge.answer.refused(edge.key(2), busy, edge.now)
    assert edge.out.result is None


def test_an_error_of_the_edge_ends_all_parts() -> None:
    edge = Edge(words_per_s=100.0)
    edge.says(0, "A cat.")
    edge.cloud("1. It purrs.\n2. It hunts.\n")
    edge.ends(1, ErrorCode.ENGINE_FAILED, "the step failed")
    assert edge.result.error_msg == "the step failed"
    assert edge.result.text == "A cat."
    assert edge.key(2) in edge.out.ended
    edge.ends(2, ErrorCode.CANCELED)
    edge.says(2, "late")


def test_a_cancel_ends_everything_once() -> None:
    edge = Edge()
    edge.says(0, "A cat.")
    edge.cloud("1. It purrs.\n")
    edge.answer.cancel(ErrorCode.CANCELED, "canceled by a client", 1.0)
    edge.answer.cancel(ErrorCode.CANCELED, "again", 1.0)
    assert edge.result.error_msg == "canceled by a client"
    assert edge.out.ended == ["a", edge.key(1)]
    assert edge.out.forgotten == ["a"]


@given(st.lists(st.integers(0, 5), max_size=40), st.booleans())
def test_whatever_the_order_chunks_come_in_order_and_the_end_once(
    moves: list[int], fails: bool
) -> None:
    edge = Edge(HelpSettings(most_parallel=3), words_per_s=1000.0)
    texts = {0: "open. ", 1: "one one. ", 2: "two two. ", 3: "three. "}
    sketch = iter(["1. It purrs.\n", "2. It hunts", ".\n3. It sleeps.\n"])
    done: set[int] = set()
    for move in moves:
        edge.tick(edge.now + 0.01)
        known = {
            0,
            *(n for n in (1, 2, 3) if any(f"~{n}-" in a.request_id for a in edge.out.asked)),
        }
        if move <= 3 and move in known - done:
            edge.says(move, texts[move])
        elif move == 4:
            edge.cloud(next(sketch, ""))
        elif known - done:
            last = max(known - done)
            done.add(last)
            edge.ends(last)
    edge.cloud_ends("it broke" if fails else "")
    for _ in range(5):
        edge.tick(edge.now + 1.0)
        for part in (0, 1, 2, 3):
            if part not in done and (
                not part or any(f"~{part}-" in a.request_id for a in edge.out.asked)
            ):
                done.add(part)
                edge.ends(part)
    assert edge.result.error_code is ErrorCode.NONE
    assert [chunk.index for chunk in edge.out.chunks] == list(range(len(edge.out.chunks)))
    parts = [chunk.part for chunk in edge.out.chunks]
    assert parts == sorted(parts)
    assert [chunk.final for chunk in edge.out.chunks] == [False] * (len(parts) - 1) + [True]
    assert edge.result.text == edge.out.text


def test_by_default_an_answer_has_one_text_beside_the_one_that_the_listener_gets() -> None:
    edge = Edge(HelpSettings(), words_per_s=10.0)
    edge.says(0, "A cat")
    edge.cloud("1. It purrs.\n2. It hunts.\n3. It sleeps.\n")
    assert len(edge.out.asked) == 1
    edge.says(1, "It purrs.")
    edge.says(0, " is an animal.")
    assert edge.out.ended == ["a"]
    assert len(edge.out.asked) == 1, "the listener has words"
    edge.tick(10.0)
    assert len(edge.out.asked) == 2, "the listener stalls"
    edge.tick(11.0)
    assert len(edge.out.asked) == 2


def test_a_listener_with_words_gets_the_first_part_after_a_sentence() -> None:
    edge = Edge(HelpSettings(), words_per_s=1.0)
    edge.says(0, "A cat", " is", " an animal")
    edge.cloud("1. It purrs.\n")
    assert not edge.out.asked
    edge.says(0, " of the house.")
    assert len(edge.out.asked) == 1
