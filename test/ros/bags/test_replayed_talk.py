"""One replayed conversation: its tokens, and when the wait for them ends."""

from __future__ import annotations

import time

import pytest

from timely_llm.core.request import ErrorCode, StreamChunk, StreamResult
from timely_llm.ros.bags import replayed
from timely_llm.ros.bags.replayed import ReplayedTalk
from timely_llm.traces.lines import request_line
from timely_llm.traces.model import Conversation
from timely_llm.traces.streams import request_of

TALK = Conversation("t", 2.0, "ann", 5, 9, text="Hello?")


@pytest.fixture
def talk() -> ReplayedTalk:
    made = ReplayedTalk(TALK, request_of(TALK))
    made.ask()
    return made


def chunk(index: int, text: str = " w") -> StreamChunk:
    return StreamChunk("t", "ann", index, text)


def result(code: ErrorCode = ErrorCode.NONE, tokens: int = 2) -> StreamResult:
    return StreamResult("t", "ann", code, "", generated_tokens=tokens)


def test_the_outcome_has_times_of_the_replays_clock(talk: ReplayedTalk) -> None:
    start_s = talk.asked_s - 2.5
    for index in (0, 1, 1, 0):
        talk.offer(chunk(index))
    talk.finish(result())
    heard = talk.outcome(start_s)
    assert heard.conversation.arrival_s == pytest.approx(2.5)
    assert len(heard.times_s) == 2, "a token that is known changes nothing"
    assert 2.5 <= heard.times_s[0] <= heard.times_s[1] <= time.monotonic() - start_s
    assert heard.finished and heard.ttft_s >= 0.0
    assert (talk.due_s, talk.agent, talk.line) == (2.0, "ann", request_line(TALK))


def test_it_is_done_with_the_last_token_wherever_the_result_is(talk: ReplayedTalk) -> None:
    talk.offer(chunk(0))
    assert not talk.done
    talk.finish(result())
    assert not talk.done, "a token is still on its way"
    talk.offer(chunk(1))
    assert talk.done


def test_a_token_that_never_comes_is_not_waited_for_long(
    talk: ReplayedTalk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replayed, "LAST_S", 0.0)
    talk.offer(chunk(1))
    talk.finish(result())
    assert talk.wake_s <= time.monotonic()
    assert talk.done
    assert len(talk.outcome(0.0).times_s) == 1


def test_only_the_first_end_counts(talk: ReplayedTalk) -> None:
    talk.finish(result(ErrorCode.EXPIRED, 0))
    talk.finish(result())
    assert talk.done and not talk.finished
    assert not talk.outcome(0.0).finished


def test_a_lost_conversation_has_no_tokens(talk: ReplayedTalk) -> None:
    talk.lost = True
    assert talk.done
    assert talk.outcome(0.0).times_s == ()
