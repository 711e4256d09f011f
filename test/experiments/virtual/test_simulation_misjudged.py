"""Predicted step times at a ratio to the true ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from test.experiments.bursts import bursts
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.registry import make_policy

names = pytest.mark.parametrize("name", ["rtx4090-llama3-8b", "rtx4060ti-chatglm2-6b"])
ratios = pytest.mark.parametrize("ratio", [0.7, 1.4])


def ratios_over(steps: int, settings: SimulationSettings) -> list[float]:
    """Return predicted over true seconds of each of many steps that are observed."""
    predicted, found = settings.step_time(), []
    for step in range(steps):
        rows, prompt = 1 + step % 20, 100 * (step % 3)
        true_s = settings.profile.step_s(rows, prompt)
        found.append(predicted.predict_s(rows, prompt) / true_s)
        predicted.observe(true_s, rows, prompt)
    return found


@names
@ratios
def test_no_observation_corrects_them(name: str, ratio: float) -> None:
    settings = SimulationSettings(profile=step_time_profile(name), step_times=ratio)
    found = ratios_over(2000, settings)
    assert [found[0], found[-1]] == pytest.approx([ratio, ratio], rel=0.02)


@names
@ratios
def test_those_that_are_wrong_at_first_are_learned(name: str, ratio: float) -> None:
    settings = SimulationSettings(profile=step_time_profile(name), first_step_times=ratio)
    found = ratios_over(400, settings)
    assert found[0] == pytest.approx(ratio, rel=0.02)
    assert found[-60:] == pytest.approx([1.0] * 60, rel=0.1), "all rows and prompts"


def test_the_engine_takes_its_own_time() -> None:
    slow = SimulationSettings(profile=PROFILES["rtx4060ti-chatglm2-6b"], skip=0)
    for policy, differs in (("stream", False), ("deadline", True)):
        right, wrong = (
            simulate(bursts(), make_policy(policy), replace(slow, step_times=ratio))
            for ratio in (1.0, 0.7)
        )
        assert (right != wrong) is differs, "stream asks for no step time"
