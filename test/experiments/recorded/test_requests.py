"""Conversations in recorded bags, scored: worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.experiments.recorded_bags import TalkBag, only
from timely_llm.core.request import ErrorCode
from timely_llm.experiments.recorded.score import read_recording, score
from timely_llm.experiments.sources import given as given_trace
from timely_llm.experiments.sources import recorded_trace
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.fcfs import Stream
from timely_llm.traces.files import read_trace
from timely_llm.traces.lines import request_line
from timely_llm.traces.model import Conversation


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


def test_a_question_that_was_canceled_refused_or_is_in_service_has_no_answer(
    tmp_path: Path,
) -> None:
    with TalkBag(tmp_path / "day") as bag:
        for name in ("canceled", "working", "silent"):
            bag.ask(0.0, name)
        for name in ("canceled", "working"):
            bag.token(0.1, name, 0)
        bag.ended(0.2, "canceled", ErrorCode.CANCELED, 5)
        bag.line(0.3, request_line(Conversation("refused", 9.0, "p", 5, 6)))
        bag.ended(0.3, "refused", ErrorCode.QUEUE_FULL)
        bag.ended(0.3, "unknown content", ErrorCode.QUEUE_FULL)
        bag.ask(0.4, "", topic="stream_requests")
        bag.ask(0.5, "good")
        bag.answer(0.6, "good", "yes")
    recording = read_recording(tmp_path / "day")
    assert {t.conversation.id: t.finished for t in recording.run.conversations} == {
        "canceled": False, "working": False, "silent": False, "refused": False, "good": True,
    }  # fmt: skip
    assert only(score(tmp_path / "day"))["share_answered"] == pytest.approx(0.2)
    assert (
        "2 answers were still in service when the recording ended: not finished" in recording.notes
    )
    assert "1 requests are left out: their content was not recorded" in recording.notes
    assert any(note.startswith("4 tokens are not in the recording") for note in recording.notes)


def test_a_question_that_was_sent_again_counts_once(tmp_path: Path) -> None:
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
    a, b = run.conversations
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
    assert [(t.conversation.id, len(t.times_s)) for t in recording.run.conversations] == [
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
    assert len(trace.conversations) == 5, "the length of the last one is not known: its bound"
    run = simulate(trace, Stream(), SimulationSettings(skip=0))
    assert [(talk.finished, len(talk.times_s)) for talk in run.conversations[:4]] == [(True, 4)] * 4


def test_a_bag_of_both_gives_both(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        for number in range(12):
            bag.plan(float(10 * number), f"r{number}")
        bag.ask(3.0, "t")
        bag.answer(3.5, "t", "one two three")
    trace = given_trace(tmp_path / "day")
    assert (len(trace.jobs), len(trace.conversations)) == (12, 1)
    assert trace.conversations[0].arrival_s == 3.0
