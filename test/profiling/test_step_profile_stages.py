"""Engines in stages: their known times are found again by measuring them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import ConfigurationError
from timely_llm.engines.paces import pace_profile
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile, StageLink
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import Profile
from timely_llm.profiling.engine_steps import KV_TOKENS, MOST_ROWS, MeasuredStep, measure
from timely_llm.profiling.step_profile import (
    WHOLE,
    fit_pipeline,
    layer_splits,
    split_sentences,
    write_profile,
)

STAGES = (
    Profile("fast", "", 0.004, 0.0002, 0.00002, 0.0000001),
    Profile("slow", "", 0.011, 0.0009, 0.0001, 0.0, 0.003),
    Profile("free rows", "", 0.007, 0.0, 0.00005),
)
LINKS = StageLink(0.002, 0.0004), StageLink(0.0, 0.00001)


def steps_of(blocking: bool, overhead_s: float = 0.0) -> list[MeasuredStep]:
    """Return steps that take exactly as long as three stages, their links and the engine say."""
    limits = EngineLimits(kv_tokens=KV_TOKENS, max_rows=MOST_ROWS)
    profile = PipelineProfile("three", "", STAGES, LINKS, blocking, overhead_s=overhead_s)
    return measure(PipelinedEngine(profile, lambda *_: "yes", VirtualClock(), limits), repeats=2)


@pytest.mark.parametrize("blocking", [True, False])
def test_each_stage_and_link_is_found_again(blocking: bool, tmp_path: Path) -> None:
    fit = fit_pipeline(steps_of(blocking), "again", "test")
    found = fit.profile
    assert found.blocking is blocking
    for stage, wanted in zip(found.stages, STAGES, strict=True):
        for rows, chunk, context in ((1, 0, 100), (9, 300, 4000), (90, 0, 9000), (0, 50, 0)):
            wanted_s = wanted.step_s(rows, chunk, context)
            assert stage.step_s(rows, chunk, context) == pytest.approx(wanted_s, rel=0.01)
    for link, sent in zip(found.links, LINKS, strict=True):
        assert link.message_s == pytest.approx(sent.message_s, rel=0.01, abs=1e-9)
        assert link.token_s == pytest.approx(sent.token_s, rel=0.01)
    assert list(fit.errors) == ["stage 1", "stage 2", "stage 3", "link 1", "link 2", WHOLE]
    assert max(p95 for _, p95 in fit.errors.values()) < 0.01

    write_profile(found, tmp_path / "three.yaml")
    assert pace_profile(f"measured:{tmp_path / 'three.yaml'}") == found


def test_layers_are_split_by_what_boxes_and_links_take() -> None:
    """A layer takes 1 ms on the first box and 3 ms on the second."""
    boxes = Profile("fast", "", 0.016, 0.0, 0.0), Profile("slow", "", 0.048, 0.0, 0.0)
    made = [
        layer_splits(PipelineProfile("two", "", boxes, (StageLink(send_s, 0.0),), blocks), *given)
        for send_s, blocks, given in (
            (0.002, False, [(16, 16)]),
            (0.002, False, [(16, 16), (20, 32)]),
            (0.0305, False, [(16, 16)]),
            (0.004, True, [(16, 16)]),
        )
    ]
    assert {now.layers for now, _ in made} == {(16, 16)}
    assert [now.bottleneck_s for now, _ in made] == pytest.approx([0.048] * 4)
    assert [best.layers for _, best in made] == [(24, 8), (20, 12), (30, 2), (23, 9)]
    assert [best.bottleneck_s for _, best in made] == pytest.approx([0.024, 0.036, 0.0305, 0.027])


@pytest.mark.parametrize(("layers", "most"), [((16,), ()), ((16, 16), (20,)), ((16, 0), ())])
def test_numbers_of_layers_that_do_not_fit_the_stages_are_refused(
    layers: tuple[int, ...], most: tuple[int, ...]
) -> None:
    two = PipelineProfile("two", "", (Profile("", "", 0.1, 0.0, 0.0),) * 2, (StageLink(0.0, 0.0),))
    with pytest.raises(ConfigurationError, match="2 stages need 2 numbers of layers"):
        layer_splits(two, layers, most)


def test_one_stage_has_no_layers_to_split() -> None:
    with pytest.raises(ConfigurationError, match="for an engine with known times of its stages"):
        split_sentences(STAGES[0], (32,))


def test_what_stage_times_leave_out_is_the_overhead() -> None:
    fit = fit_pipeline(steps_of(True, overhead_s=0.1), "with an overhead", "test")
    assert fit.profile.overhead_s == pytest.approx(0.1, rel=0.01)
    assert max(p95 for _, p95 in fit.errors.values()) < 0.01
    assert fit_pipeline(steps_of(True), "without", "test").profile.overhead_s < 1e-6


def test_steps_without_times_of_stages_are_refused() -> None:
    steps = steps_of(True)
    for given in ([], [*steps, replace(steps[0], stages=None)]):
        with pytest.raises(ConfigurationError, match="needs steps with times of each stage"):
            fit_pipeline(given, "some", "test")
