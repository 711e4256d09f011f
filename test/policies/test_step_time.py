"""The step-time model learns online."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.policies.reference import PlainStepTime
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.step_time import StepTime


def test_it_learns_an_engine_from_its_steps() -> None:
    model, rng = StepTime(), np.random.default_rng(0)
    for _ in range(500):
        rows, prefill = int(rng.integers(0, 32)), int(rng.integers(0, 300)) * int(rng.integers(2))
        true_s = 0.005 + 0.0004 * rows + 0.00002 * prefill
        model.observe(true_s * float(rng.lognormal(0, 0.02)), rows, prefill)
    assert model.predict_s(8) == pytest.approx(0.0082, rel=0.05)
    assert model.predict_s(4, 200) == pytest.approx(0.0106, rel=0.05)


def test_inputs_that_say_the_same_twice_do_not_lead_it_astray() -> None:
    model, rng = StepTime(0.0216, 0.00015, 0.00011), np.random.default_rng(0)
    for _ in range(5000):
        rows = int(rng.integers(1, 3))
        true_s = 0.0216 + 0.00015 * rows
        model.observe(true_s * float(rng.lognormal(0, 0.05)), rows, 0, 2900 * rows)
    for _ in range(3):
        model.observe(0.1, 2, 700, 5800)  # an odd one now and then
    assert model.predict_s(10, 0, 29_000) < 0.05
    assert model.predict_s(1, 110, 2900) < 0.1


def test_one_odd_step_does_not_throw_it_off() -> None:
    model = StepTime(0.005, 0.0004, 0.00002)
    for _ in range(200):
        model.observe(0.0082, 8)
    model.observe(5.0, 8)
    assert model.predict_s(8) < 0.02


@given(
    st.lists(st.tuples(st.floats(0, 10), st.integers(0, 256), st.integers(0, 4096)), max_size=30)
)
def test_predictions_stay_positive_and_finite(steps: list[tuple[float, int, int]]) -> None:
    model = StepTime()
    for seconds, rows, prefill in steps:
        model.observe(seconds, rows, prefill)
    assert 0 < model.predict_s(8, 100) < float("inf")


@given(
    st.lists(
        st.tuples(
            st.floats(0, 2), st.integers(0, 256), st.integers(0, 4096), st.integers(0, 100_000)
        ),
        max_size=50,
    )
)
def test_it_learns_the_same_as_with_arrays(steps: list[tuple[float, int, int, int]]) -> None:
    model, plain = StepTime(), PlainStepTime()
    for step in steps:
        model.observe(*step)
        plain.observe(*step)
    for asked in ((1, 0, 0), (8, 110, 1000), (64, 0, 20_000)):
        assert model.predict_s(*asked) == pytest.approx(plain.predict_s(*asked), rel=1e-6)


TABLE_S = (0.026, 0.035, 0.044, 0.054, 0.063, 0.072, 0.081, 0.095, 0.1286)


def test_a_table_of_rows_is_what_it_predicts_and_the_line_goes_on() -> None:
    model = StepTime(0.0168, 0.0093, 0.0001, table_s=TABLE_S, beyond_s=0.0004)
    predicted = [model.predict_s(rows) for rows in range(1, 10)]
    assert predicted == pytest.approx(TABLE_S)
    assert model.predict_s(11) == pytest.approx(0.1286 + 2 * 0.0004)
    assert model.predict_s(0, 100) == pytest.approx(0.0168 + 0.01), "no row, no table"
    assert model.predict_s(9, 100) == pytest.approx(0.1386)


def test_an_engine_that_keeps_to_its_table_teaches_nothing_and_a_slower_one_does() -> None:
    model = StepTime(0.0168, 0.0093, 0.0001, table_s=TABLE_S, beyond_s=0.0004)
    rng = np.random.default_rng(0)
    for rows in rng.integers(1, 20, 500):
        model.observe(model.predict_s(int(rows)), int(rows))
    assert model.predict_s(9) == pytest.approx(0.1286)
    for rows in rng.integers(1, 10, 1000):
        model.observe(1.5 * TABLE_S[rows - 1], int(rows))
    for rows in range(1, 10):
        assert model.predict_s(rows) == pytest.approx(1.5 * TABLE_S[rows - 1], rel=0.2)


@given(
    st.tuples(*[st.floats(0.0, 0.1)] * 4),
    st.lists(st.floats(1e-4, 0.2), max_size=4),
    st.integers(1, 9),
    st.integers(0, 9),
    st.floats(0.0, 2000.0),
)
def test_many_steps_at_once_take_what_each_is_predicted_to_take(
    coefficients: tuple[float, float, float, float], table_s: list[float], first: int, number: int,
    context_each: float,
) -> None:  # fmt: skip
    rows = range(first, first + number)
    kinds = (
        StepTime(*coefficients, table_s=table_s),
        PipelineTime([StepTime(*coefficients), StepTime()], [StepTime(0.001, 0.0, 0.0001)]),
    )
    for step_time in kinds:
        each = [step_time.predict_s(n, 0, int(n * context_each)) for n in rows]
        assert step_time.steps_s(rows, context_each) == each
