import math

import pytest

from timely_llm.experiments.catalog.slice.weight import worth
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.virtual.slice_sweep import cases

FOUND = experiment("slice-weight")


def quiet(done: int, total: int) -> None:
    pass


def test_only_real_time_tasks_have_another_worth() -> None:
    (case,) = cases(FOUND.options(policies=("slice",), seeds=1, minutes=1.0))
    made = worth(case, 7.0)
    assert made.names["weight"] == 7.0
    for talk, before in zip(made.trace.conversations, case.trace.conversations, strict=True):
        assert talk.weight == (7.0 if talk.deadline_s < math.inf else before.weight)


def test_slice_orders_alike_from_10_to_100_and_not_without_a_preference() -> None:
    """Real-time tasks have the highest utility a token (Eq. 6) from a weight of 2.5 on."""
    made = FOUND.run(
        FOUND.options(
            policies=("slice",), seeds=1, minutes=1.0, rates=(3.0,), weights=(1.0, 10.0, 100.0),
            jobs=1,
        ),
        quiet,
    )  # fmt: skip
    one, ten, hundred = ({**row, "weight": 0, "objective": 0} for row in made.rows)
    assert ten == hundred
    assert float(one["rt_attainment"] or 0) < float(ten["rt_attainment"] or 0)
    assert made.keys[-1] == "weight"


def test_no_weight_is_a_mistake() -> None:
    with pytest.raises(ExperimentError, match="no weights are named"):
        FOUND.run(FOUND.options(weights=()), quiet)
