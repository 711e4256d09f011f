"""Execution times that the skill sets' model predicts for the jobs of a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.experiments.workloads import job, trace
from timely_llm.experiments.sources import composed, shipped_skill_sets
from timely_llm.experiments.virtual.durations import MODEL, SEGMENT, DurationModel
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.experiments.virtual.workload import skill_set, works
from timely_llm.policies.registry import make_policy
from timely_llm.skills.execution_time import ExecutionTimes
from timely_llm.traces.model import Job, SkillTime, TraceError

SETS = shipped_skill_sets()


def executed(plan: str, *times: tuple[str, float], tokens: tuple[int, ...] = (5, 5, 5, 5)) -> Job:
    made = job("j", plan=plan, tokens=tokens, seconds=())
    return replace(made, skill_times=tuple(SkillTime(*time) for time in times))


def test_arguments_predict_a_skill_and_a_lower_bound_a_search() -> None:
    found = DurationModel(SETS).predict(
        executed("?s('cat'){g('cat');};mf(50);->True;", ("s", 9.2), ("g", 2.4), ("mf", 7.0))
    )
    assert [call.name for call in found] == ["drone_s", "drone_g", "drone_mf"]
    assert [call.seconds for call in found] == pytest.approx([1.5275, 2.5, 1.8144 + 0.36])


def test_a_block_that_is_not_entered_is_passed_over_and_a_repeated_one_made_again() -> None:
    model = DurationModel(SETS)
    passed = model.predict(executed("?s('cat'){g('cat');};mf(50);", ("s", 12.0), ("mf", 2.0)))
    assert [call.name for call in passed] == ["drone_s", "drone_mf"]
    times = [("mf", 2.0), ("tc", 2.0)] * 2
    again = model.predict(executed("2{mf(100);tc(90);};", *times))
    assert [call.name for call in again] == ["drone_mf", "drone_tc"] * 2
    assert again[0] == again[2]


def test_segments_of_a_recording_are_predicted_whole() -> None:
    made = executed("mf(50);tc(90);->True;", *[(SEGMENT, 3.0)] * 3, tokens=(5, 5, 4))
    found = DurationModel(SETS).predict(made)
    assert [call.seconds for call in found] == pytest.approx([2.1744, 0.784 + 90 * 0.0165, 0.0])


def test_a_plan_without_times_takes_what_the_model_says() -> None:
    whole = executed("mf(50);tc(90);->True;", tokens=())
    found = works(trace(whole), durations=MODEL, skill_sets=SETS)[0].parts
    assert [part.predicted_s for part in found] == [part.true_s for part in found]
    assert DurationModel(SETS).predict(replace(whole, segment_tokens=(5, 5, 4))) == []


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (job("j"), "job 'j': durations model needs the plan of each job"),
        (replace(job("j", plan="mf(50);"), skill_set="boat"), "for a known skill set"),
        (executed("mf(50);", ("tp", 1.0)), "it executes 'tp', which its plan does not call"),
        (executed("mf(50);->True;", (SEGMENT, 2.0)), "has 2 segments, but 4 were recorded"),
        (executed("mf(9999);", ("mf", 1.0)), "durations model: its plan: "),
    ],
)
def test_a_job_that_the_model_cannot_predict_is_named(made: Job, complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint) as caught:
        works(trace(made), durations=MODEL, skill_sets=SETS)
    assert "\n" not in str(caught.value)


def test_the_server_corrects_each_skill_by_itself() -> None:
    made = works(composed("wid1", 0), skill_sets=SETS, durations=MODEL)
    simulated = skill_set(works=made)
    learned, search = ExecutionTimes(simulated), simulated.skills["drone_s"].duration
    assert search == SETS["drone"].skills["s"].duration
    assert learned.predict_s("drone_s", (9_000,)) == pytest.approx(1.5275)
    assert learned.predict_s("drone_mf", (2_174,)) == pytest.approx(2.174)
    assert set(skill_set().skills) == {"run"}, "none of another workload stays"


@examples(20)
@given(st.integers(0, 50), st.integers(0, 9))
def test_true_times_are_the_same_with_either_prediction(first: int, seed: int) -> None:
    part = replace(composed("wid1", 0), jobs=composed("wid1", 0).jobs[first : first + 9])
    noisy, model = (works(part, seed=seed, skill_sets=SETS, durations=d) for d in ("noisy", MODEL))
    for one, other in zip(noisy, model, strict=True):
        assert [p.true_s for p in one.parts] == [p.true_s for p in other.parts]
        assert [p.tokens for p in one.parts] == [p.tokens for p in other.parts]
        assert "".join(other.pieces).count(";") == len(other.parts)
        searches = [p for p in other.parts if p.call and p.call.name.endswith("_s")]
        assert all(p.predicted_s <= p.true_s + 1e-9 for p in searches)


def test_a_policy_serves_every_job_with_either_prediction() -> None:
    part = replace(composed("wid3", 0), jobs=composed("wid3", 0).jobs[:12])
    for durations in ("noisy", MODEL):
        settings = SimulationSettings(durations=durations, skip=0)
        run = simulate(part, make_policy("timely"), settings, skill_sets=SETS)
        assert all(outcome.finished for outcome in run.outcomes)
