"""What a run says of its people: hand-written events, and made-up runs."""

from __future__ import annotations

import math
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.core.events.lines import event
from test.demo.plausible_talks import answered, chunk, question, stream, talk_events
from test.demo.test_summary import ask, history
from test.examples import examples
from timely_llm.core.events.history import History
from timely_llm.core.events.request_history import StreamHistory
from timely_llm.core.events.schema import AnsweredEvent, ChunkEvent, QuestionEvent, StreamEvent
from timely_llm.core.request import ErrorCode
from timely_llm.core.slo import Listener
from timely_llm.demo.summary import Summary


def heard(*chunks: tuple[float, str]) -> StreamHistory:
    """Return a question asked at 0 s, answered in chunks, with a listener of 2 words a second."""
    listener, made = Listener(2.0), StreamHistory("p-1")
    made.add(cast(QuestionEvent, event(question(0.0, "p-1", "p"))))
    made.add(cast(StreamEvent, event(stream(0.1, "p-1", "p"))))
    for index, (at_s, text) in enumerate(chunks):
        listener.receive(text, at_s)
        line = chunk(at_s, "p-1", index, text, listener.credit_s(at_s))
        made.add(cast(ChunkEvent, event(line)))
    return made


def test_words_are_taken_in_one_after_another_and_missed_when_they_are_late() -> None:
    talk = heard((1.0, "one"), (1.2, " two"), (3.0, " three"), (3.1, ""), (3.2, " four"))
    assert talk.heard == [(1.0, 2.0), (3.0, 4.0)]
    assert talk.stalled == [(2.0, 3.0)]
    assert talk.credit_s(3.2) == pytest.approx(0.8)
    assert talk.credit_s(5.0) == pytest.approx(-1.0)
    assert talk.last_words(9) == "hree four"


def test_an_empty_start_is_no_stall() -> None:
    late = heard((1.0, ""), (2.0, "one"))
    assert (late.heard, late.stalled) == ([(2.0, 2.5)], [])
    assert heard((1.0, "")).heard == []


@examples(60)
@given(gaps=st.lists(st.tuples(st.floats(0.001, 3.0), st.sampled_from(["a ", "b c ", "d", ""]))))
def test_the_stalls_are_those_of_the_listener(gaps: list[tuple[float, str]]) -> None:
    listener, at_s, chunks = Listener(2.0), 0.0, []
    for gap_s, text in gaps:
        at_s += gap_s
        listener.receive(text, at_s)
        chunks.append((at_s, text))
    total_s = sum(end_s - start_s for start_s, end_s in heard(*chunks).stalled)
    assert total_s == pytest.approx(listener.stalled_s, abs=1e-4)


def test_a_talk_says_while_it_goes_on_whether_its_level_is_kept() -> None:
    talk = heard()
    assert talk.keeps_slo(1.0) and not talk.keeps_slo(1.2)
    assert math.isnan(talk.ttft_s) and math.isnan(talk.tokens_per_s)
    talk = heard((0.6, "one "), (0.7, "two "))
    assert talk.ttft_s == pytest.approx(0.5)
    assert talk.tokens_per_s == pytest.approx(10.0)
    assert talk.keeps_slo(0.8)
    assert not talk.keeps_slo(0.6 + 2 * 0.125 + 0.01)
    talk.add(cast(AnsweredEvent, event(answered(2.0, "p-1", "p", slo_met=True))))
    assert talk.answered and talk.keeps_slo(9.0)


def test_a_question_that_was_asked_again_counts_once() -> None:
    run = history(
        question(0.0, "p-1", "p"),
        answered(0.1, "p-1", "p", outcome="forgotten", slo_met=False, error_code=17),
        question(0.1, "p-2", "p"),
        answered(0.9, "p-2", "p"),
    )
    assert [talk.id for talk in run.questions] == ["p-2"]
    assert Summary.of(run).conversations["voice"].asked == 1
    assert not Summary.of(run).error_messages


