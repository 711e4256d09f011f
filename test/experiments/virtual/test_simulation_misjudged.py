"""Predicted step times at a ratio to the true ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from test.experiments.bursts import bursts
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.registry import make_policy


@pytest.mark.parametrize("name", ["rtx4090-llama3-8b", "rtx4060ti-chatglm2-6b"])
@pytest.mark.parametrize("ratio", [0.7, 1.4])
def test_no_observation_corrects_them(name: str, ratio: float) -> None:
    profile = step_time_profile(name)
    predicted = SimulationSettings(profile=profile, step_times=ratio).step_time()
    for step in range(2000):
        rows, prompt = 1 + step % 20, 100 * (step % 3)
        true_s = profile.step_s(rows, prompt)
        if step in (0, 1999):
            assert predicted.predict_s(rows, prompt) == pytest.approx(ratio * true_s, rel=0.02)
        predicted.observe(true_s, rows, prompt)


@pytest.mark.parametrize("name", ["rtx4090-llama3-8b", "rtx4060ti-chatglm2-6b"])
@pytest.mark.parametrize("ratio", [0.7, 1.4])
def test_those_that_are_wrong_at_first_are_learned(name: str, ratio: float) -> None:
    profile = step_time_profile(name)
    predicted = SimulationSettings(profile=profile, first_step_times=ratio).step_time()
    for step in range(400):
        rows, prompt = 1 + step % 20, 100 * (step % 3)
        true_s = profile.step_s(rows, prompt)
        if step == 0:
            assert predicted.predict_s(rows, prompt) == pytest.approx(ratio * true_s, rel=0.02)
        predicted.observe(true_s, rows, prompt)
    for rows, prompt in ((1, 0), (8, 100), (20, 200)):
        true_s = profile.step_s(rows, prompt)
        assert predicted.predict_s(rows, prompt) == pytest.approx(true_s, rel=0.1)


def test_the_engine_takes_its_own_time() -> None:
    slow = SimulationSettings(profile=PROFILES["rtx4060ti-chatglm2-6b"], skip=0)
    for policy, differs in (("stream", False), ("deadline", True)):
        right, wrong = (
            simulate(bursts(), make_policy(policy), replace(slow, step_times=ratio))
            for ratio in (1.0, 0.7)
        )
        assert (right != wrong) is differs, "stream asks for no step time"
