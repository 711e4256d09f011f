"""Workloads for a model in stages, and what is measured of stages."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.engines.pipeline_profiles import PIPELINES, pipeline_profile
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.policy_spec import parse
from timely_llm.experiments.results.reported import AHN_STOCK, in_stages
from timely_llm.experiments.virtual.pipeline import (
    EqualRequests,
    PipelineCase,
    poisson,
    stage_columns,
)
from timely_llm.policies.micro_batches.policy import Mode


def case(text: str, mode: Mode = Mode.OFF, name: str = "rtx4070x4-llama2-13b") -> PipelineCase:
    spec = parse(in_stages(mode))
    return PipelineCase(EqualRequests.parse(text).trace(), spec, pipeline_profile(name), {})


@pytest.mark.parametrize("text", ["64/256", "0/1/2", "9/0/9", "9/9/1", "9/9/9999", "a/b/c", ""])
def test_a_workload_that_is_none_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ExperimentError, match="a workload must be like 64/256/256"):
        EqualRequests.parse(text)


@examples(20)
@given(
    st.integers(1, 6), st.integers(1, 60), st.integers(2, 9), st.sampled_from(Mode),
    st.sampled_from(sorted(PIPELINES)),
)  # fmt: skip
def test_all_is_answered_and_no_rule_falls_below_the_bound(
    requests: int, prompt: int, answer: int, mode: Mode, name: str
) -> None:
    one = case(f"{requests}/{prompt}/{answer}", mode, name)
    run, meter = one.simulate()
    assert all(talk.finished and len(talk.times_s) == answer for talk in run.conversations)
    columns = stage_columns(run, meter)
    bound_s = EqualRequests(requests, prompt, answer).bound_s(one.profile)
    assert columns["completion_s"] >= bound_s * (1 - 1e-9)
    assert columns["proc_s"] + columns["idle_s"] == pytest.approx(columns["completion_s"])
    for stage in range(1, len(one.profile.stages) + 1):
        assert -1e-9 <= columns[f"idle_{stage}"] <= 1.0


def test_a_timeline_has_what_stages_do_in_its_window() -> None:
    one = PipelineCase(
        EqualRequests(4, 20, 8).trace(), parse(AHN_STOCK), pipeline_profile(), {}, window=(0.2, 0.6)
    )
    _, meter = one.simulate()
    made = meter.timeline("four stages")
    assert made.requests == ("stage 1", "stage 2", "stage 3", "stage 4")
    assert {span.kind for span in made.spans} == {"computing", "sending"}
    for place in range(4):
        mine = [span for span in made.spans if span.request == place]
        assert all(0.2 <= span.start_s < span.end_s <= 0.6 for span in mine)
        assert all(a.end_s <= b.start_s + 1e-6 for a, b in pairwise(mine))


def test_requests_at_poisson_times_declare_the_longest_answer() -> None:
    made = poisson(500, 2.0, (10, 20), (5, 9), (1.0, 0.1), 3).conversations
    assert {talk.max_tokens for talk in made} == {9}
    assert {talk.output_tokens for talk in made} == set(range(5, 10))
    assert {talk.prompt_tokens for talk in made} == set(range(10, 21))
    assert made[-1].arrival_s == pytest.approx(250.0, rel=0.2)
    assert made == poisson(500, 2.0, (10, 20), (5, 9), (1.0, 0.1), 3).conversations