def test_each_level_has_its_own_numbers() -> None:
    run = history(
        question(0.0, "a-1", "a", "voice"),
        answered(3.0, "a-1", "a", ttft_s=0.2, tpot_s=0.1, largest_gap_s=0.5, stalls=2,
                 stalled_s=0.25),
        question(3.0, "a-2", "a", "voice"),
        answered(4.0, "a-2", "a", ttft_s=0.4, tpot_s=0.2, slo_met=False),
        question(4.0, "a-3", "a", "voice"),
        answered(5.0, "a-3", "a", outcome="canceled", slo_met=False),
        question(0.0, "b-1", "b", "text"),
        answered(1.0, "b-1", "b", outcome="error", slo_met=False, error_msg="no room",
                 error_code=int(ErrorCode.QUEUE_FULL)),
        question(2.0, "b-2", "b", "text"),
    )  # fmt: skip
    summary = Summary.of(run)
    assert summary.as_json()["conversations"] == {
        "text": {
            "asked": 2, "answered": 0, "slo_attainment": 0.0, "ttft_p50_s": None,
            "ttft_p95_s": None, "tokens_per_s": None, "largest_gap_s": None, "stalls": 0,
            "stalled_s": 0.0,
        },
        "voice": {
            "asked": 3, "answered": 2, "slo_attainment": 0.5, "ttft_p50_s": 0.3,
            "ttft_p95_s": 0.39, "tokens_per_s": 7.5, "largest_gap_s": 0.5, "stalls": 2,
            "stalled_s": 0.25,
        },
    }  # fmt: skip
    assert summary.error_messages == ("b-1: no room (QUEUE_FULL)",)


def test_robots_and_people_do_not_mix() -> None:
    run = history(
        ask(0.0, "a1", False),
        question(0.0, "p-1", "p"),
        stream(0.0, "p-1", "p"),
        {"event": "step", "t": 0.1, "s": 0.02, "ids": ["a1", "p-1"]},
        {"event": "end", "t": 0.2, "id": "p-1", "code": "none", "message": ""},
    )
    assert [request.id for request in run.asked] == ["a1"]
    assert [talk.id for talk in run.questions] == ["p-1"]
    assert (run.requests["a1"].steps, run.talks["p-1"].steps) == (1, 1)
    assert (run.requests["a1"].generated, run.talks["p-1"].generated) == (False, True)


def test_conversations_of_other_clients_do_not_count() -> None:
    run = history(stream(0.0, "x", "x"), chunk(0.1, "x", 0, "Hi", 0.3))
    assert run.questions == []
    assert Summary.of(run).conversations == {}


def test_the_order_of_the_logs_does_not_matter() -> None:
    both = talk_events(3, 10.0, 4)
    mixed = history(*(line for _, line in both))

    def told(first: str) -> History:
        return history(*(e for _, e in sorted(both, key=lambda pair: pair[0] != first)))

    for other in (told("server"), told("talkers")):
        assert other.talks == mixed.talks
        assert Summary.of(other) == Summary.of(mixed)
    assert Summary.of(mixed).conversations["voice"].answered > 0


@pytest.mark.parametrize("server_first", [True, False])
def test_an_end_that_is_read_before_its_question_is_of_an_answer(server_first: bool) -> None:
    asked = [question(0.0, "p-1", "p"), answered(0.3, "p-1", "p", outcome="error", error_code=3)]
    refused = [{"event": "end", "t": 0.2, "id": "p-1", "code": "queue_full", "message": "full"}]
    run = history(*refused, *asked) if server_first else history(*asked, *refused)
    assert run.requests == {}
    talk = run.talks["p-1"]
    assert (talk.generation(1.0), talk.end_s) == ("done", 0.2)


def test_an_end_that_is_read_before_its_plan_is_of_the_plan() -> None:
    end = {"event": "end", "t": 0.2, "id": "a1", "code": "queue_full", "message": "full"}
    run = history(end)
    assert (run.requests, run.talks) == ({}, {})
    assert run.plan("a1").end_s == 0.2
    known = run.request("a1")
    assert known is not None and (known.generation(1.0), known.end_s) == ("done", 0.2)
    run.add(event(ask(0.0, "a1", False)))
    assert (run.requests["a1"].generation(1.0), run.requests["a1"].end_s) == ("done", 0.2)
