"""Conversations as messages: those of a trace, and recorded ones."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.experiments.recorded_bags import TalkBag
from test.traces.workloads import traces
from timely_llm.core.errors import RequestError
from timely_llm.core.request import ErrorCode
from timely_llm.core.slo import REAL_TIME, VOICE
from timely_llm.traces.files import read_trace
from timely_llm.traces.model import Conversation, Trace, TraceError
from timely_llm.traces.recordings.messages import decoded, type_store
from timely_llm.traces.streams import (
    STREAM_TYPE,
    conversation_of,
    request_of,
    stream_message,
)

TALK = Conversation("c", 2.0, "ann", 12, 40, tpot_s=0.1, weight=2.0, text="Tell me.")


def test_a_conversation_without_text_asks_with_as_many_tokens() -> None:
    request = request_of(replace(TALK, text=""))
    assert [(one.role, one.content) for one in request.messages] == [("user", "." * 12)]
    assert (request.max_tokens, request.weight, request.words_per_s) == (40, 2.0, 5.0)
    assert request_of(TALK).messages[0].content == "Tell me."


@given(traces())
def test_what_is_asked_is_read_again(trace: Trace) -> None:
    for talk in trace.conversations:
        try:
            request = request_of(talk)
        except RequestError:
            continue
        data = bytes(type_store().serialize_cdr(stream_message(request), STREAM_TYPE))
        message = decoded(data, STREAM_TYPE, Path())
        again = conversation_of(message, talk.id, talk.arrival_s, talk.prompt_tokens)
        expected = replace(
            talk, text=request.messages[0].content, max_tokens=talk.output_tokens,
            prompt_tokens=again.prompt_tokens, weight=talk.weight or 1.0,
        )  # fmt: skip
        assert again == expected
        assert again.prompt_tokens == (talk.prompt_tokens or again.prompt_tokens) >= 1


def message(**fields: Any) -> Any:
    made = stream_message(request_of(TALK))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


OPEN = {"ttft": 0.0, "tpot": 0.0, "deadline": 0.0, "weight": 0.0}


def test_service_levels_by_name_are_those_of_the_paper() -> None:
    voice = conversation_of(message(slo_class="voice", **OPEN), "v", 0.0)
    assert (voice.ttft_s, voice.tpot_s, voice.weight) == (1.0, VOICE.slo.tpot_s, 1.0)
    assert voice.deadline_s == math.inf
    machine = conversation_of(message(slo_class="real-time", **OPEN), "m", 0.0)
    assert (machine.deadline_s, machine.weight) == (1.5, REAL_TIME.weight)
    own = conversation_of(message(slo_class="my own", **OPEN), "o", 0.0)
    assert own.tpot_s == 0.1
    assert conversation_of(message(prompt="And now?"), "p", 0.0).text == "Tell me.\nAnd now?"


@pytest.mark.parametrize("fields", [{"ttft": math.nan}, {"tpot": -1.0}, {"agent": ""},
                                    {"weight": math.inf}, {"max_tokens": 2**32 - 1}])  # fmt: skip
def test_what_cannot_be_is_no_conversation(fields: dict[str, Any]) -> None:
    with pytest.raises((TraceError, RequestError)):
        conversation_of(message(**fields), "c", 0.0)


def test_a_recording_of_conversations_is_a_trace(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        bag.ask(0.0, "a", topic="stream_requests")
        bag.ask(0.001, "a")
        bag.answer(0.5, "a", "Two words")
        bag.ended(0.6, "a", ErrorCode.DUPLICATE_REQUEST)
        bag.ask(2.0, "b", max_tokens=70)
        bag.ask(3.0, "a")
        bag.request(4.0, "plan")
    trace = read_trace(tmp_path / "day")
    assert [(t.id, t.output_tokens) for t in trace.conversations] == [
        ("a", 3), ("b", 70), ("a+2", 3),
    ]  # fmt: skip
    assert [t.arrival_s for t in trace.conversations] == pytest.approx([0.0, 1.999, 2.999])
    assert trace.conversations[0].prompt_tokens == 30, "10 of the 40 were there"
    assert [job.id for job in trace.jobs] == ["plan"]
    assert trace.jobs[0].arrival_s == pytest.approx(3.999)


@given(code=st.sampled_from(ErrorCode), at_s=st.floats(0, 9))
def test_a_result_without_a_request_is_no_trace(
    tmp_path_factory: pytest.TempPathFactory, code: ErrorCode, at_s: float
) -> None:
    folder = tmp_path_factory.mktemp("bags") / "bag"
    with TalkBag(folder) as bag:
        bag.ended(at_s, "a", code)
    with pytest.raises(TraceError, match=r"is not a trace: .*, but timely_llm/msg/StreamResult"):
        read_trace(folder)
