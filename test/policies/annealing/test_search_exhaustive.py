"""All orders of a few requests."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from test.examples import examples
from test.policies.annealing.problems import alone, is_order_of, problems
from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.objective import OrderProblem
from timely_llm.policies.annealing.search import MOST_EXHAUSTIVE, exhaustive


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_batches_of_one_have_all_permutations(count: int) -> None:
    found = exhaustive(alone((1.0,) * count, (1.0,) * count))
    assert found.evaluations == math.factorial(count)


def test_batches_of_up_to_two_have_ordered_partitions() -> None:
    # Three requests: 6 orders of single ones, and 3 pairs before or after the third.
    problem = OrderProblem([[1.0] * 3] * 2, [[0.0] * 3] * 2)
    assert exhaustive(problem).evaluations == 6 + 6


@given(problems(most=5))
@examples(30)
def test_it_returns_an_order_with_its_score(problem: OrderProblem) -> None:
    found = exhaustive(problem)
    assert is_order_of(found.order, problem)
    assert problem.score(found.order) == found.score


def test_too_many_requests_are_refused() -> None:
    many = (1.0,) * (MOST_EXHAUSTIVE + 1)
    with pytest.raises(ConfigurationError, match="takes at most 10 requests, not 11"):
        exhaustive(alone(many, many))
