"""Pictures of fitted durations and step-time profiles have a panel for each fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.image import imread

from test.skills.plans import DRONE
from timely_llm.core.clock import VirtualClock
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import PROFILES, SimulatedEngine
from timely_llm.profiling.engine_steps import KV_TOKENS, MOST_ROWS, measure
from timely_llm.profiling.fitting import fit_skill
from timely_llm.profiling.measurements import Measurement
from timely_llm.profiling.step_profile import fit_profile
from timely_llm.report.palette import LIGHT
from timely_llm.report.profiles import draw_profile, draw_steps

EXECUTIONS = [Measurement("mf", (cm,), 2.0 + 0.01 * cm) for cm in range(10, 500, 7)]


def test_a_step_time_profile_is_drawn_in_three_panels(tmp_path: Path) -> None:
    limits = EngineLimits(kv_tokens=KV_TOKENS, max_rows=MOST_ROWS)
    profile = PROFILES["rtx4090-llama3-8b"]
    engine = SimulatedEngine(profile, lambda key, prompt: "yes", VirtualClock(), limits)
    fit = fit_profile(measure(engine, repeats=3), "drawn", "test")
    draw_steps([fit], tmp_path / "p.png")
    assert imread(tmp_path / "p.png").shape[:2] == (600, 1650)


def test_fitted_durations_are_drawn_in_the_colours_of_the_palette(tmp_path: Path) -> None:
    fit = fit_skill("mf", DRONE.skills["mf"], EXECUTIONS)
    draw_profile([fit], DRONE.skills, tmp_path / "p.png", "One skill")
    pixels = np.unique(imread(tmp_path / "p.png")[..., :3].reshape(-1, 3), axis=0)
    fitted = [int(LIGHT.series[1][place : place + 2], 16) / 255 for place in (1, 3, 5)]
    assert np.any(np.all(np.isclose(pixels, fitted, atol=1e-3), axis=1))
