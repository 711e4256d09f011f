"""Conversations that any server can go on with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    Rejected,
    StreamRequest,
    StreamResult,
)
from timely_llm.dispatch.conversations import DispatchedConversations

FIRST = StreamRequest("p0", "person", (ChatMessage("user", "Why?"),), conversation="talk")
NEXT = replace(FIRST, request_id="p1", messages=(ChatMessage("user", "And then?"),), turn=1)


def said(text: str = "So.", code: ErrorCode = ErrorCode.NONE) -> StreamResult:
    return StreamResult("p0", "person", code, "", text=text)


def after_a_turn(server: str = "a", most: int = 8) -> DispatchedConversations:
    known = DispatchedConversations(most)
    whole = known.whole(FIRST)
    known.ended(whole, known.for_server(whole, server), server, said())
    return known


def test_the_server_with_the_kv_gets_the_new_messages_alone() -> None:
    known = after_a_turn()
    whole = known.whole(NEXT)
    assert [one.content for one in whole.messages] == ["Why?", "So.", "And then?"]
    assert known.for_server(whole, "a") == NEXT


def test_another_server_gets_all_messages_as_a_conversation_that_begins() -> None:
    known = after_a_turn()
    whole = known.whole(NEXT)
    assert known.for_server(whole, "b") == replace(whole, turn=0)


def test_the_turns_of_a_server_count_from_where_it_took_over() -> None:
    known = after_a_turn()
    whole = known.whole(NEXT)
    known.ended(whole, known.for_server(whole, "b"), "b", said("Then."))
    third = replace(NEXT, request_id="p2", turn=2)
    assert known.for_server(known.whole(third), "b") == replace(third, turn=1)


@pytest.mark.parametrize("how", ["lost", "gone"])
def test_a_server_that_lost_the_kv_gets_all_messages(how: str) -> None:
    known = after_a_turn()
    whole = known.whole(NEXT)
    known.lost("a") if how == "lost" else known.gone(whole)
    assert known.for_server(whole, "a").turn == 0


def test_a_turn_that_failed_may_be_asked_for_again() -> None:
    known = after_a_turn()
    whole = known.whole(NEXT)
    known.ended(whole, whole, "a", said("", ErrorCode.ENGINE_FAILED))
    assert known.whole(NEXT) == whole


@pytest.mark.parametrize("turn", [2, 7])
def test_a_turn_that_does_not_follow_is_refused(turn: int) -> None:
    with pytest.raises(Rejected, match="send all messages with turn 0") as refused:
        after_a_turn().whole(replace(NEXT, turn=turn))
    assert refused.value.code is ErrorCode.UNKNOWN_CONVERSATION


def test_the_longest_silent_conversation_goes_first() -> None:
    known = after_a_turn(most=2)
    for number in range(3):
        other = replace(FIRST, conversation=f"other-{number}")
        known.ended(other, other, "a", said())
    assert len(known) == 2
    with pytest.raises(Rejected):
        known.whole(NEXT)


def test_requests_without_a_name_are_not_remembered() -> None:
    known = DispatchedConversations(8)
    plain = replace(FIRST, conversation="")
    known.ended(plain, plain, "a", said())
    assert len(known) == 0
