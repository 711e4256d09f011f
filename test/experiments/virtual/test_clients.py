"""Simulated people beside simulated robots."""

import math
from dataclasses import replace

import pytest

from test.experiments.workloads import job
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.virtual.clients import answer, stream_request
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.fcfs import Stream
from timely_llm.skills.prose import SentenceChecker
from timely_llm.traces.model import Conversation, Trace

TALK = Conversation("c", 1.0, "ann", prompt_tokens=20, output_tokens=30, max_tokens=64)
PROFILE = PROFILES["rtx4090-llama3-8b"]
FREE = replace(PROFILE, name="free", prefill_token_s=0.0)


def run(*talks: Conversation, settings: SimulationSettings | None = None) -> Run:
    return simulate(Trace("talks", conversations=talks), Stream(), settings or SimulationSettings())


def test_an_answer_has_as_many_tokens_as_the_trace_says() -> None:
    (talk,) = run(TALK).conversations
    assert talk.finished
    assert len(talk.times_s) == 30
    assert len(answer(30)) == 29  # and the token that ends it


def test_an_answer_has_sentences_of_15_words() -> None:
    said = "".join(answer(81))
    pieces = SentenceChecker(words_per_s=5.0).feed(said + " ")
    assert [len(piece.text.split()) for piece in pieces] == [15] * 4


def test_times_are_those_at_the_person() -> None:
    settings = SimulationSettings(network_s=0.01)
    (talk,) = run(TALK, settings=settings).conversations
    first_s = PROFILE.step_s(0, 20)
    assert talk.ttft_s == pytest.approx(2 * 0.01 + first_s)
    assert talk.tpot_s == pytest.approx(PROFILE.step_s(1))
    assert talk.largest_gap_s == pytest.approx(PROFILE.step_s(1))
    assert talk.completion_s == pytest.approx(0.02 + first_s + 29 * PROFILE.step_s(1))


def test_a_prompt_that_costs_nothing_is_a_row() -> None:
    two = replace(TALK, id="d", agent="bob")
    first, second = run(
        TALK, two, settings=SimulationSettings(profile=FREE, network_s=0.0)
    ).conversations
    assert first.ttft_s == second.ttft_s == pytest.approx(FREE.step_s(2))


def test_the_service_level_is_the_traces() -> None:
    talk = replace(TALK, ttft_s=0.5, tpot_s=0.1, deadline_s=2.0, weight=7.0)
    request = stream_request(talk, 4096)
    assert (request.slo.ttft_s, request.slo.tpot_s, request.slo.deadline_s) == (0.5, 0.1, 2.0)
    assert (request.weight, request.max_tokens, request.words_per_s) == (7.0, 64, 5.0)
    assert stream_request(replace(talk, tpot_s=0.125, max_tokens=0), 4096).words_per_s == 3.0
    assert stream_request(replace(talk, max_tokens=0), 4096).max_tokens == 4096


def test_robots_and_people_share_the_engine() -> None:
    trace = Trace("both", "", (job("a"), job("b", 1.0)), (TALK,))
    made = simulate(trace, Stream(), SimulationSettings(skip=0))
    assert all(outcome.finished for outcome in made.outcomes)
    assert len(made.outcomes) == len(trace.jobs)
    assert made.conversations[0].finished
    assert made.generated_tokens > 30


def test_a_conversation_without_tokens_has_infinite_times() -> None:
    (talk,) = run(TALK).conversations
    nothing = replace(talk, finished=False, times_s=())
    assert nothing.ttft_s == nothing.completion_s == math.inf
    assert (nothing.tpot_s, nothing.largest_gap_s) == (0.0, 0.0)
