"""The phases of one request, on a model made here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from test.engines.conftest import make_model, tokenizer  # noqa: F401
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.catalog.timelyllm.phases import (
    DECODING,
    DETOKENISATION,
    EXPERIMENT,
    FIRST,
    LAST,
    SECOND,
    TABLE_1,
    TOKENISATION,
    TOTAL,
)
from timely_llm.experiments.contract import ExperimentError

PHASES = [TOKENISATION, FIRST, SECOND, LAST, DECODING, DETOKENISATION, TOTAL]


def test_phases_add_up(request: pytest.FixtureRequest) -> None:
    make: Callable[..., Path] = request.getfixturevalue("make_model")
    model = make("Llama", max_position_embeddings=400)
    options = EXPERIMENT.options(model=str(model), tokens=4, repeats=2)
    run = EXPERIMENT.run(options, lambda done, total: None)
    assert [row["phase"] for row in run.rows] == 2 * PHASES
    for seed in range(2):
        found = {row["phase"]: row for row in run.rows if row["seed"] == seed}
        ms = {phase: float(found[phase]["ms"] or 0) for phase in PHASES}
        assert all(spent > 0 for spent in ms.values())
        assert ms[TOTAL] == pytest.approx(ms[TOKENISATION] + ms[DECODING] + ms[DETOKENISATION])
        assert ms[DECODING] > ms[FIRST] + ms[SECOND] + ms[LAST], "four tokens"
        assert found[TOTAL]["share"] == 1.0
        assert found[DECODING]["tokens"] == found[DETOKENISATION]["tokens"] == 4
        assert 380 <= int(found[TOKENISATION]["tokens"] or 0) <= 395, "as long as the model takes"
    assert set(run.measures) <= run.definitions.keys() | {"phase"}


def test_the_papers_table_adds_up_too_and_the_profile_is_made_of_it() -> None:
    llama, phi = ({row["phase"]: row for row in paper.rows} for paper in TABLE_1)
    assert llama[TOTAL]["ms"] == pytest.approx(613.82, abs=0.1)
    assert phi[TOTAL]["ms"] == pytest.approx(843.36, abs=0.1)
    assert list(llama) == PHASES
    profile = PROFILES["rtx4090-llama3-8b"]
    assert 1e3 * profile.step_s(1) == pytest.approx(float(llama[LAST]["ms"] or 0), rel=0.01)


def test_a_model_for_few_tokens_is_refused(request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue("make_model")("Llama", max_position_embeddings=16)
    with pytest.raises(ExperimentError, match="the model leaves 0 tokens for a prompt"):
        EXPERIMENT.run(EXPERIMENT.options(model=str(model)), lambda done, total: None)
