"""The kind of a link is learned from noisy steps."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.micro_batches.pipelines import simulated_ends_s
from timely_llm.policies.micro_batches.flow_shop import Affine, FlowShop
from timely_llm.policies.micro_batches.link_kind import LinkKind


def learned(
    blocking: bool, compute_s: float, link_s: float, count: int, steps: int, noise: float, seed: int
) -> LinkKind:
    """Return what steps of a simulated pipeline of four stages teach."""
    shop = FlowShop((Affine(compute_s, 0.0),) * 4, (Affine(link_s, 0.0),) * 3, blocking)
    ends_s = simulated_ends_s(shop, [1] * count, 3)
    interval_s = (ends_s[-1] - ends_s[0]) / 2 / count
    rng, kind = random.Random(seed), LinkKind()

    def noisy(seconds: float) -> float:
        return seconds * rng.uniform(1 - noise, 1 + noise)

    for _ in range(steps):
        kind = kind.observe(noisy(compute_s), noisy(link_s), noisy(interval_s), 4, count)
    return kind


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize(("compute_s", "link_s"), [(0.02, 0.02), (0.015, 0.09), (0.03, 0.01)])
def test_both_kinds_are_learned_in_steps_that_vary_by_a_fifth(
    blocking: bool, compute_s: float, link_s: float
) -> None:
    for seed in range(20):
        kind = learned(blocking, compute_s, link_s, 8, 200, 0.2, seed)
        assert kind.blocking == blocking
        assert kind.known or compute_s < link_s  # a stage next to a slow link shows less


@examples(100)
@given(st.booleans(), st.floats(0.005, 0.1), st.floats(0.3, 3.0), st.integers(6, 16))
def test_steps_without_noise_show_the_kind_exactly(
    blocking: bool, compute_s: float, ratio: float, count: int
) -> None:
    kind = learned(blocking, compute_s, ratio * compute_s, count, 5, 0.0, 0)
    if kind.weight > 0.0:
        assert kind.lost == pytest.approx(kind.weight * blocking, abs=1e-9)


def test_before_any_step_sends_are_taken_to_block() -> None:
    assert LinkKind().blocking
    assert not LinkKind().known


def test_a_kind_that_changes_is_learned_again() -> None:
    kind = LinkKind()
    for _ in range(500):
        kind = kind.observe(0.02, 0.02, 0.04, 4, 8)
    for _ in range(100):
        kind = kind.observe(0.02, 0.02, 0.02, 4, 8)
    assert not kind.blocking


@pytest.mark.parametrize(
    ("stage_s", "link_s", "interval_s"),
    [
        (0.02, 0.02, 0.5),  # the pipeline waited for requests
        (0.02, 0.0, 0.02),  # nothing was sent
        (0.0, 0.02, 0.02),
        (0.02, 0.02, 0.0),
        (0.02, 0.02, float("nan")),
        (0.02, float("nan"), 0.02),
        (float("inf"), 0.02, 0.02),
    ],
)
def test_steps_that_show_nothing_change_nothing(
    stage_s: float, link_s: float, interval_s: float
) -> None:
    kind = LinkKind(1.0, 2.0)
    assert kind.observe(stage_s, link_s, interval_s, 4, 8) is kind


def test_a_pipeline_that_waits_for_its_own_tokens_shows_nothing() -> None:
    # Two micro-batches in four stages: latency alone decides, whatever the link does.
    kind = LinkKind()
    assert kind.observe(0.02, 0.02, 0.07, 4, 2) is kind
