"""Conversations in recorded bags, scored: worked out by hand, and what nobody should trust."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from test.experiments.test_recorded import Bag, only
from timely_llm.core.request import ErrorCode
from timely_llm.experiments.document import RunDocument
from timely_llm.experiments.recorded import read_recording, score
from timely_llm.experiments.recorded_trace import recorded_trace
from timely_llm.experiments.simulation import Settings, simulate
from timely_llm.experiments.sources import given as given_trace
from timely_llm.policies.fcfs import Stream
from timely_llm.traces.files import read_trace
from timely_llm.traces.lines import request_line
from timely_llm.traces.messages import type_store
from timely_llm.traces.model import Conversation, TraceError


class TalkBag(Bag):
    """A bag with conversations too."""

    def ask(self, at_s: float, name: str, topic: str = "streams", **fields: Any) -> None:
        said = type_store().types["timely_llm/msg/ChatMessage"]("user", "Tell me more.")
        values = {
            "agent": "p", "messages": [said], "prompt": "", "slo_class": "", "ttft": 1.0,
            "tpot": 0.1, "deadline": math.inf, "weight": 1.0, "conversation": "", "turn": 0,
            "words_per_s": 5.0, "max_tokens": 100, "temperature": 0.0, "seed": 0,
        }  # fmt: skip
        self.say(at_s, topic, "StreamRequest", request_id=name, **{**values, **fields})

    def token(
        self, at_s: float, name: str, index: int, text: str = " w", final: bool = False
    ) -> None:
        self.say(
            at_s, "stream_chunks", "StreamChunk", request_id=name, agent="p", index=index,
            text=text, final=final,
        )  # fmt: skip

    def ended(
        self, at_s: float, name: str, code: ErrorCode = ErrorCode.NONE, tokens: int = 0
    ) -> None:
        self.say(
            at_s, "stream_results", "StreamResult", error_code=int(code), error_msg="",
            request_id=name, agent="p", text="", cut=False, ttft=0.0, tpot=0.0, largest_gap=0.0,
            completion=0.0, stalled=0.0, slo_met=False, prompt_tokens=40,
            generated_tokens=tokens, recomputed_tokens=0, kept_tokens=10,
        )  # fmt: skip

    def answer(self, at_s: float, name: str, text: str, gap_s: float = 0.1) -> None:
        """Write an answer of one word a token, with the token that ends it."""
        words = [*(f" {word}" for word in text.split()), ""]
        for index, word in enumerate(words):
            self.token(at_s + index * gap_s, name, index, word, index == len(words) - 1)
        self.ended(at_s + (len(words) - 1) * gap_s, name, tokens=len(words))


def test_what_listeners_got_follows_from_requests_and_tokens(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        bag.ask(0.0, "good")
        bag.answer(0.5, "good", "a b c d")
        bag.ask(1.0, "late")
        bag.answer(3.0, "late", "a b c d")
        bag.ask(2.0, "slow", words_per_s=5.0)
        bag.answer(2.5, "slow", "a b c d", gap_s=0.3)
        bag.ask(3.0, "machine", deadline=1.5)
        bag.answer(4.0, "machine", "a b")
    document = score(tmp_path / "day")
    row = only(document)
    assert (row["conversations"], row["share_answered"], row["requests"]) == (4, 1.0, 0)
    assert row["attainment"] == 0.5
    assert (row["rt_attainment"], row["nrt_attainment"]) == (1.0, pytest.approx(1 / 3))
    assert (row["ttft_attainment"], row["tpot_attainment"]) == (pytest.approx(2 / 3),) * 2
    assert row["ttft_p95_s"] == pytest.approx(2.0)
    assert row["max_gap_s"] == pytest.approx(0.3)
    # A word is read in 0.2 s: three of the four words of `slow` come 0.1 s after that.
    assert row["max_stall_s"] == pytest.approx(0.3)
    assert row["stalled_s"] == pytest.approx(0.1)
    assert row["utility"] is None
    assert set(row) - {"recording"} <= set(document.definitions)
    assert document.setup["results"] == "4 NONE"
    assert document.setup["agents"] == 1
    assert document.notes == (
        "steps of the engine were not recorded: a server publishes them with publish_steps",
    )


def test_plans_and_conversations_stand_in_one_row(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        bag.ask(0.0, "t")
        bag.plan(10.0, "a")
        bag.answer(0.5, "t", "hello you")
        bag.step(10.3, 0.1, "a", "t")
    document = score(tmp_path / "day")
    row = only(document)
    assert (row["requests"], row["share_served"]) == (1, 1.0)
    assert (row["conversations"], row["attainment"]) == (1, 1.0)
    assert row["response_s"] == pytest.approx(0.5)
    (timeline,) = document.timelines
    assert timeline.requests == ("a", "t")
    assert timeline.steps[0].requests == (0, 1)
    assert [s.start_s for s in timeline.spans if s.kind == "executing"] == [10.5, 11.75]


def test_who_was_cut_short_refused_or_is_still_in_work_got_no_answer(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        for name in ("canceled", "working", "silent"):
            bag.ask(0.0, name)
        for name in ("canceled", "working"):
            bag.token(0.1, name, 0)
        bag.ended(0.2, "canceled", ErrorCode.CANCELED, 5)
        bag.line(0.3, request_line(Conversation("refused", 9.0, "p", 5, 6)))
        bag.ended(0.3, "refused", ErrorCode.QUEUE_FULL)
        bag.ended(0.3, "nobody knows", ErrorCode.QUEUE_FULL)
        bag.ask(0.4, "", topic="stream_requests")
        bag.ask(0.5, "good")
        bag.answer(0.6, "good", "yes")
    recording = read_recording(tmp_path / "day")
    assert {t.conversation.id: t.finished for t in recording.run.talks} == {
        "canceled": False, "working": False, "silent": False, "refused": False, "good": True,
    }  # fmt: skip
    assert only(score(tmp_path / "day"))["share_answered"] == pytest.approx(0.2)
    assert "2 answers were still in work when the recording ended: not finished" in recording.notes
    assert "1 requests are left out: what they asked was not recorded" in recording.notes
    assert any(note.startswith("4 tokens are not in the recording") for note in recording.notes)


def test_a_question_that_had_to_be_told_anew_is_asked_once(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        bag.ask(0.0, "later", conversation="c", turn=1)
        bag.ended(0.1, "later", ErrorCode.UNKNOWN_CONVERSATION)
        bag.ask(0.2, "anew", conversation="c")
        bag.answer(0.6, "anew", "yes")
    document = score(tmp_path / "day")
    row = only(document)
    assert (row["conversations"], row["share_answered"]) == (1, 1.0)
    assert any(note.startswith("1 questions are left out") for note in document.notes)
    assert [talk.id for talk in read_trace(tmp_path / "day").conversations] == ["anew"]


def test_without_results_an_answer_ends_with_its_last_token(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        bag.ask(0.0, "a", topic="stream_requests", tpot=0.0, slo_class="voice")
        bag.ask(0.0, "b", topic="stream_requests")
        for index in (1, 0, 2):
            bag.token(0.3 - index / 100, "a", index, final=index == 2)
        bag.token(0.3, "a", 1)
        bag.token(0.3, "b", 0)
    run = read_recording(tmp_path / "day").run
    a, b = run.talks
    assert (a.finished, b.finished) == (True, False)
    assert a.times_s == (0.3, 0.3, 0.3), "no token comes before the one in front of it"
    assert a.conversation.tpot_s == 0.125


def test_an_id_may_be_used_again(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        for at_s in (0.0, 60.0):
            bag.ask(at_s, "p-1")
            bag.answer(at_s + 0.2, "p-1", "one two")
        bag.request(1.0, "p-1+1")
        bag.step(60.3, 0.1, "p-1")
    recording = read_recording(tmp_path / "day")
    assert [(t.conversation.id, len(t.times_s)) for t in recording.run.talks] == [
        ("p-1", 3), ("p-1+1+", 3),
    ]  # fmt: skip
    assert recording.timeline.requests == ("p-1+1", "p-1", "p-1+1+")
    assert recording.timeline.steps[0].requests == (2,)


def test_a_listener_waits_reads_and_waits_again(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        bag.ask(5.0, "a", words_per_s=10.0)
        for index, at_s in enumerate((5.5, 5.55, 6.0)):
            bag.token(at_s, "a", index)
        bag.ended(6.0, "a", tokens=3)
        bag.ask(5.0, "machine", deadline=1.5)
        bag.token(5.6, "machine", 0)
        bag.token(5.8, "machine", 1)
        bag.ended(5.8, "machine", tokens=2)
        bag.ask(5.0, "never")
        bag.ended(5.4, "never", ErrorCode.EXPIRED)
    timeline = read_recording(tmp_path / "day").timeline
    found = [
        (timeline.requests[s.request], s.kind, s.start_s, s.end_s, s.label) for s in timeline.spans
    ]
    assert found == [
        ("a", "waiting", 0.0, 0.5, ""),
        ("a", "listening", 0.5, 0.7, "3 tokens"),
        ("a", "waiting", 0.7, 1.0, "no words left"),
        ("a", "listening", 1.0, 1.1, "3 tokens"),
        ("machine", "waiting", 0.0, 0.8, ""),
        ("never", "waiting", 0.0, 0.4, ""),
    ]
    assert timeline.urgent == (False, True, False)


def test_recorded_conversations_can_be_an_experiments_workload(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        for number in range(4):
            bag.ask(float(number), f"t{number}", weight=2.0, tpot=0.125, max_tokens=9)
            bag.answer(number + 0.5, f"t{number}", "one two three")
        bag.ask(5.0, "never answered")
    talks = recorded_trace(tmp_path / "day").conversations
    assert [t.id for t in talks] == ["t0", "t1", "t2", "t3"]
    assert {(t.prompt_tokens, t.output_tokens, t.max_tokens) for t in talks} == {(30, 4, 9)}
    assert {(t.tpot_s, t.weight, t.text) for t in talks} == {(0.125, 2.0, "Tell me more.")}
    trace = given_trace(tmp_path / "day")
    assert len(trace.conversations) == 5, "nobody knows the length of the last one: its bound"
    run = simulate(trace, Stream(), Settings(skip=0))
    assert [(talk.finished, len(talk.times_s)) for talk in run.talks[:4]] == [(True, 4)] * 4


def test_a_bag_of_both_gives_both(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        for number in range(12):
            bag.plan(float(10 * number), f"r{number}")
        bag.ask(3.0, "t")
        bag.answer(3.5, "t", "one two three")
    trace = given_trace(tmp_path / "day")
    assert (len(trace.jobs), len(trace.conversations)) == (12, 1)
    assert trace.conversations[0].arrival_s == 3.0


_names = st.sampled_from(["a", "a+1", "", "b\0", "x" * 300])
_numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_no_bag_can_do_worse_than_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("bags") / "bag"
    index = st.sampled_from([0, 1, 7, 2**32 - 1])
    with TalkBag(folder) as bag:
        for _ in range(data.draw(st.integers(1, 25))):
            at_s, name = float(data.draw(st.integers(-999, 10**9))), data.draw(_names)
            match data.draw(st.integers(0, 4)):
                case 0:
                    number = data.draw(st.sampled_from(["ttft", "deadline", "weight", "tpot"]))
                    topic = data.draw(st.sampled_from(["streams", "stream_requests"]))
                    fields = {number: data.draw(_numbers), "agent": data.draw(_names)}
                    bag.ask(at_s, name, topic, **fields, words_per_s=data.draw(_numbers))
                case 1:
                    bag.token(at_s, name, data.draw(index), data.draw(st.text(max_size=9)))
                case 2:
                    tokens = data.draw(index)
                    bag.ended(at_s, name, data.draw(st.sampled_from(ErrorCode)), tokens)
                case 3:
                    kind = data.draw(st.sampled_from(["StreamChunk", "StreamRequest"]))
                    data_ = b"\0\1\0\0" + data.draw(st.binary(max_size=60))
                    bag.write(at_s, f"/x/{kind}", f"timely_llm/msg/{kind}", data_)
                case _:
                    bag.request(at_s, name)
    for read in (score, recorded_trace, read_trace):
        try:
            made = read(folder)
        except TraceError as error:
            assert "\n" not in str(error)
        else:
            if isinstance(made, RunDocument):
                assert RunDocument.model_validate(made.model_dump()) == made
