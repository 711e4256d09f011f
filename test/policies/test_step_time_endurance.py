"""The step-time model stays right however long it learns."""

import math
import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test import endurance
from timely_llm.policies.step_time import StepTime

Load = Iterator[tuple[int, int, int]]
Engine = Callable[[int, int, int, int], float]
"""(step, rows, prefill tokens, context tokens) -> seconds."""

WARM_UP = 2000
TABLE_S = (0.026, 0.035, 0.044, 0.054, 0.063, 0.072, 0.081, 0.095, 0.1286)


def conversations(steps: int) -> Load:
    """Rows come and go, and their context grows by one a step."""
    rng = random.Random(0)
    talks: list[list[int]] = []
    for _ in range(steps):
        prompt = rng.randint(20, 400) if rng.random() < 0.02 or not talks else 0
        context = sum(tokens for tokens, _ in talks)
        yield len(talks), prompt, context
        if prompt:
            talks.append([prompt, rng.randint(40, 400)])
        for talk in talks:
            talk[0] += 1
            talk[1] -= 1
        talks = [talk for talk in talks if talk[1] > 0]


def twice_the_same(steps: int) -> Load:
    """Context proportional to the rows: the two cannot be distinguished."""
    rng = random.Random(0)
    for _ in range(steps):
        rows = rng.randint(1, 4)
        yield rows, 0, 2900 * rows


def linear(step: int, rows: int, prefill: int, context: int) -> float:
    return 0.008 + 0.0004 * rows + 0.00003 * prefill + 2e-7 * context


def drifting(step: int, rows: int, prefill: int, context: int) -> float:
    return (1.0 + 0.3 * math.sin(step / 8000)) * linear(step, rows, prefill, context)


def bent(step: int, rows: int, prefill: int, context: int) -> float:
    """Dearer rows from the seventh on, and a price for having a prompt at all."""
    return 0.008 + 0.0004 * rows + 0.0004 * max(rows - 6, 0) + 0.00003 * prefill


def slower_than_its_table(step: int, rows: int, prefill: int, context: int) -> float:
    rows_s = TABLE_S[min(rows, 9) - 1] + 0.0004 * max(rows - 9, 0) if rows else 0.0168
    return 1.5 * (rows_s + 0.0001 * prefill)


def off_by(
    model: StepTime, engine: Engine, load: Load, noise: float = 0.0, odd: float = 0.0
) -> list[float]:
    """Return by what share each prediction was wrong, after some steps to learn from."""
    rng, found = random.Random(1), []
    for step, asked in enumerate(load):
        true_s = engine(step, *asked)
        if step >= WARM_UP:
            found.append(abs(model.predict_s(*asked) / true_s - 1.0))
        seen_s = true_s * rng.lognormvariate(0.0, noise) if noise else true_s
        model.observe(seen_s * 100.0 if rng.random() < odd else seen_s, *asked)
    return found


@endurance.steps
@pytest.mark.parametrize("load", [conversations, twice_the_same])
@pytest.mark.parametrize("engine", [linear, drifting])
def test_an_engine_without_noise_is_known_to_the_end(
    engine: Engine, load: Callable[[int], Load], steps: int
) -> None:
    assert max(off_by(StepTime(), engine, load(steps))) < 0.1


@endurance.steps
def test_a_table_is_stretched_by_a_slower_engine_to_the_end(steps: int) -> None:
    model = StepTime(0.0168, 0.0093, 0.0001, table_s=TABLE_S, beyond_s=0.0004)
    assert max(off_by(model, slower_than_its_table, conversations(steps))) < 0.1


@endurance.steps
@pytest.mark.parametrize(
    ("engine", "noise", "odd"),
    [(linear, 0.1, 0.0), (linear, 0.05, 0.005), (drifting, 0.1, 0.0), (bent, 0.05, 0.0)],
    ids=["noisy", "odd steps", "drifting and noisy", "bent"],
)
@pytest.mark.parametrize("load", [conversations, twice_the_same])
def test_an_engine_that_is_not_quite_linear_is_known_to_the_end(
    engine: Engine, load: Callable[[int], Load], noise: float, odd: float, steps: int
) -> None:
    wrong = off_by(StepTime(), engine, load(steps), noise, odd)
    for part in (wrong[: len(wrong) // 2], wrong[-WARM_UP:]):
        part.sort()
        assert part[len(part) // 2] < 0.02, "usually"
        assert part[int(0.98 * len(part))] < 0.1, "nearly always"
    assert max(wrong) < 1.0


@endurance.steps
@pytest.mark.parametrize("times", [5.0, 30.0])
def test_a_jump_of_the_engines_speed_is_followed_soon(times: float, steps: int) -> None:
    every, soon = 5000, 100

    def jumping(step: int, rows: int, prefill: int, context: int) -> float:
        return (times if step // every % 2 else 1.0) * linear(step, rows, prefill, context)

    wrong = off_by(StepTime(), jumping, conversations(steps), 0.02)
    later = [share for step, share in enumerate(wrong, WARM_UP) if step % every >= soon]
    assert sum(share < 0.1 for share in later) > 0.98 * len(later)


counts = st.integers(-3, 1 << 45)
seconds = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0.0, 0.1),
    st.sampled_from([0.0, -1.0, 1e-320, 1e308, math.nan, math.inf, -math.inf]),
)


@given(
    st.lists(st.tuples(seconds, counts, counts, counts), max_size=60),
    st.integers(1, 40),
    st.booleans(),
)
def test_whatever_it_observes_it_predicts_a_time(
    observed: list[tuple[float, int, int, int]], again: int, has_table: bool
) -> None:
    table_s = TABLE_S if has_table else ()
    model = StepTime(0.0168, 0.0093, 0.0001, table_s=table_s, beyond_s=0.0004)
    for step in observed * again:
        model.observe(*step)
        assert all(0.0 <= value < math.inf for value in model.coefficients)
        for asked in ((0, 0, 0), (1, 0, 0), (256, 4096, 1_000_000)):
            assert 0.0 < model.predict_s(*asked) < math.inf


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -0.01])
def test_what_is_no_time_teaches_nothing(odd: float) -> None:
    model, told = StepTime(), StepTime()
    for step, asked in enumerate(conversations(200)):
        for one in (model, told):
            one.observe(linear(step, *asked), *asked)
        told.observe(odd, *asked)
    assert told.coefficients == model.coefficients
    assert told.observations == model.observations == 200


def test_one_endless_step_is_forgotten_soon() -> None:
    model = StepTime()
    for step, asked in enumerate(conversations(1000)):
        model.observe(1e300 if step == 500 else linear(step, *asked), *asked)
        if step > 900:
            assert model.predict_s(*asked) == pytest.approx(linear(step, *asked), rel=0.1)
