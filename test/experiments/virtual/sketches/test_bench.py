"""The event loop, with one cloud."""

from __future__ import annotations

import math
from functools import partial

import pytest

from timely_llm.cloud.simulated import CloudPath
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.virtual.clients import SimulationError
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.experiments.virtual.sketches.bench import Bench, DecodingSite, ShownAnswer, SiteCall
from timely_llm.experiments.virtual.sketches.methods import CloudOnly
from timely_llm.experiments.virtual.sketches.questions import BenchQuestion
from timely_llm.experiments.virtual.sketches.testbed import FAR_MODELS, Devices
from timely_llm.policies.registry import make_policy
from timely_llm.progressive.choice import EdgeView
from timely_llm.traces.model import Conversation, Trace

DEVICES = Devices(FAR_MODELS["llama3-70b"])


def asked(tokens: int = 10, at_s: float = 0.0, key: str = "q") -> BenchQuestion:
    return BenchQuestion(key, "stem", at_s, tokens, 1.0, 7)


def test_words_are_shown_in_the_order_of_the_parts() -> None:
    answer = ShownAnswer(asked())
    answer.parts.expect(2)
    answer.show(1, 1.0)
    answer.show(0, 2.0)
    answer.end(1, 3.0)
    assert answer.shown_s == [2.0]
    answer.end(0, 4.0)
    assert answer.shown_s == [2.0, 4.0]
    assert answer.end_s == 4.0


def test_an_answer_takes_the_time_of_its_tokens_and_the_way() -> None:
    bench = Bench([asked(11, 5.0)])
    (answer,) = bench.run(CloudOnly(bench, DEVICES))
    pace = DEVICES.far.profile
    whole_s = pace.step_s(0, 60) + 10 * pace.step_s(1) + DEVICES.path.rtt_s
    assert answer.end_s - 5.0 == pytest.approx(whole_s, abs=0.001)
    assert (len(answer.shown_s), answer.cloud_tokens) == (11, 11)


def test_questions_beyond_the_rows_wait() -> None:
    bench = Bench([asked(50, key=f"q{place}") for place in range(21)])
    answers = bench.run(CloudOnly(bench, DEVICES))
    first_s = [one.shown_s[0] for one in answers]
    assert max(first_s[:20]) < min(one.end_s for one in answers[:20]) < first_s[20]


def test_a_site_is_what_the_choice_of_an_edge_asks_for() -> None:
    site: EdgeView = DecodingSite("edge", DEVICES.far.profile, 8, DEVICES.path)
    assert (site.requests, site.max_rows, site.active) == (0, 8, True)


def test_a_method_that_forgets_a_question_is_found_out() -> None:
    class Forgetful(CloudOnly):
        def turn(self, now: float) -> None:
            """Do nothing."""

    bench = Bench([asked()])
    with pytest.raises(SimulationError, match="1 questions are left"):
        bench.run(Forgetful(bench, DEVICES))


def test_an_edge_takes_as_long_as_the_serving_loop_with_the_same_step_times() -> None:
    profile = PROFILES["orin-qwen2.5-1.5b"]
    asked_s, prompts, tokens = (0.0, 0.3, 0.31, 1.0), (60, 200, 50, 120), (30, 12, 40, 8)
    talks = tuple(
        Conversation(f"r{n}", at_s, f"r{n}", prompts[n], tokens[n], max_tokens=100)
        for n, at_s in enumerate(asked_s)
    )
    settings = SimulationSettings(profile=profile, network_s=0.0)
    served = simulate(Trace("t", "test", (), talks), make_policy("stream"), settings)
    site = DecodingSite("edge", profile, 8, CloudPath(0.0, math.inf))
    bench, ends = Bench([]), [0.0] * 4
    method = CloudOnly(bench, DEVICES)
    method.sites = [site]
    for n, at_s in enumerate(asked_s):
        end = partial(ends.__setitem__, n)
        call = SiteCall(tokens[n], prompts[n], lambda number, now: None, end)
        bench.at(at_s, partial(site.call, call))
    bench.run(method)
    for talk, end_s in zip(served.conversations, ends, strict=True):
        assert end_s == pytest.approx(talk.times_s[-1], abs=2 * profile.step_s(4))
