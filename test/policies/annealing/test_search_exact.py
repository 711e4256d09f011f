"""The exact search: as good as every other search, with fewer evaluations."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.annealing.problems import alone, is_order_of, problems
from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.objective import OrderProblem
from timely_llm.policies.annealing.search import (
    MOST_EXACT,
    Accept,
    Cooling,
    anneal,
    exact,
    exhaustive,
)


@given(problems(most=6))
@examples(80)
def test_it_finds_what_an_exhaustive_search_finds(problem: OrderProblem) -> None:
    found = exact(problem)
    assert is_order_of(found.order, problem)
    assert problem.score(found.order) == found.score
    assert found.score == pytest.approx(exhaustive(problem).score, rel=1e-9, abs=1e-9)


@given(problems(most=8, max_batch=3), st.sampled_from(Accept), st.booleans())
@examples(40)
def test_no_other_search_finds_a_better_order(
    problem: OrderProblem, accept: Accept, reset: bool
) -> None:
    annealed = anneal(problem, Cooling(accept=accept, reset=reset, iterations=30), Random(1))
    found = exact(problem, annealed.order)
    assert found.score >= annealed.score
    assert found.score == pytest.approx(exact(problem).score, rel=1e-9, abs=1e-9)


def test_ten_requests_take_fewer_evaluations_than_a_thousandth_of_all_orders() -> None:
    took = tuple(float(1 + 7 * place % 10) for place in range(10))
    limits = tuple(float(5 + 11 * place % 40) for place in range(10))
    assert exact(alone(took, limits)).evaluations < 3_628_800 / 1000


def test_a_good_order_to_begin_from_saves_evaluations() -> None:
    took = tuple(float(1 + 7 * place % 10) for place in range(10))
    limits = tuple(float(5 + 11 * place % 40) for place in range(10))
    problem = alone(took, limits)
    found = exact(problem)
    assert exact(problem, found.order).evaluations < found.evaluations


def test_too_many_requests_are_refused() -> None:
    many = (1.0,) * (MOST_EXACT + 1)
    with pytest.raises(ConfigurationError, match="takes at most 16 requests, not 17"):
        exact(alone(many, many))
