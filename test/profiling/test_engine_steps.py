from __future__ import annotations

import random
from dataclasses import replace

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import EngineError
from timely_llm.core.step import Capacity
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import Profile, SimulatedEngine
from timely_llm.profiling.engine_steps import (
    KV_TOKENS,
    MOST_ROWS,
    ROWS,
    UNSEEN,
    measure,
    settings_for,
)

STEPS = Profile("made up", "test", 0.01, 0.001, 0.0001, 0.000002, 0.004)
ENOUGH = Capacity(KV_TOKENS, MOST_ROWS, 2048, 2048)


def engine(**limits: int) -> SimulatedEngine:
    taken = EngineLimits(kv_tokens=KV_TOKENS, max_rows=MOST_ROWS)
    return SimulatedEngine(
        STEPS, lambda key, prompt: "yes", VirtualClock(), replace(taken, **limits)
    )


def test_steps_are_measured_with_what_they_compute_and_attend_to() -> None:
    bench = engine()
    told: list[tuple[int, int]] = []
    steps = measure(bench, repeats=3, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert bench.capacity.free_tokens == KV_TOKENS
    assert len({step.setting for step in steps}) == len(steps)
    for step in steps:
        setting = step.setting
        least = setting.rows * setting.row_context + setting.chunk_context
        assert least <= step.context_tokens <= least + 100 * setting.rows
        expected_s = STEPS.step_s(setting.rows, setting.chunk, step.context_tokens)
        # The context grows from repeat to repeat.
        assert step.seconds == pytest.approx(expected_s, abs=1e-6)


def test_every_kind_of_step_is_there() -> None:
    settings = settings_for(ENOUGH, random.Random(0))
    seen = [setting for setting in settings if not setting.unseen]
    assert {s.rows for s in seen if not s.chunk} == set(ROWS)
    assert {s.row_context for s in seen if not s.chunk} == {32, 256, 1024}
    assert max(s.chunk for s in seen) == 1024
    assert any(s.chunk_context == 1024 for s in seen)
    assert any(s.chunk and s.rows for s in seen)
    assert len(settings) - len(seen) == UNSEEN
    assert all(s.rows + s.chunk > 0 for s in settings)


@pytest.mark.parametrize("longest", [544, 600, 800, 1536])
def test_shorter_sequences_are_measured_shorter(longest: int) -> None:
    steps = measure(engine(max_model_len=longest), repeats=2)
    assert all(s.setting.chunk + s.setting.chunk_context < longest for s in steps)
    assert {s.setting.row_context for s in steps} < {0, 32, 256, 1024, longest}


@pytest.mark.parametrize(
    "limits", [{"max_rows": 128}, {"kv_tokens": KV_TOKENS - 1}, {"max_model_len": 543}]
)
def test_an_engine_that_is_too_small_is_refused_with_its_needs(limits: dict[str, int]) -> None:
    with pytest.raises(EngineError, match="needs 129 rows, 98304 tokens of KV, and 544 tokens"):
        measure(engine(**limits))
