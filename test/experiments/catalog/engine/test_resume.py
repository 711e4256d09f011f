"""Ways to resume a suspended plan, on the embedded engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from test.engines.conftest import make_model, tokenizer  # noqa: F401
from timely_llm.experiments.catalog.engine import resume as engine_resume
from timely_llm.experiments.catalog.engine.resume import (
    EXPERIMENT,
    KEPT,
    MEASURED,
    OFFLOADED,
    OWN_TOKENS,
    PINNED,
    PREFILLED,
    EngineResumeOptions,
)
from timely_llm.experiments.contract import ExperimentError


def test_each_way_says_what_it_computes_again(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    make: Callable[..., Path] = request.getfixturevalue("make_model")
    model = make("Llama", max_position_embeddings=400)
    monkeypatch.setattr(engine_resume, "PASSES", 2)
    options = EXPERIMENT.options(engine="transformers", model=str(model), tokens=4, repeats=2)
    run = EXPERIMENT.run(options, lambda done, total: None)
    prompt = 400 - 4 - 16
    assert run.setup["tokens of the prompt"] == prompt
    ways = {row["way"]: row for row in run.rows}
    assert list(ways) == [KEPT, PINNED, PREFILLED, OFFLOADED]
    assert len(run.rows) == 8
    # Four generated, one of the step with KV kept; the newest token is never there.
    assert ways[KEPT]["recomputed_tokens"] == 0
    assert ways[PINNED]["recomputed_tokens"] == OWN_TOKENS + 4
    assert ways[PREFILLED]["recomputed_tokens"] == prompt + 5
    for way in (KEPT, PINNED, PREFILLED):
        assert float(ways[way]["next_token_ms"] or 0) > 0
        assert ways[way]["measured"] == MEASURED
    why_not = "not measured: the engine transformers keeps KV on its device only"
    assert ways[OFFLOADED]["measured"] == why_not
    assert ways[OFFLOADED]["next_token_ms"] is None
    assert {row["way"] for row in run.papers[0].rows} == {OFFLOADED, PREFILLED}


def test_a_model_for_few_tokens_is_refused(request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue("make_model")("Llama", max_position_embeddings=128)
    options = EngineResumeOptions(engine="transformers", model=str(model))
    with pytest.raises(ExperimentError, match="the model takes 128 tokens: too few"):
        EXPERIMENT.run(options, lambda done, total: None)


def test_a_simulated_engine_takes_no_time() -> None:
    with pytest.raises(ExperimentError, match="a simulated engine takes no time"):
        EXPERIMENT.run(EngineResumeOptions(engine="simulated"), lambda done, total: None)
