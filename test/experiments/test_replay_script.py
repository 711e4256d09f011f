"""What a trace asks: when, by which ids, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from test.experiments.workloads import job, trace
from timely_llm.experiments import replay_script
from timely_llm.experiments.replay_script import ODD, TALKS, script
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.traces.model import Conversation, Trace, TraceError

KNOWN = shipped_skill_sets()


def test_jobs_are_asked_at_their_times_from_the_first_on() -> None:
    made = script(trace(job("a", 30.0), job("b", 31.0), job("c", 40.0)), KNOWN, 1, 2.0, 2)
    assert [one.arrival_s for one in made.trace.jobs] == [0.0, 0.5]
    assert [one.agent for one in made.trace.jobs] == ["agent-a", "agent-b"]
    assert made.left_out == {}


def test_ids_are_of_this_replay_and_tell_the_jobs() -> None:
    workload = trace(job("a/b", 1.0))
    ids = [script(workload, KNOWN, 1, 1.0, 9).trace.jobs[0].id for _ in range(2)]
    assert ids[0] != ids[1]
    assert [name.partition("/")[2] for name in ids] == ["a/b", "a/b"]


def test_a_load_asks_by_more_agents() -> None:
    made = script(trace(job("a"), job("b", 0.0003)), KNOWN, 2, 1.0, 9).trace.jobs
    assert [one.id.partition("/")[2] for one in made] == ["a", "a+1", "b", "b+1"]
    assert [one.agent for one in made] == ["agent-a", "agent-a+1", "agent-b", "agent-b+1"]
    assert [one.arrival_s for one in made] == pytest.approx([0.0, 0.0002, 0.0003, 0.0005])


def test_what_is_not_asked_is_counted() -> None:
    jobs = (
        job("good"),
        replace(job("boat"), skill_set="boat"),
        job("x" * 250),
        replace(job("silent"), text=""),
    )
    made = script(Trace("t", "", jobs, (Conversation("c", 0.0, "p", 1, 1),)), KNOWN, 2, 1.0, 9)
    assert len(made.trace.jobs) == 2
    assert made.left_out == {
        TALKS: 1,
        "jobs of the skill set 'boat', which is not known here": 2,
        ODD: 4,
    }


def test_a_trace_without_jobs_or_with_too_many_requests_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talks = Trace("t", "", (), (Conversation("c", 0.0, "p", 1, 1),))
    with pytest.raises(TraceError, match=r"no job that can be asked: 1 conversations"):
        script(talks, KNOWN, 1, 1.0, 9)
    monkeypatch.setattr(replay_script, "MAX_REQUESTS", 3)
    with pytest.raises(TraceError, match="2 times 2 jobs are more than 3 requests"):
        script(trace(job("a"), job("b")), KNOWN, 2, 1.0, 9)
