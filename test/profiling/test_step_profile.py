from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import ConfigurationError
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import PROFILES, Profile, SimulatedEngine
from timely_llm.profiling.engine_steps import (
    KV_TOKENS,
    MOST_ROWS,
    MeasuredStep,
    Setting,
    measure,
)
from timely_llm.profiling.step_profile import (
    fit_profile,
    non_negative,
    relative_error,
    write_profile,
)

SMALL = st.floats(-10, 10, allow_nan=False, width=32)


def steps_of(profile: Profile) -> list[MeasuredStep]:
    """Return steps that take exactly as long as a profile says."""
    limits = EngineLimits(kv_tokens=KV_TOKENS, max_rows=MOST_ROWS)
    engine = SimulatedEngine(profile, lambda key, prompt: "yes", VirtualClock(), limits)
    return measure(engine, repeats=3)


@pytest.mark.parametrize(
    "profile",
    [
        Profile("line", "", 0.02, 0.001, 0.0001, 0.0000002, 0.01),
        Profile("no context", "", 0.02, 0.001, 0.0001),
        Profile("long prompts", "", 0.02, 0.001, 0.00001, long_prefill_token_s=0.0001),
        Profile("prompts only", "", 0.0, 0.0, 0.0001, 0.0, 0.004, (0.001,)),
        *(profile for name, profile in PROFILES.items() if name != "millisecond"),
    ],
    ids=lambda profile: profile.name,
)
def test_a_profile_is_found_again_by_measuring_it(profile: Profile) -> None:
    fit = fit_profile(steps_of(profile), "again", "test")
    found = fit.profile
    assert fit.median_error < 0.02
    assert found.prefill_token_s == pytest.approx(profile.prefill_token_s, rel=0.05)
    if profile.long_prefill_token_s is not None:
        assert found.long_prefill_token_s == pytest.approx(profile.long_prefill_token_s, rel=0.01)
    if not profile.table_s:
        assert fit.p95_error < 0.001
        assert found.base_s == pytest.approx(profile.base_s, rel=0.01)
        assert found.row_s == pytest.approx(profile.row_s, rel=0.01)
        assert found.prefill_s == pytest.approx(profile.prefill_s, rel=0.01, abs=1e-5)
        for rows, chunk, context in ((1, 0, 100), (9, 300, 4000), (90, 0, 9000), (0, 50, 0)):
            wanted_s = profile.step_s(rows, chunk, context)
            assert found.step_s(rows, chunk, context) == pytest.approx(wanted_s, rel=0.01)


def test_disturbed_steps_do_not_bend_a_profile() -> None:
    steps = [
        MeasuredStep(s.setting, s.context_tokens, s.seconds * (5 if place % 9 == 0 else 1), 0.0)
        for place, s in enumerate(steps_of(PROFILES["rtx4090-llama3-8b"]))
    ]
    fit = fit_profile(steps, "disturbed", "test")
    undisturbed = [step for place, step in enumerate(steps) if place % 9]
    assert max(abs(relative_error(fit.profile, step)) for step in undisturbed) < 0.05
    assert fit.p95_error > 0.5


def test_no_coefficient_is_negative_whatever_was_measured() -> None:
    rng = np.random.default_rng(0)
    steps = [
        MeasuredStep(s.setting, s.context_tokens, float(rng.uniform(0.001, 1.0)), 0.0)
        for s in steps_of(PROFILES["millisecond"])
    ]
    profile = fit_profile(steps, "noise", "test").profile
    assert min(profile.table_s) > 0
    assert list(profile.table_s) == sorted(profile.table_s)
    assert min(v for v in vars(profile).values() if isinstance(v, float)) >= 0


def test_a_fit_needs_steps_to_make_it_and_to_test_it() -> None:
    step = MeasuredStep(Setting(1, 32), 32, 0.01, 0.0)
    for steps in ([], [step]):
        with pytest.raises(ConfigurationError, match="other steps to test it with"):
            fit_profile(steps, "few", "test")


def test_a_written_profile_is_read_as_it_was(tmp_path: Path) -> None:
    fit = fit_profile(steps_of(PROFILES["rtx4060ti-chatglm2-6b"]), "read: again", "a 'test': ü")
    write_profile(fit.profile, tmp_path / "p.yaml")
    assert step_time_profile(f"measured:{tmp_path / 'p.yaml'}") == fit.profile


@given(arrays(float, (6, 4), elements=SMALL), arrays(float, 6, elements=SMALL))
def test_no_other_choice_of_unknowns_fits_better(columns: np.ndarray, target: np.ndarray) -> None:
    columns[:4] += 20 * np.eye(4)  # no column is 0, none is nearly another
    found = non_negative(columns, target)
    assert np.min(found) >= 0
    best = np.linalg.norm(target)
    for size in range(1, 5):
        for chosen in map(list, combinations(range(4), size)):
            x = np.linalg.lstsq(columns[:, chosen], target, rcond=None)[0]
            if np.min(x) >= 0:
                best = min(best, np.linalg.norm(columns[:, chosen] @ x - target))
    assert np.linalg.norm(columns @ found - target) <= best * (1 + 1e-6) + 1e-9
