"""Chats and code that come at once."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import pytest

from timely_llm.core.slo import Slo
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.virtual.annealing_testbeds import PROFILE
from timely_llm.experiments.virtual.annealing_workload import (
    CHAT,
    CODE,
    MOST_TOKENS,
    SEEN,
    ErroneousLengths,
    g_row,
    mixed,
    prepare,
    requests_of,
    serve,
)
from timely_llm.policies.annealing.latency import V100X2_QWEN25_7B
from timely_llm.policies.annealing.lengths import LearnedLengths, LengthModel
from timely_llm.policies.annealing.policy import Annealing
from timely_llm.policies.deadline.policy import Deadline
from timely_llm.policies.fcfs import Fcfs

V100 = PROFILES[PROFILE]


@pytest.mark.parametrize("count", [4, 7, 40])
def test_half_of_the_requests_are_chats_and_all_come_at_once(count: int) -> None:
    trace = mixed(count, seed=1)
    talks = trace.conversations
    code = [talk for talk in talks if talk.deadline_s == CODE.deadline_s]
    assert (len(talks), len(code)) == (count, count // 2)
    assert {talk.arrival_s for talk in talks} == {0.0}
    later = mixed(count, seed=1, rate=2.0).conversations
    assert [replace(talk, arrival_s=0.0) for talk in later] == list(talks)
    assert all(one.arrival_s < two.arrival_s for one, two in pairwise(later))
    assert max(max(t.prompt_tokens, t.output_tokens) for t in talks) <= MOST_TOKENS
    assert mixed(count, seed=1) == trace != mixed(count, seed=2)


def test_lengths_have_the_means_of_their_type() -> None:
    talks = [talk for seed in range(60) for talk in mixed(40, seed).conversations]
    for kind, expected in ((CHAT, 338), (CODE, 180)):
        tokens = [t.output_tokens for t in talks if t.deadline_s == kind.deadline_s]
        assert fmean(tokens) == pytest.approx(expected, rel=0.1)


def test_a_request_has_the_limits_of_its_type() -> None:
    trace = mixed(10, 0)
    for request, talk in zip(requests_of(trace), trace.conversations, strict=True):
        assert (request.input_tokens, request.output_tokens) == (
            talk.prompt_tokens, talk.output_tokens,
        )  # fmt: skip
        code = talk.deadline_s < math.inf
        limits = (30.0, math.inf, math.inf) if code else (math.inf, 10.0, 0.05)
        assert (request.e2e_s, request.ttft_s, request.tpot_s) == limits


def test_in_virtual_time_a_request_takes_what_the_predictor_says() -> None:
    trace = mixed(1, 3)
    (talk,) = trace.conversations
    row = g_row(serve(trace, Fcfs(), V100, 1))
    predicted_s = V100X2_QWEN25_7B.exec_s(1, talk.prompt_tokens, talk.output_tokens)
    assert row["latency_s"] == pytest.approx(predicted_s, rel=0.06)


def test_g_is_met_levels_over_the_sum_of_latencies() -> None:
    row = g_row(serve(mixed(8, 0), Fcfs(), V100, 2), requests=8)
    assert row["requests"] == 8
    assert row["g"] == pytest.approx(row["attainment"] / row["latency_s"])


def test_a_policy_that_predicts_has_seen_both_types() -> None:
    policy = Annealing()
    prepare(policy, V100, seed=0)
    assert policy.predictor is V100X2_QWEN25_7B
    assert isinstance(policy.output_lengths, LearnedLengths)
    means = sorted(one.mean for one in policy.output_lengths._gaussians.values())
    assert means == [pytest.approx(180, rel=0.2), pytest.approx(338, rel=0.3)]


def test_the_default_policy_has_seen_the_same_answers() -> None:
    policy, theirs = Deadline(), Annealing(lengths=LengthModel.QUANTILE)
    for one in (policy, theirs):
        prepare(one, V100, seed=0)
    seen = policy.streams.lengths
    assert isinstance(theirs.output_lengths, LearnedLengths)
    for kind in (CHAT, CODE):
        of_class = Slo(kind.ttft_s, kind.tpot_s, kind.deadline_s), 1.0
        assert len(seen.of(of_class)) == SEEN
        assert seen.of(of_class) == theirs.output_lengths._quantiles.of(of_class)


@pytest.mark.parametrize("error", [0.0, 0.1])
def test_erroneous_lengths_are_within_their_error(error: float) -> None:
    trace = mixed(40, 0)
    policy = Annealing()
    policy.output_lengths = lengths = ErroneousLengths(trace, error, seed=1)
    for talk in trace.conversations:
        assert lengths._tokens[talk.id] == pytest.approx(talk.output_tokens, rel=error, abs=0.5)
    assert len(serve(trace, policy, V100, 4).conversations) == 40
