"""What a trace asks: when, by which ids, and what is left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from test.experiments.recorded_bags import TalkBag
from test.experiments.workloads import job, trace
from timely_llm.experiments.recorded import replay_script
from timely_llm.experiments.recorded.replay_script import ODD, ODD_TALKS, script
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.traces.files import read_trace
from timely_llm.traces.model import Conversation, Trace, TraceError
from timely_llm.traces.streams import request_of as talk_request_of

KNOWN = shipped_skill_sets()


def test_jobs_are_asked_at_their_times_from_the_first_on() -> None:
    made = script(trace(job("a", 30.0), job("b", 31.0), job("c", 40.0)), KNOWN, 1, 2.0, 2)
    assert [one.arrival_s for one in made.trace.jobs] == [0.0, 0.5]
    assert [one.agent for one in made.trace.jobs] == ["agent-a", "agent-b"]
    assert made.left_out == {}


def test_a_plan_that_was_written_by_hand_is_given_again() -> None:
    by_hand = replace(job("a", 1.0), text="", plan="tp();", given=True)
    reference = replace(job("b", 1.0), plan="tp();")
    jobs = script(trace(by_hand, reference), KNOWN, 1, 1.0, 9).trace.jobs
    assert [replay_script.request_of(one).given_plan for one in jobs] == ["tp();", ""]


def test_ids_have_the_prefix_of_the_replay_and_the_id_of_the_job() -> None:
    workload = trace(job("a/b", 1.0))
    ids = [script(workload, KNOWN, 1, 1.0, 9).trace.jobs[0].id for _ in range(2)]
    assert ids[0] != ids[1]
    assert [name.partition("/")[2] for name in ids] == ["a/b", "a/b"]


def test_a_load_asks_by_more_agents() -> None:
    made = script(trace(job("a"), job("b", 0.0003)), KNOWN, 2, 1.0, 9).trace.jobs
    assert [one.id.partition("/")[2] for one in made] == ["a", "a+1", "b", "b+1"]
    assert [one.agent for one in made] == ["agent-a", "agent-a+1", "agent-b", "agent-b+1"]
    assert [one.arrival_s for one in made] == pytest.approx([0.0, 0.0002, 0.0003, 0.0005])


def test_conversations_are_asked_once_at_their_times() -> None:
    talks = (Conversation("c", 31.0, "p", 3, 20), Conversation("d", 33.0, "p", 3, 20, text="Hi."))
    made = script(Trace("t", "", (job("a", 30.0),), talks), KNOWN, 2, 2.0, 2).trace
    assert [one.id.partition("/")[2] for one in made.jobs] == ["a", "a+1"]
    (talk,) = made.conversations  # the limit is two requests of the trace
    assert (talk.id.partition("/")[2], talk.agent, talk.arrival_s) == ("c", "p", 0.5)
    alone = script(Trace("t", "", (), talks), KNOWN, 1, 1.0, 9).trace
    assert [one.arrival_s for one in alone.conversations] == [0.0, 2.0]


def test_a_replay_asks_for_the_whole_of_what_went_on_at_another_server(tmp_path: Path) -> None:
    with TalkBag(tmp_path / "day") as bag:
        bag.request(0.0, "r", epoch=3, dispatcher="/front")
        bag.ask(1.0, "t", first_token=5, dispatcher="/front")
        bag.segment(0.4, "r", 0, epoch=3, final=True)
        bag.answer(1.5, "t", "a b c d")
    made = script(read_trace(tmp_path / "day"), shipped_skill_sets(), 1, 1.0, 9)
    (plan,) = map(replay_script.request_of, made.trace.jobs)
    (talk,) = map(talk_request_of, made.trace.conversations)
    assert (plan.epoch, talk.first_token) == (0, 0)
    assert (plan.dispatcher, talk.dispatcher) == ("", "")


def test_what_is_not_asked_is_counted() -> None:
    jobs = (
        job("good"),
        replace(job("boat"), skill_set="boat"),
        job("x" * 250),
        replace(job("silent"), text=""),
    )
    talks = (
        Conversation("c", 0.0, "p", 70_000, 1),
        Conversation("d", 0.0, "p", 1, 5000),
        Conversation("e", 0.0, "p", 1, 1, tpot_s=0.0),
        Conversation("f", 0.0, "p", 1, 1),
    )
    made = script(Trace("t", "", jobs, talks), KNOWN, 2, 1.0, 9)
    assert (len(made.trace.jobs), len(made.trace.conversations)) == (2, 1)
    assert made.left_out == {
        ODD_TALKS: 3,
        "jobs for the skill set 'boat', which is not known here": 2,
        ODD: 4,
    }


def test_a_trace_that_asks_nothing_or_too_much_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boats = trace(replace(job("boat"), skill_set="boat"))
    with pytest.raises(TraceError, match="no request to replay: 1 jobs for the skill set 'boat'"):
        script(boats, KNOWN, 1, 1.0, 9)
    with pytest.raises(TraceError, match="has no request to replay: it is empty"):
        script(trace(), KNOWN, 1, 1.0, 9)
    monkeypatch.setattr(replay_script, "MAX_REQUESTS", 3)
    with pytest.raises(TraceError, match="a load of 2 makes 4 requests: at most 3"):
        script(trace(job("a"), job("b")), KNOWN, 2, 1.0, 9)
