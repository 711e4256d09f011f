"""Baselines, each on a few questions."""

from __future__ import annotations

from statistics import fmean

import pytest

from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.virtual.sketches.bench import Bench, ShownAnswer
from timely_llm.experiments.virtual.sketches.methods import (
    SOT_POINT_TOKENS,
    SOT_POINTS,
    Speculative,
)
from timely_llm.experiments.virtual.sketches.questions import BenchQuestion, questions
from timely_llm.experiments.virtual.sketches.score import method
from timely_llm.experiments.virtual.sketches.testbed import FAR_MODELS, Devices

DEVICES = Devices(FAR_MODELS["llama3-70b"])


def answers(text: str, count: int = 12, rpm: float = 30.0) -> list[ShownAnswer]:
    bench = Bench(questions(rpm, 0, count))
    return bench.run(method(text)(bench, DEVICES))


def test_edges_alone_answer_without_the_cloud_one_at_a_time() -> None:
    found = answers("edge-only")
    assert all(one.cloud_tokens == 0 and one.model == "qwen2.5-7b" for one in found)
    spans = sorted((one.shown_s[0], one.end_s) for one in found)
    assert max(sum(a < b[0] < e for a, e in spans) for b in spans) <= DEVICES.edges


def test_more_rows_of_an_edge_serve_more_at_once() -> None:
    one, eight = (
        fmean(a.end_s - a.question.at_s for a in answers(text, 20))
        for text in ("edge-only", "edge-only:rows=8")
    )
    assert eight < 0.8 * one


def test_an_edge_that_runs_the_clouds_model_loses_nothing() -> None:
    bench = Bench(questions(60.0, 0, 3))
    found = bench.run(method("edge-only")(bench, Devices(FAR_MODELS["qwen2.5-7b"])))
    assert {one.model for one in found} == {""}


def test_a_router_sends_its_share_to_the_edges() -> None:
    for share in (0.0, 0.25, 1.0):
        found = answers(f"routing:share={share}")
        assert sum(one.model != "" for one in found) == round(share * 12)


def test_a_skeleton_adds_its_points_and_lets_the_points_be_written_at_once() -> None:
    bench = Bench([BenchQuestion("q", "stem", 0.0, 400, 1.0, 7)])
    (answer,) = bench.run(method("skeleton")(bench, DEVICES))
    assert answer.cloud_tokens == 400 + SOT_POINTS * SOT_POINT_TOKENS
    bench = Bench([BenchQuestion("q", "stem", 0.0, 400, 1.0, 7)])
    (alone,) = bench.run(method("cloud-only")(bench, DEVICES))
    assert answer.end_s < 0.5 * alone.end_s


def test_speculation_drafts_where_it_gains() -> None:
    target, draft = PROFILES["a100x4-llama3-70b"], PROFILES["a100x4-qwen2.5-1.5b"]
    pace = Speculative(target, draft)
    # Four drafted tokens: 1 + .7 + .49 + .343 + .2401 = 2.77 of them at once.
    four_s = (target.step_s(1, 4) + 4 * draft.step_s(1)) / 2.7731
    assert pace.step_s(1) <= four_s < 0.6 * target.step_s(1)
    assert Speculative(target, draft, 0.0).step_s(1) == pytest.approx(target.step_s(1))
    assert pace.step_s(0, 10) == target.step_s(0, 10)
